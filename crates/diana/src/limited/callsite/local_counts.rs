//! The local counts of one attribute.

use super::Key;
use super::attribute_options::{AttributeAlgorithm, AttributeOptions, Keys};
use crate::limited::Cause;
use diana_core::{AcquireError, Answer, Clock, Grant, KeyedLimiter, Limiter, TableOptions};
use std::time::Duration;

/// The counts of one attribute: one for all calls, or one for each key.
#[derive(Debug)]
pub(in crate::limited) enum Limit {
    One(Limiter),
    Many(KeyedLimiter<Key<'static>>),
}

impl Limit {
    pub(super) fn new(attribute: &AttributeOptions, options: TableOptions) -> Result<Self, Cause> {
        Ok(match (attribute.keys, attribute.algorithm()?) {
            (Keys::One, AttributeAlgorithm::Rate(smooth)) => Self::One(Limiter::with_algorithm(smooth)),
            (Keys::One, AttributeAlgorithm::Count(window)) => Self::One(Limiter::with_algorithm(window)),
            (Keys::Many, AttributeAlgorithm::Rate(smooth)) => Self::Many(KeyedLimiter::with_options(smooth, options)),
            (Keys::Many, AttributeAlgorithm::Count(window)) => Self::Many(KeyedLimiter::with_options(window, options)),
        })
    }

    /// Returns the same limit, unused, with another clock.
    pub(in crate::limited) fn with_clock(self, clock: impl Clock) -> Self {
        match self {
            Self::One(limiter) => Self::One(limiter.with_clock(clock)),
            Self::Many(limiter) => Self::Many(limiter.with_clock(clock)),
        }
    }

    #[inline]
    pub(super) fn check(&self, key: &Key<'_>) -> Answer {
        match self {
            Self::One(limiter) => limiter.check(),
            Self::Many(limiter) => limiter.check(key),
        }
    }

    pub(super) fn blocking_acquire(&self, key: &Key<'_>, timeout: Duration) -> Result<Grant, AcquireError> {
        match self {
            Self::One(limiter) => limiter.blocking_acquire_timeout(1, timeout),
            Self::Many(limiter) => limiter.blocking_acquire_timeout(key, 1, timeout),
        }
    }

    pub(super) async fn acquire(&self, key: &Key<'_>, timeout: Duration) -> Result<Grant, AcquireError> {
        match self {
            Self::One(limiter) => limiter.acquire_timeout(1, timeout).await,
            Self::Many(limiter) => limiter.acquire_timeout(key, 1, timeout).await,
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
