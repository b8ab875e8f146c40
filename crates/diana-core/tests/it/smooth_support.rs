//! Shared by the tests of the smooth limiters: a limiter with a clock that waits advance, as in Guava's own tests.

use diana_core::{Algorithm, Cost, MaxWait, Outcome, SmoothBursty, SmoothState, SmoothWarmingUp, Timestamp};
use std::time::Duration;

pub(crate) struct SmoothTrial<A: Algorithm> {
    pub limiter: A,
    pub state: A::State,
    pub now: Timestamp,
}

impl<A: Algorithm> SmoothTrial<A> {
    pub(crate) fn new(limiter: A) -> Self {
        Self { state: limiter.fresh(Timestamp::EPOCH), limiter, now: Timestamp::EPOCH }
    }

    /// Waits without a timeout; returns the wait in microseconds.
    pub(crate) fn acquire(&mut self, permits: u64) -> u64 {
        let wait = self.take(permits, MaxWait::FOREVER).wait().unwrap();
        self.now = self.now + wait;
        u64::try_from(wait.as_micros()).unwrap()
    }

    pub(crate) fn acquire_each(&mut self, permits: &[u64]) -> Vec<u64> {
        permits.iter().map(|&permits| self.acquire(permits)).collect()
    }

    pub(crate) fn try_acquire(&mut self, permits: u64, timeout: Duration) -> bool {
        let outcome = self.take(permits, MaxWait::up_to(timeout));
        self.now = self.now + outcome.wait().unwrap_or_default();
        outcome.is_granted()
    }

    /// Asks without moving the clock.
    pub(crate) fn take(&mut self, permits: u64, max_wait: MaxWait) -> Outcome {
        self.limiter.take(&mut self.state, self.now, cost(permits), max_wait)
    }

    pub(crate) fn set_rate(&mut self, limiter: A) {
        limiter.rescale(&mut self.state, &self.limiter, self.now);
        self.limiter = limiter;
    }

    pub(crate) fn sleep(&mut self, time: Duration) {
        self.now = self.now + time;
    }
}

pub(crate) fn bursty(rate: f64) -> SmoothBursty {
    SmoothBursty::new(rate).unwrap()
}

pub(crate) fn warming_up(rate: f64, seconds: u64, cold_factor: f64) -> SmoothWarmingUp {
    SmoothWarmingUp::new(rate, secs(seconds)).unwrap().with_cold_factor(cold_factor).unwrap()
}

pub(crate) fn cost(permits: u64) -> Cost {
    Cost::new(permits).unwrap()
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// The state bit for bit.
pub(crate) fn bits(state: &SmoothState) -> (u64, u64) {
    (state.stored_permits().to_bits(), state.next_free_micros())
}
