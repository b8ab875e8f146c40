//! Counters of the outcomes of the requests that a rule matches.
//!
//! Counters survive a reload if the rule stays the same. Each rule's counters have their own cache lines, so that
//! counting does not slow down threads that only read the rule.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The outcomes of the requests that a rule has matched since it was loaded. Each request is in exactly one of these,
/// except for `failures` and waits, which are counted separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleCounts {
    /// Allowed at once.
    pub allowed: u64,
    /// Allowed after a wait that this rule imposed.
    pub delayed: u64,
    /// Denied by this rule.
    pub denied: u64,
    /// Over this rule's limit, and sent to another upstream.
    pub rerouted: u64,
    /// Would have been denied by this shadow rule.
    pub shadow_denied: u64,
    /// The number of expressions that have failed. A failed `when` matches, a failed cost is `cost_default` or denies
    /// the request, and requests with a failed key share one count.
    pub failures: u64,
    /// The number of requests that wait for this rule now: in a queue, or for a reserved time.
    pub waiting: u64,
    /// The number of requests that have waited for this rule, whether they were allowed then or not.
    pub waits: u64,
    /// How long they have waited, all together.
    pub wait_time: Duration,
}

/// A request that waits for a rule; it is counted until this is dropped.
#[derive(Debug)]
#[must_use = "the request counts as waiting until this is dropped"]
pub struct WaitingRequest(Arc<Counters>);

impl WaitingRequest {
    pub(super) fn new(counters: &Arc<Counters>) -> Self {
        counters.waiting.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counters))
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The outcome of one request by one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// Allowed at once.
    Allowed,
    /// Allowed after a wait.
    Delayed,
    /// Denied.
    Denied,
    /// Sent to another upstream.
    Rerouted,
    /// Would have been denied if the rule were not a shadow rule.
    ShadowDenied,
}

/// The counters of one rule.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    allowed: AtomicU64,
    delayed: AtomicU64,
    denied: AtomicU64,
    rerouted: AtomicU64,
    shadow_denied: AtomicU64,
    failures: AtomicU64,
    waiting: AtomicU64,
    waits: AtomicU64,
    wait_nanos: AtomicU64,
}

impl Counters {
    #[inline]
    pub(super) fn count(&self, outcome: RequestOutcome) {
        let counter = match outcome {
            RequestOutcome::Allowed => &self.allowed,
            RequestOutcome::Delayed => &self.delayed,
            RequestOutcome::Denied => &self.denied,
            RequestOutcome::Rerouted => &self.rerouted,
            RequestOutcome::ShadowDenied => &self.shadow_denied,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_wait(&self, time: Duration) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.wait_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> RuleCounts {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RuleCounts {
            allowed: number(&self.allowed),
            delayed: number(&self.delayed),
            denied: number(&self.denied),
            rerouted: number(&self.rerouted),
            shadow_denied: number(&self.shadow_denied),
            failures: number(&self.failures),
            waiting: number(&self.waiting),
            waits: number(&self.waits),
            wait_time: Duration::from_nanos(number(&self.wait_nanos)),
        }
    }
}
