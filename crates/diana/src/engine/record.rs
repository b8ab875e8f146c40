//! The fields of a verdict, and their allocation.
//!
//! A verdict is large (it has room for the answers of a few rules) and is moved several times. So it is boxed, and each
//! thread reuses the boxes that it drops: a request allocates no memory (`tests/no_allocation.rs`).

use super::local::LocalCounts;
use super::queries::Scope;
use arc_swap::Guard;
use diana_core::{Decision, Timestamp};
use diana_rules::RuleSet;
use diana_rules::ruleset::{Matches, RefusedBy};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// The active rules, held without a reference count, which would be contended between threads.
pub(super) type Rules = Guard<Arc<RuleSet>>;

/// The fields of a verdict.
#[derive(Debug)]
pub(super) struct DecisionRecord {
    /// The rules that made the decision; `None` while the box is unused.
    pub(super) rules: Option<Rules>,
    pub(super) found: Matches,
    pub(super) at: Timestamp,
    pub(super) refused: Option<RefusedBy>,
    /// Which queries are decided in this process.
    pub(super) here: Scope,
    /// The local decision, if any limit was checked in this process.
    pub(super) local: Option<Decision>,
    pub(super) shared: Option<Box<SharedDecision>>,
    pub(super) shadows: Vec<Shadow>,
    /// Where its permits in this process are released on drop.
    pub(super) held: Option<Arc<LocalCounts>>,
    /// The rule in whose queue it waited, and for how long.
    pub(super) stood: Option<Queued>,
    /// The queries with nothing left to refund, because their actual cost was 0.
    pub(super) emptied: Vec<(Scope, usize)>,
    /// The later charges of each rule for which its estimated cost was 0.
    pub(super) charged_free: Vec<u64>,
    /// When it was started, if an adaptive limit needs it.
    pub(super) begun: Option<Timestamp>,
    /// Whether its response was recorded.
    pub(super) is_answered: bool,
}

/// The decision of the shared store, or of this process as its fallback.
#[derive(Debug)]
pub(super) struct SharedDecision {
    pub(super) decision: Decision,
    /// Whether it was made in this process, because the store failed.
    pub(super) here: bool,
}

/// The decision of a shadow rule.
#[derive(Debug)]
pub(super) struct Shadow {
    /// Its index among the matched rules.
    pub(super) nth: usize,
    pub(super) decision: Decision,
    pub(super) here: bool,
}

/// How long a request was queued, and for which rule last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) rule: u32,
    pub(super) time: Duration,
}

/// The maximum number of boxes that a thread keeps.
const MOST: usize = 32;

thread_local! {
    #[allow(clippy::vec_box, reason = "the boxes are handed out, and come back")]
    static USED: RefCell<Vec<Box<DecisionRecord>>> = const { RefCell::new(Vec::new()) };
}

impl DecisionRecord {
    /// Creates an empty record.
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

    /// Keeps the box for reuse.
    pub(super) fn use_again(mut self: Box<Self>) {
        // An unused box must not keep replaced rules alive.
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
        // A thread that is ending has no cache any more; then the box is freed.
        let _ = USED.try_with(|used| {
            let mut used = used.borrow_mut();
            if used.len() < MOST {
                used.push(self);
            }
        });
    }
}
