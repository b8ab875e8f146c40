//! What became of the requests that a rule was about, in numbers.
//!
//! The numbers outlive a change of the rules: those that are the same afterwards go on counting where they were. Each rule's are
//! on cache lines of their own, so that counting costs the threads that only read the rule nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// What became of the requests that a rule was about since it came into force. Each request is in one of these, but for
/// `failures`, which are counted beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleCounts {
    /// Granted at once.
    pub granted: u64,
    /// Granted after a wait that this rule imposed.
    pub waited: u64,
    /// Refused by this rule.
    pub refused: u64,
    /// Over this rule's limit, and sent to another upstream.
    pub diverted: u64,
    /// What it would have refused, if it were not a shadow.
    pub shadow_refused: u64,
    /// How many of its expressions have failed. A `when` that fails matches, a cost that fails is the rule's `cost_default` or
    /// denies, and a key that fails is shared by all such requests.
    pub failures: u64,
}

/// What became of one request by one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// It was granted at once.
    Granted,
    /// It was granted after a wait.
    Waited,
    /// It was refused.
    Refused,
    /// It was sent to another upstream.
    Rerouted,
    /// It would have been refused, if the rule were not a shadow.
    ShadowRefused,
}

/// The counters of one rule.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    granted: AtomicU64,
    waited: AtomicU64,
    refused: AtomicU64,
    diverted: AtomicU64,
    shadow_refused: AtomicU64,
    failures: AtomicU64,
}

impl Counters {
    #[inline]
    pub(super) fn count(&self, fate: RequestOutcome) {
        let counter = match fate {
            RequestOutcome::Granted => &self.granted,
            RequestOutcome::Waited => &self.waited,
            RequestOutcome::Refused => &self.refused,
            RequestOutcome::Rerouted => &self.diverted,
            RequestOutcome::ShadowRefused => &self.shadow_refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn all(&self) -> RuleCounts {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RuleCounts {
            granted: number(&self.granted),
            waited: number(&self.waited),
            refused: number(&self.refused),
            diverted: number(&self.diverted),
            shadow_refused: number(&self.shadow_refused),
            failures: number(&self.failures),
        }
    }
}
