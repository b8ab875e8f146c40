//! The fields of a verdict.

use super::LoggedOutcome;
use crate::engine::asks::{Charges, Scope, ScopedDecision};
use crate::engine::local_counts::LocalCounts;
use arc_swap::Guard;
use diana_core::{Answer, Decision, Timestamp};
use diana_rules::RuleSet;
use diana_rules::ruleset::{DeniedBy, KeyRange, Matches};
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// The active rules, held without a reference count, which would be contended between threads.
pub(in crate::engine) type Rules = Guard<Arc<RuleSet>>;

/// The fields of a verdict.
#[derive(Debug)]
pub(in crate::engine) struct VerdictParts {
    /// The rules that made the decision; `None` while the box is unused.
    pub(in crate::engine) rules: Option<Rules>,
    pub(in crate::engine) matches: Matches,
    pub(in crate::engine) at: Timestamp,
    /// The rule that denied the request regardless of its counts.
    pub(in crate::engine) denied_by: Option<DeniedBy>,
    /// The rule that denied it, once the decision is finished.
    pub(in crate::engine) denying: Option<DenyingRule>,
    /// What is to be logged about it.
    pub(in crate::engine) to_log: SmallVec<[LogEntry; 2]>,
    /// Which queries are decided in this process.
    pub(in crate::engine) local_scope: Scope,
    /// The decisions of active rules, local ones first; then those of shadow rules.
    pub(in crate::engine) decisions: Decisions,
    /// Which charges in this process are released when it is dropped, if it is granted.
    pub(in crate::engine) on_drop: Option<(Arc<LocalCounts>, Charges)>,
    /// The rule in whose queue it waited, and for how long.
    pub(in crate::engine) queued: Option<Queued>,
    /// The queries with nothing left to refund, because their actual cost was 0.
    pub(in crate::engine) settled_to_zero: Vec<(Scope, usize)>,
    /// The later charges of each rule for which its estimated cost was 0.
    pub(in crate::engine) charged_free: Vec<u64>,
    /// When it was started, if an adaptive limit needs it.
    pub(in crate::engine) started_at: Option<Timestamp>,
    /// Whether it was only peeked, so that nothing was charged.
    pub(in crate::engine) is_peek: bool,
    /// Whether its response was recorded.
    pub(in crate::engine) is_answered: bool,
}

/// A list of decisions whose memory is reused: a decision is large, and writing one answer into an old one is much
/// cheaper than moving a new one.
#[derive(Debug, Default)]
pub(in crate::engine) struct Decisions {
    /// The first `len` are in use.
    slots: SmallVec<[ScopedDecision; 1]>,
    len: usize,
}

impl Decisions {
    /// Clears the list. The memory is kept, unless a request with very many limits made it large.
    pub(in crate::engine) fn clear(&mut self) {
        const MAX_SLOTS: usize = 4;
        const MAX_ANSWERS: usize = 8; // a decision has room for these without an allocation
        if self.slots.len() > MAX_SLOTS || self.iter().any(|of| of.decision.answers().len() > MAX_ANSWERS) {
            self.slots = SmallVec::new();
        }
        self.len = 0;
    }

    pub(in crate::engine) fn push(&mut self, decision: ScopedDecision) {
        match self.slots.get_mut(self.len) {
            Some(slot) => *slot = decision,
            None => self.slots.push(decision),
        }
        self.len += 1;
    }

    /// Adds the decision of this process about one query.
    #[inline]
    pub(in crate::engine) fn push_local(&mut self, scope: Scope, answer: Answer) {
        let Some(slot) = self.slots.get_mut(self.len) else {
            return self.push(ScopedDecision { scope, decision: Decision::new([answer]), is_local: true });
        };
        (slot.scope, slot.is_local) = (scope, true);
        slot.decision.replace(answer);
        self.len += 1;
    }
}

impl Deref for Decisions {
    type Target = [ScopedDecision];

    #[inline]
    fn deref(&self) -> &[ScopedDecision] {
        self.slots.get(..self.len).unwrap_or_default()
    }
}

impl DerefMut for Decisions {
    #[inline]
    fn deref_mut(&mut self) -> &mut [ScopedDecision] {
        self.slots.get_mut(..self.len).unwrap_or_default()
    }
}

/// The rule that denied a request, and its key.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct DenyingRule {
    pub(in crate::engine) rule: u32,
    pub(in crate::engine) key: KeyRange,
}

/// A rule and a key whose outcome is to be logged.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct LogEntry {
    pub(in crate::engine) rule: u32,
    pub(in crate::engine) key: KeyRange,
    pub(in crate::engine) outcome: LoggedOutcome,
}

/// How long a request was queued, and for which rule last.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Queued {
    pub(in crate::engine) rule: u32,
    pub(in crate::engine) time: Duration,
}

impl VerdictParts {
    pub(super) fn empty() -> Self {
        Self {
            rules: None,
            matches: Matches::default(),
            at: Timestamp::EPOCH,
            denied_by: None,
            denying: None,
            to_log: SmallVec::new(),
            local_scope: Scope::Everything,
            decisions: Decisions::default(),
            on_drop: None,
            queued: None,
            settled_to_zero: Vec::new(),
            charged_free: Vec::new(),
            started_at: None,
            is_peek: false,
            is_answered: false,
        }
    }

    /// Clears the fields, but keeps their memory. An unused box must not keep replaced rules alive.
    pub(super) fn clear(&mut self) {
        self.rules = None;
        self.matches.clear();
        self.denied_by = None;
        self.denying = None;
        self.to_log.clear();
        self.decisions.clear();
        self.on_drop = None;
        self.queued = None;
        self.settled_to_zero.clear();
        self.charged_free.clear();
        self.started_at = None;
        self.is_peek = false;
        self.is_answered = false;
    }
}
