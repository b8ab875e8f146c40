//! What is counted in this process, by which clock, and who stands in line for it.
//!
//! Verdicts that hold something have a share in it, so that what they hold comes back when they are dropped, wherever and
//! whenever that is.

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

/// The most that stand in line, over all rules and keys.
const MOST_WAITING: usize = 100_000;

/// The counts of this process.
#[derive(Debug)]
pub(super) struct LocalCounts {
    pub(super) store: MemoryStore,
    clock: Option<Arc<dyn Clock>>,
    /// Those who wait: for counts of this process, and for shared ones.
    pub(super) lines: WaitQueues,
    /// Those who wait for a time that they were promised.
    pub(super) reserved: Mutex<Reservations>,
    hasher: RandomState,
}

/// Another process has reset a key of the shared store. Which one, only the store knows; the first of each queue finds out.
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

    /// Blocks this thread until `time` has come.
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

    /// Which line is the one for a count.
    pub(super) fn line(&self, limit: LimitId, key: &[u8]) -> u64 {
        self.hasher.hash_one((limit, key))
    }

    /// Gives back what was granted in this process, and wakes those who wait for it.
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

    /// Says that a request does not wait any more for what it was promised, here or elsewhere.
    pub(super) fn give_up(&self, verdict: &Verdict, part: Scope, made: &Decision) {
        if verdict.rules().has_reserved() && made.is_granted() {
            self.reserved.lock().give_up(self, verdict, part, made);
        }
    }

    /// Gives back all that was granted to a request in this process.
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

    /// Wakes those who wait for what has come back.
    pub(super) fn wake(&self, asks: &AskList<'_>) {
        // Most of the time it is nobody.
        if self.lines.is_empty() {
            return;
        }
        for ask in asks {
            self.lines.wake(self.line(ask.limit.id(), ask.key));
        }
    }

    /// Wakes those who wait in these lines.
    #[cfg(feature = "wait")]
    pub(super) fn wake_lines(&self, lines: &[u64]) {
        if !self.lines.is_empty() {
            lines.iter().for_each(|line| self.lines.wake(*line));
        }
    }
}
