//! The options of `#[rate_limit]` and `#[count_limit]`.

use super::{By, CallKey};
use crate::limited::{Cause, Limited};
use diana_core::{AcquireError, FixedWindow, InitialPermits, Quota, SmoothBursty, TokenBucket, WindowStart};
use std::time::Duration;

/// The options of `#[rate_limit]` or `#[count_limit]`.
#[derive(Clone, Copy, Debug)]
pub struct AttributeOptions {
    /// The prefix and the function's path.
    pub name: &'static str,
    /// The length of the prefix.
    pub prefix: usize,
    /// The name of the `Limits` instance, or `None` for the default.
    pub instance: Option<&'static str>,
    /// The prefix of keys.
    pub by: By,
    /// Whether there is more than one key.
    pub keys: Keys,
    /// How much is granted.
    pub limit: LimitSpec,
    /// How long a call may wait.
    pub timeout: Duration,
    /// The minimum time that a key is kept in a shared store after a call.
    pub expire: Option<Duration>,
}

/// How many keys a function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One for all calls.
    One,
    /// Many.
    Many,
}

/// How much an attribute grants.
#[derive(Clone, Copy, Debug)]
pub enum LimitSpec {
    /// `#[rate_limit]`.
    Rate {
        /// The permits that are refilled in each period.
        permits: u64,
        /// The period.
        period: Duration,
        /// The permits that are stored at most.
        capacity: u64,
        /// The permits that a call takes: several if the capacity has a fraction of a call.
        cost: u64,
    },
    /// `#[rate_limit(algorithm = smooth_bursty)]`.
    Smooth {
        /// Permits per second.
        rate: f64,
        /// The time whose permits are saved at most.
        saved: Duration,
    },
    /// `#[count_limit]`.
    Count {
        /// The number of calls per period.
        limit: u64,
        /// The period, which starts with the first call.
        period: Duration,
    },
}

/// The algorithm of an attribute.
pub(super) enum AttributeAlgorithm {
    Rate(TokenBucket),
    Smooth(SmoothBursty),
    Count(FixedWindow),
}

impl AttributeOptions {
    pub(super) fn algorithm(&self) -> Result<AttributeAlgorithm, Cause> {
        Ok(match self.limit {
            LimitSpec::Rate { permits, period, capacity, .. } => {
                let quota = Quota::new(permits, period).and_then(|quota| quota.with_burst(capacity));
                AttributeAlgorithm::Rate(TokenBucket::new(quota.map_err(invalid_limit)?))
            }
            LimitSpec::Smooth { rate, saved } => {
                let smooth = SmoothBursty::new(rate).and_then(|smooth| smooth.with_saved_seconds(saved.as_secs_f64()));
                // An idle key must equal a new one, or it could never be evicted.
                AttributeAlgorithm::Smooth(smooth.map_err(invalid_limit)?.with_initial_permits(InitialPermits::Full))
            }
            LimitSpec::Count { limit, period } => {
                let quota = Quota::new(limit, period).map_err(invalid_limit)?;
                AttributeAlgorithm::Count(FixedWindow::new(quota).with_window_start(WindowStart::FirstRequest))
            }
        })
    }

    /// Returns the permits that a call takes.
    #[inline]
    pub(super) fn cost(&self) -> u64 {
        match self.limit {
            LimitSpec::Rate { cost, .. } => cost,
            LimitSpec::Smooth { .. } | LimitSpec::Count { .. } => 1,
        }
    }

    pub(super) fn limited(&self, key: &CallKey<'_>, cause: Cause) -> Limited {
        Limited::new(self.name, self.prefix, key.to_text(self.by), cause)
            .with_unknown_caller(key.is_unknown_caller(self.by))
    }
}

pub(super) fn invalid_limit(error: impl std::error::Error) -> Cause {
    Cause::InvalidLimit { problem: error.to_string().into() }
}

/// Returns why a limiter did not grant the call.
pub(super) fn denial_cause(error: AcquireError) -> Cause {
    match error.retry() {
        Some(retry) => Cause::Exhausted { retry },
        None => invalid_limit(error),
    }
}
