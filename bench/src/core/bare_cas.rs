//! The floor: a token bucket in one atomic word and nothing else. No limiter that reads a clock and counts can be
//! faster.

use std::sync::atomic::{AtomicU64, Ordering};

/// The parameters and the clock; the state is the caller's.
pub(crate) struct BareCas {
    clock: quanta::Clock,
    start: u64,
    interval: u64,
    capacity: u64,
}

impl BareCas {
    /// Creates a bucket with one permit per `interval` nanoseconds, and a burst of `burst`.
    pub(crate) fn new(interval: u64, burst: u64) -> Self {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        Self { clock, start, interval, capacity: interval * burst }
    }

    /// Takes one permit from `full_at`, without waiting.
    #[inline]
    pub(crate) fn check(&self, full_at: &AtomicU64) -> bool {
        let now = self.clock.delta_as_nanos(self.start, self.clock.raw());
        let mut current = full_at.load(Ordering::Relaxed);
        loop {
            let next = current.max(now) + self.interval;
            if next > now + self.capacity {
                return false;
            }
            match full_at.compare_exchange_weak(current, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => current = other,
            }
        }
    }
}
