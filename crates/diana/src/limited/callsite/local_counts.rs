//! The local counts of one attribute.

use super::CallKey;
use super::attribute_options::{AttributeAlgorithm, AttributeOptions, Keys};
use crate::limited::Cause;
use diana_core::{AcquireError, Algorithm, Answer, Clock, Grant, InvalidCost, KeyedLimiter, Limiter, TableOptions};
use std::time::Duration;

/// The counts of one attribute: one for all calls, or one for each key.
#[derive(Debug)]
pub(in crate::limited) enum Limit {
    One(Limiter),
    Many(KeyedLimiter<CallKey<'static>>),
}

impl Limit {
    pub(super) fn new(attribute: &AttributeOptions, options: TableOptions) -> Result<Self, Cause> {
        Ok(match attribute.algorithm()? {
            AttributeAlgorithm::Rate(bucket) => Self::with_algorithm(attribute.keys, bucket, options),
            AttributeAlgorithm::Smooth(smooth) => Self::with_algorithm(attribute.keys, smooth, options),
            AttributeAlgorithm::Count(window) => Self::with_algorithm(attribute.keys, window, options),
        })
    }

    fn with_algorithm(keys: Keys, algorithm: impl Algorithm, options: TableOptions) -> Self {
        match keys {
            Keys::One => Self::One(Limiter::with_algorithm(algorithm)),
            Keys::Many => Self::Many(KeyedLimiter::with_options(algorithm, options)),
        }
    }

    /// Returns the same limit, unused, with another clock.
    pub(in crate::limited) fn with_clock(self, clock: impl Clock) -> Self {
        match self {
            Self::One(limiter) => Self::One(limiter.with_clock(clock)),
            Self::Many(limiter) => Self::Many(limiter.with_clock(clock)),
        }
    }

    #[inline]
    pub(super) fn check(&self, key: &CallKey<'_>, cost: u64) -> Result<Answer, InvalidCost> {
        match (self, cost) {
            // Almost all attributes; one permit needs no check of the number.
            (Self::One(limiter), 1) => Ok(limiter.check()),
            (Self::Many(limiter), 1) => Ok(limiter.check(key)),
            (Self::One(limiter), cost) => limiter.check_n(cost),
            (Self::Many(limiter), cost) => limiter.check_n(key, cost),
        }
    }

    pub(super) fn blocking_acquire(
        &self,
        key: &CallKey<'_>,
        cost: u64,
        timeout: Duration,
    ) -> Result<Grant, AcquireError> {
        match self {
            Self::One(limiter) => limiter.blocking_acquire_timeout(cost, timeout),
            Self::Many(limiter) => limiter.blocking_acquire_timeout(key, cost, timeout),
        }
    }

    pub(super) async fn acquire(&self, key: &CallKey<'_>, cost: u64, timeout: Duration) -> Result<Grant, AcquireError> {
        match self {
            Self::One(limiter) => limiter.acquire_timeout(cost, timeout).await,
            Self::Many(limiter) => limiter.acquire_timeout(key, cost, timeout).await,
        }
    }

    /// Returns the memory used by the keys, in bytes.
    pub(in crate::limited) fn memory_used(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Many(limiter) => limiter.memory_used(),
        }
    }

    /// Drops the keys that equal a new one.
    pub(in crate::limited) fn reclaim(&self) {
        if let Self::Many(limiter) = self {
            limiter.reclaim();
        }
    }
}
