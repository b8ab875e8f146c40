//! Shared helpers of the pacing tests.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses some of it, and one that can't go on should stop")]

use diana::{Limiter, Quota, TokioClock};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn quota(rate: u64, burst: u64) -> Quota {
    Quota::per_second(rate).unwrap().with_burst(burst).unwrap()
}

/// A token bucket on tokio's time.
pub(crate) fn limiter(rate: u64, burst: u64) -> Arc<Limiter> {
    Arc::new(Limiter::new(quota(rate, burst)).with_clock(TokioClock::new()))
}

/// Consecutive bytes, so that a lost or reordered one is detected.
pub(crate) fn bytes(count: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(count).collect()
}
