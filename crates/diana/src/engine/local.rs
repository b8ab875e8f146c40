//! The counts of this process, their clock, and their wait queues.
//!
//! Verdicts with permits share ownership, so that dropping a verdict releases its permits on any thread and at any
//! time.

use super::Return;
use super::queries::{AskList, Queries, Scope};
use super::reservations::Reservations;
use super::verdict::Verdict;
use diana_core::{
    Clock, Decision, LimitId, LocalStore, MemoryStore, ResetListener, SystemClock, Timestamp, WaitQueues,
};
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The maximum number of queued requests, over all rules and keys.
const MOST_WAITING: usize = 100_000;

/// The counts of this process.
#[derive(Debug)]
pub(super) struct LocalCounts {
    pub(super) store: MemoryStore,
    clock: Option<Arc<dyn Clock>>,
    /// Requests that wait for local or shared counts.
    pub(super) lines: WaitQueues,
    /// Requests that wait for a reserved time.
    pub(super) reserved: Mutex<Reservations>,
    hasher: RandomState,
}

/// Called when another process has reset a key of the shared store. Only the store knows which key, so the first waiter
/// of each queue retries.
impl ResetListener for LocalCounts {
    fn key_reset(&self) {
        self.lines.wake_all();
    }
}

impl LocalCounts {
    pub(super) fn new(store: MemoryStore, clock: Option<Arc<dyn Clock>>) -> Self {
        let lines = WaitQueues::new(MOST_WAITING);
        Self { store, clock, lines, reserved: Mutex::default(), hasher: RandomState::new() }
    }

    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        match &self.clock {
            None => SystemClock.now(),
            Some(clock) => clock.now(),
        }
    }

    /// Blocks this thread until `time`.
    #[cfg(feature = "macros")]
    pub(super) fn park_until(&self, time: Timestamp) {
        let clock: &dyn Clock = self.clock.as_ref().map_or(&SystemClock, |clock| &**clock);
        // A thread may be woken early.
        while let left = time.since(clock.now())
            && !left.is_zero()
        {
            clock.park(left);
        }
    }

    /// Returns the id of the queue for a count.
    pub(super) fn line(&self, limit: LimitId, key: &[u8]) -> u64 {
        self.hasher.hash_one((limit, key))
    }

    /// Refunds charges in this process and wakes the waiters.
    pub(super) fn give_back(&self, verdict: &Verdict, part: Scope, made: &Decision, what: Return, now: Timestamp) {
        if what == Return::Everything {
            self.give_up(verdict, part, made);
        }
        let (asks, made) = Queries::given_back(verdict, part, made, what);
        if !asks.is_empty() {
            LocalStore::refund(&self.store, &asks, &made, now);
            self.wake(&asks);
        }
    }

    /// Cancels the reservations of a request, local and shared.
    pub(super) fn give_up(&self, verdict: &Verdict, part: Scope, made: &Decision) {
        if verdict.rules().has_reserved() && made.is_granted() {
            self.reserved.lock().give_up(self, verdict, part, made);
        }
    }

    /// Refunds all charges of a request in this process.
    pub(super) fn give_back_local(&self, verdict: &Verdict) {
        let (now, made) = (self.now(), verdict.made());
        if let Some(local) = &made.local {
            self.give_back(verdict, made.here, local, Return::Everything, now);
        }
        if let Some(shared) = made.shared.as_ref().filter(|shared| shared.here && shared.decision.is_granted()) {
            self.give_back(verdict, Scope::Shared, &shared.decision, Return::Everything, now);
        }
        for shadow in made.shadows.iter().filter(|shadow| shadow.here && shadow.decision.is_granted()) {
            self.give_back(verdict, Scope::Shadow(shadow.nth), &shadow.decision, Return::Everything, now);
        }
    }

    /// Wakes the waiters of refunded counts.
    pub(super) fn wake(&self, asks: &AskList<'_>) {
        // Usually there are none.
        if self.lines.is_empty() {
            return;
        }
        for ask in asks {
            self.lines.wake(self.line(ask.limit.id(), ask.key));
        }
    }

    /// Wakes the waiters of these queues.
    #[cfg(feature = "wait")]
    pub(super) fn wake_lines(&self, lines: &[u64]) {
        if !self.lines.is_empty() {
            lines.iter().for_each(|line| self.lines.wake(*line));
        }
    }
}
