//! The state of a single limit: in an atomic word if the algorithm has that form, behind a lock otherwise.

use super::atomic::AtomicBucket;
use crate::algorithm::Packed;
use crate::algorithm::erased_state::AnyState;
use crate::algorithm::token_bucket::PackedBucket;
use crate::store::erased_algorithm::AnyAlgorithm;
use crate::sync::Mutex;
use crate::{Algorithm, Answer, Cost, MaxWait, Quota, Receipt, Refund, Status, Timestamp, WaitMode};
use std::fmt::Debug;

/// The state of a single limit.
#[derive(Debug)]
pub(crate) struct Cell {
    fast: AtomicBucket,
    /// Locked while the limit is changed.
    slow: Mutex<Slow>,
}

#[derive(Debug)]
struct Slow {
    /// The active state while `fast` is closed.
    state: Option<Box<dyn AnyState>>,
    rate: ConfiguredRate,
}

/// The rate that a limit was configured with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfiguredRate {
    pub(crate) quota: Option<Quota>,
    /// The rate in permits per second.
    pub(crate) per_second: Option<f64>,
}

impl ConfiguredRate {
    pub(crate) fn of(algorithm: &dyn AnyAlgorithm) -> Self {
        let properties = algorithm.properties();
        Self { quota: properties.quota(), per_second: properties.rate() }
    }
}

impl Cell {
    pub(crate) fn new(algorithm: &dyn AnyAlgorithm, now: Timestamp) -> Self {
        let (fast, state) = match algorithm.packed() {
            Some(Packed(bucket)) => (AtomicBucket::open_with(&bucket), None),
            None => (AtomicBucket::closed(), Some(algorithm.new_state(now))),
        };
        Self { fast, slow: Mutex::new(Slow { state, rate: ConfiguredRate::of(algorithm) }) }
    }

    /// Takes, if the active algorithm has a one-word state.
    // Fully inlined, so that a caller that only checks `is_granted` does not pay for computing the rest.
    #[inline(always)]
    pub(crate) fn take_packed(&self, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Option<Answer> {
        self.fast.update(|bucket, state| bucket.answer(state, now, cost, max_wait))
    }

    pub(crate) fn take(&self, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        self.with(|bucket, state| bucket.answer(state, now, cost, max_wait), |state| state.take(now, cost, max_wait))
    }

    /// Takes as of the first instant from `since` to `now` at which the limit allows it.
    pub(crate) fn take_since(&self, since: Timestamp, now: Timestamp, cost: Cost) -> Answer {
        self.with(
            |bucket, state| bucket.answer(state, since, cost, MaxWait::up_to(now.since(since))),
            |state| state.take_since(since, now, cost),
        )
    }

    pub(crate) fn peek(&self, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        self.with(
            |bucket, state| Answer::new(bucket.peek(state, now, cost, max_wait), bucket.status(state, now)),
            |state| state.peek(now, cost, max_wait),
        )
    }

    pub(crate) fn charge(&self, now: Timestamp, cost: Cost) {
        self.with(|bucket, state| bucket.charge(state, now, cost), |state| state.charge(now, cost));
    }

    pub(crate) fn refund(&self, now: Timestamp, receipt: &Receipt) -> Refund {
        self.with(|bucket, state| bucket.refund(state, now, receipt), |state| state.refund(now, receipt))
    }

    pub(crate) fn refund_rest(&self, now: Timestamp, receipt: &Receipt, used: u64) -> Refund {
        self.with(
            |bucket, state| bucket.refund_rest(state, now, receipt, used),
            |state| state.refund_rest(now, receipt, used),
        )
    }

    pub(crate) fn reset(&self, now: Timestamp) {
        self.with(|bucket, state| *state = bucket.fresh(now), |state| state.reset(now));
    }

    /// Starts again, on another clock.
    pub(crate) fn restart(&self, now: Timestamp) {
        self.with(|bucket, state| *state = bucket.fresh(now), |state| state.restart(now));
    }

    pub(crate) fn status(&self, now: Timestamp) -> Status {
        self.with(|bucket, state| bucket.status(state, now), |state| state.status(now))
    }

    pub(crate) fn wait_mode(&self) -> WaitMode {
        self.with(|bucket, _| Algorithm::wait_mode(bucket), |state| state.wait_mode())
    }

    /// Changes to `algorithm`; the usage is kept, clamped.
    pub(crate) fn change_to(&self, algorithm: &dyn AnyAlgorithm, now: Timestamp) {
        let mut slow = self.slow.lock();
        slow.rate = ConfiguredRate::of(algorithm);
        match (&mut slow.state, algorithm.packed()) {
            (None, Some(Packed(bucket))) => {
                self.fast.change(&bucket, now);
            }
            (None, None) => {
                let Some((bucket, full_at)) = self.fast.close() else { return };
                slow.state = Some(algorithm.occupied(used(bucket.status(&full_at, now)), now));
            }
            (Some(state), Some(Packed(bucket))) => {
                self.fast.open(&bucket, Algorithm::occupied(&bucket, used(state.status(now)), now));
                slow.state = None;
            }
            (Some(state), None) => {
                if !state.change_to(algorithm.as_any(), now) {
                    *state = algorithm.occupied(used(state.status(now)), now);
                }
            }
        }
    }

    /// Returns the rate that the limit was configured with.
    pub(crate) fn rate(&self) -> ConfiguredRate {
        self.slow.lock().rate
    }

    /// Works on the active state.
    fn with<R>(
        &self,
        mut fast: impl FnMut(&PackedBucket, &mut u64) -> R,
        slow: impl FnOnce(&mut dyn AnyState) -> R,
    ) -> R {
        loop {
            if let Some(result) = self.fast.update(&mut fast) {
                return result;
            }
            // Closed: either the locked state is active, or another thread is changing the limit and will open the
            // bucket again before it releases the lock.
            if let Some(state) = &mut self.slow.lock().state {
                return slow(&mut **state);
            }
        }
    }
}

fn used(status: Status) -> u64 {
    status.limit.saturating_sub(status.remaining)
}
