//! The counts of this process, their clock, and their wait queues.
//!
//! Verdicts with permits share ownership, so that dropping a verdict releases its permits on any thread and at any time.

mod reservations;

use super::asks::{AskList, Charges, OwnedAsks, Scope, ScopedDecision};
use super::verdict::Verdict;
use crate::ruleset::Needs;
use diana_core::{
    Ask, Clock, Decision, LocalStore, MaxWait, MemoryStore, ResetListener, SystemClock, Timestamp, WaitQueues,
};
use parking_lot::Mutex;
use reservations::Reservations;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The maximum number of queued requests, over all rules and keys.
const MAX_QUEUED: usize = 100_000;

/// The counts of this process.
#[derive(Debug)]
pub(super) struct LocalCounts {
    pub(super) store: MemoryStore,
    clock: Option<Arc<dyn Clock>>,
    /// Requests that wait for local or shared counts.
    pub(super) queues: WaitQueues,
    /// Requests that wait for a reserved time.
    reservations: Mutex<Reservations>,
    hasher: RandomState,
}

/// Called when another process has reset a key of the shared store. Only the store knows which key, so the first waiter
/// of each queue retries.
impl ResetListener for LocalCounts {
    fn key_reset(&self) {
        self.queues.wake_all();
    }
}

impl LocalCounts {
    pub(super) fn new(store: MemoryStore, clock: Option<Arc<dyn Clock>>) -> Self {
        let queues = WaitQueues::new(MAX_QUEUED);
        Self { store, clock, queues, reservations: Mutex::default(), hasher: RandomState::new() }
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
        while let remaining = time.since(clock.now())
            && !remaining.is_zero()
        {
            clock.park(remaining);
        }
    }

    /// Decides the queries in scope by the local counts; `None` if there are none.
    pub(super) fn decide(&self, verdict: &Verdict, scope: Scope) -> Option<Decision> {
        let mut asks = verdict.asks(scope);
        if asks.is_empty() {
            return None;
        }
        let now = verdict.at();
        if !verdict.matches().needs().has(Needs::RESERVATIONS) {
            return Some(LocalStore::decide(&self.store, &asks, now, MaxWait::FOREVER));
        }
        let bounds = || verdict.limits_in(scope).map(|(_, limit)| limit.reserved);
        let mut reservations = self.reservations.lock();
        reservations.bound(self, &mut asks, bounds(), now);
        let decision = LocalStore::decide(&self.store, &asks, now, MaxWait::FOREVER);
        reservations.add(self, &asks, bounds(), &decision, now);
        Some(decision)
    }

    /// Sets the maximum wait of queries to zero if their count has too many reservations.
    pub(super) fn bound_reservations(&self, asks: &mut [Ask<'_>], owned: &OwnedAsks, now: Timestamp) {
        self.reservations.lock().bound(self, asks, owned.max_reserved(), now);
    }

    /// Stores the reservations of a decision of the shared store.
    pub(super) fn add_reservations(&self, owned: &OwnedAsks, decision: &Decision, now: Timestamp) {
        self.reservations.lock().add(self, &owned.as_asks(), owned.max_reserved(), decision, now);
    }

    /// Removes the reservations of a cancelled query of the shared store.
    pub(super) fn remove_reservations(&self, owned: &OwnedAsks, decision: &Decision, at: Timestamp) {
        self.reservations.lock().remove(self, &owned.as_asks(), owned.max_reserved(), decision, at);
    }

    /// Removes the reservations of a cancelled request, local or shared.
    pub(super) fn cancel_reservations(&self, verdict: &Verdict, scoped: &ScopedDecision) {
        if verdict.matches().needs().has(Needs::RESERVATIONS) {
            let bounds = verdict.limits_in(scoped.scope).map(|(_, limit)| limit.reserved);
            let mut reservations = self.reservations.lock();
            reservations.remove(self, &verdict.asks(scoped.scope), bounds, &scoped.decision, verdict.at());
        }
    }

    /// Returns charges to the local counts, and wakes the waiters.
    pub(super) fn release(&self, verdict: &Verdict, scoped: &ScopedDecision, charges: Charges) {
        if charges == Charges::All {
            self.cancel_reservations(verdict, scoped);
        }
        let (asks, decision) = verdict.charged(scoped, charges);
        self.refund(&asks, &decision);
    }

    /// Returns the charges of a granted request to the local counts; those in the shared store stay.
    pub(super) fn release_all(&self, verdict: &Verdict, charges: Charges) {
        for decision in verdict.granted().filter(|decision| decision.is_local) {
            self.release(verdict, decision, charges);
        }
    }

    /// Refunds a decision of the local counts, and wakes the waiters.
    pub(super) fn refund(&self, asks: &AskList<'_>, decision: &Decision) {
        if !asks.is_empty() {
            LocalStore::refund(&self.store, asks, decision, self.now());
            self.wake(asks);
        }
    }

    /// Returns the id of the wait queue of a count.
    pub(super) fn queue_id(&self, ask: &Ask<'_>) -> u64 {
        self.hasher.hash_one((ask.limit.id(), ask.key))
    }

    /// Wakes the waiters of refunded counts.
    pub(super) fn wake(&self, asks: &[Ask<'_>]) {
        // Usually there are none.
        if self.queues.is_empty() {
            return;
        }
        for ask in asks {
            self.queues.wake(self.queue_id(ask));
        }
    }

    /// Wakes the waiters of these queues.
    pub(super) fn wake_queues(&self, queues: &[u64]) {
        if !self.queues.is_empty() {
            queues.iter().for_each(|queue| self.queues.wake(*queue));
        }
    }
}
