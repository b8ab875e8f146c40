//! The types of a verdict's fields.

use super::LoggedOutcome;
use crate::engine::ActiveRules;
use crate::engine::asks::{Scope, ScopedDecision};
use crate::engine::permit::Settlement;
use crate::engine::shared_store::LeaseGuard;
use crate::ruleset::{DeniedBy, KeyRange};
use arc_swap::Guard;
use diana_core::{Answer, Decision, Timestamp};
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// The active rules, held without a reference count, which would be contended between threads.
pub(in crate::engine) type Rules = Guard<Arc<ActiveRules>>;

/// Fields that most requests do not need. They are cleared only if they were borrowed mutably.
#[derive(Debug, Default)]
pub(in crate::engine) struct UnusualParts {
    fields: UnusualFields,
    is_changed: bool,
}

#[derive(Debug, Default)]
pub(in crate::engine) struct UnusualFields {
    /// The rule that denied the request regardless of its counts.
    pub(in crate::engine) denied_by: Option<DeniedBy>,
    /// The outcomes to log.
    pub(in crate::engine) to_log: SmallVec<[LogEntry; 2]>,
    /// The actual cost, if the shared store was not updated yet.
    pub(in crate::engine) settlement: Option<Box<Settlement>>,
    /// Extends its leases in the shared store while it runs.
    pub(in crate::engine) lease: Option<LeaseGuard>,
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
    /// Whether the rules that count by the status of the response were charged.
    pub(in crate::engine) is_status_known: bool,
}

impl UnusualParts {
    /// Returns `true` if a field may be set.
    #[inline]
    pub(in crate::engine) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Clears the fields, but keeps their memory.
    #[inline]
    pub(super) fn clear(&mut self) {
        if self.is_changed {
            self.clear_changed();
        }
    }

    #[inline(never)]
    fn clear_changed(&mut self) {
        let fields = &mut self.fields;
        fields.denied_by = None;
        fields.to_log.clear();
        fields.settlement = None;
        fields.lease = None;
        fields.queued = None;
        fields.settled_to_zero.clear();
        fields.charged_free.clear();
        fields.started_at = None;
        fields.is_peek = false;
        fields.is_answered = false;
        fields.is_status_known = false;
        self.is_changed = false;
    }
}

impl Deref for UnusualParts {
    type Target = UnusualFields;

    #[inline]
    fn deref(&self) -> &UnusualFields {
        &self.fields
    }
}

impl DerefMut for UnusualParts {
    #[inline]
    fn deref_mut(&mut self) -> &mut UnusualFields {
        self.is_changed = true;
        &mut self.fields
    }
}

/// A list of decisions whose memory is reused: a decision is large, and writing one answer into an old one is much
/// cheaper than moving a new one.
#[derive(Debug, Default)]
pub(in crate::engine) struct Decisions {
    /// The first `len` are in use.
    slots: SmallVec<[ScopedDecision; 1]>,
    len: usize,
    /// Whether the memory is too large to be kept.
    is_large: bool,
}

/// The decisions of a request whose memory is kept, and the answers of each.
const MAX_SLOTS: usize = 4;
const MAX_ANSWERS: usize = 16;

impl Decisions {
    /// Clears the list. The memory is kept, unless a request with very many limits made it large.
    #[inline]
    pub(in crate::engine) fn clear(&mut self) {
        if self.is_large {
            self.free();
        }
        self.len = 0;
    }

    #[cold]
    fn free(&mut self) {
        *self = Self::default();
    }

    pub(in crate::engine) fn push(&mut self, decision: ScopedDecision) {
        self.is_large |= self.len >= MAX_SLOTS || decision.decision.answers().len() > MAX_ANSWERS;
        match self.slots.get_mut(self.len) {
            Some(slot) => *slot = decision,
            None => self.slots.push(decision),
        }
        self.len += 1;
    }

    /// Adds the decision of this process about one query.
    #[inline(always)]
    pub(in crate::engine) fn push_local(&mut self, scope: Scope, answer: Answer) {
        let Some(slot) = self.slots.get_mut(self.len) else { return self.push_new(scope, answer) };
        (slot.scope, slot.is_local) = (scope, true);
        slot.decision.replace(answer);
        self.len += 1;
    }

    /// Adds the decision of this process about several queries, which `decide` writes; returns `true` if it is granted.
    #[inline(always)]
    pub(in crate::engine) fn push_local_with(&mut self, scope: Scope, decide: impl FnOnce(&mut Decision)) -> bool {
        if self.slots.len() == self.len {
            self.slots.push(ScopedDecision { scope, decision: Decision::new([]), is_local: true });
        }
        let Some(slot) = self.slots.get_mut(self.len) else { return true };
        (slot.scope, slot.is_local) = (scope, true);
        decide(&mut slot.decision);
        self.is_large |= slot.decision.answers().len() > MAX_ANSWERS;
        let is_granted = slot.decision.is_granted();
        self.len += 1;
        is_granted
    }

    #[cold]
    fn push_new(&mut self, scope: Scope, answer: Answer) {
        self.push(ScopedDecision { scope, decision: Decision::new([answer]), is_local: true });
    }

    /// Returns the decision, if there is only one.
    #[inline]
    pub(in crate::engine) fn single(&self) -> Option<&ScopedDecision> {
        if self.len == 1 { self.slots.first() } else { None }
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
