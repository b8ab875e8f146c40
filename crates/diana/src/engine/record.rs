//! What a verdict consists of, and where its memory comes from.
//!
//! A verdict is large (it has room for every answer of a few rules) and is handed on several times. So it lies in a box, and
//! boxes are used again by the thread that drops them: a request takes no new memory (`tests/no_allocation.rs`).

use super::local::LocalCounts;
use super::queries::Scope;
use arc_swap::Guard;
use diana_core::{Decision, Timestamp};
use diana_rules::{Matches, RefusedBy, RuleSet};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// The rules in force, held without counting who holds them: threads would fight over the count.
pub(super) type Rules = Guard<Arc<RuleSet>>;

/// What a verdict consists of.
#[derive(Debug)]
pub(super) struct DecisionRecord {
    /// Those it was made by; none while it waits to be used again.
    pub(super) rules: Option<Rules>,
    pub(super) found: Matches,
    pub(super) at: Timestamp,
    pub(super) refused: Option<RefusedBy>,
    /// Which of the asks are decided in this process.
    pub(super) here: Scope,
    /// What was decided in this process, if anything was asked there.
    pub(super) local: Option<Decision>,
    pub(super) shared: Option<Box<SharedDecision>>,
    pub(super) shadows: Vec<Shadow>,
    /// Where what it holds in this process goes when it is dropped.
    pub(super) held: Option<Arc<LocalCounts>>,
    /// The rule in whose line it stood, and for how long.
    pub(super) stood: Option<Queued>,
    /// The asks of which nothing is left to give back: they turned out to cost nothing.
    pub(super) emptied: Vec<(Scope, usize)>,
    /// What was charged afterwards to each rule to which it seemed to cost nothing.
    pub(super) charged_free: Vec<u64>,
    /// When somebody said that it goes on, if an adaptive limit wants to know.
    pub(super) begun: Option<Timestamp>,
    /// Whether somebody has said that it was answered.
    pub(super) is_answered: bool,
}

/// What the shared store decided, or this process in its place.
#[derive(Debug)]
pub(super) struct SharedDecision {
    pub(super) decision: Decision,
    /// Whether it was decided in this process, because the store failed.
    pub(super) here: bool,
}

/// What a shadow rule would have said.
#[derive(Debug)]
pub(super) struct Shadow {
    /// Its place among the rules that were found.
    pub(super) nth: usize,
    pub(super) decision: Decision,
    pub(super) here: bool,
}

/// How long a request stood in line, and for which rule last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) rule: u32,
    pub(super) time: Duration,
}

/// The most boxes that a thread keeps.
const MOST: usize = 32;

thread_local! {
    #[allow(clippy::vec_box, reason = "the boxes are handed out, and come back")]
    static USED: RefCell<Vec<Box<DecisionRecord>>> = const { RefCell::new(Vec::new()) };
}

impl DecisionRecord {
    /// One that says nothing yet.
    pub(super) fn new(rules: Rules, at: Timestamp, here: Scope) -> Box<Self> {
        let used = USED.try_with(|used| used.borrow_mut().pop()).ok().flatten();
        match used {
            Some(mut made) => {
                made.rules = Some(rules);
                made.at = at;
                made.here = here;
                made
            }
            None => Box::new(Self {
                rules: Some(rules),
                found: Matches::default(),
                at,
                refused: None,
                here,
                local: None,
                shared: None,
                shadows: Vec::new(),
                held: None,
                stood: None,
                emptied: Vec::new(),
                charged_free: Vec::new(),
                begun: None,
                is_answered: false,
            }),
        }
    }

    /// Keeps the box for the next one.
    pub(super) fn use_again(mut self: Box<Self>) {
        // Rules that are no longer in force must not be held by what nobody looks at.
        self.rules = None;
        self.found.clear();
        self.refused = None;
        self.local = None;
        self.shared = None;
        self.shadows.clear();
        self.held = None;
        self.stood = None;
        self.emptied.clear();
        self.charged_free.clear();
        self.begun = None;
        self.is_answered = false;
        // A thread that ends has nothing to keep it in; then it goes.
        let _ = USED.try_with(|used| {
            let mut used = used.borrow_mut();
            if used.len() < MOST {
                used.push(self);
            }
        });
    }
}
