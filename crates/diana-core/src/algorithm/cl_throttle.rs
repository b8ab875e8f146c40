//! `CL.THROTTLE`: the arithmetic of redis-cell, whose parameters come with each call.
//!
//! # How it works
//! The generic cell rate algorithm. A key's state is a point in time, up to which its requests are paid for: its
//! *debt* is the distance to that time. A request adds its cost to the debt, and is limited if that would exceed the
//! span of the limit:
//!
//! ```text
//!  interval = period / count          one permit
//!  span     = interval × (max_burst + 1)
//!  cost     = interval × quantity
//!
//!  now                    paid until               now + span
//!  ──┼────────────────────────┼─────────────────────────┼──▶ time
//!    │◀──────── debt ────────▶│◀─ remaining × interval ▶│
//! ```
//!
//! Only the point in time is stored, so calls with different parameters on one key share a debt in time: a faster rate
//! still waits for the old debt. All values are whole nanoseconds; the interval is truncated to them, as an `f64`.
//!
//! # What redis-cell 0.5.0 does otherwise
//! Diana's answers equal those of redis-cell (`golden/cell_public.jsonl`), including the expiry of a key in whole
//! milliseconds, except where redis-cell wraps around or reports a wrong number:
//! - A negative `max_burst`, `count` or `period` is an error, and so are parameters whose span or cost exceeds 292 years.
//! - A negative quantity refunds up to the whole debt. redis-cell answers an error if it exceeds the debt, although the
//!   permits were refunded, and then never drops the key.
//! - With intervals under 1 ms `remaining` is exact; redis-cell divides whole microseconds. It never exceeds the limit.
//! - Long times are not rounded as an `f64`.

mod args;
mod time_debt;

use crate::time::saturating_nanos;
use crate::{Answer, Cost, Outcome, Receipt, Retry, Status, Timestamp};
use std::time::Duration;
pub use time_debt::{TimeDebt, TimeDebtState};

/// Intervals from this one on are divided in whole microseconds, as redis-cell does; shorter ones exactly.
const WHOLE_MICROS: u64 = 1_000_000;

/// The parameters of one `CL.THROTTLE` call: `max_burst count period [quantity]`.
///
/// ```
/// use diana_core::{ClThrottle, Limit, MemoryStore, TimeDebt, Timestamp};
///
/// // At most 16 at once, 30 in 60 s.
/// let call = ClThrottle::new(15, 30, 60, 1)?;
/// let (store, limit) = (MemoryStore::default(), Limit::new("cl.throttle", TimeDebt));
/// let answer = store.cl_throttle(&limit, b"alice", &call, Timestamp::from_secs(1));
/// assert_eq!(answer.to_integers(), [0, 16, 15, -1, 2]);
/// # Ok::<(), diana_core::ClThrottleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClThrottle {
    limit: u64,
    /// The interval in nanoseconds, like the following fields.
    interval: u64,
    span: u64,
    /// Negative for a refund.
    cost: i64,
}

/// Why a `CL.THROTTLE` call is invalid. Nothing was charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClThrottleError {
    /// Too few or too many arguments.
    #[error("Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")]
    Usage,
    /// An argument is not an integer of 64 bits.
    #[error("Couldn't parse as integer: {0}")]
    NotAnInteger(String),
    /// The count or the period is zero, or there are more than 10⁹ permits per second.
    #[error("Zero rates are not supported")]
    ZeroRate,
    /// A parameter other than the quantity is negative.
    #[error("{parameter} must not be negative: {value}")]
    Negative {
        /// The parameter.
        parameter: &'static str,
        /// Its value.
        value: i64,
    },
    /// The permits of this parameter take more than 292 years.
    #[error("{parameter} is too large for this rate: {value} permits take more than 292 years")]
    TooLong {
        /// `max_burst` or `quantity`.
        parameter: &'static str,
        /// Its value.
        value: i64,
    },
    /// The period is longer than 292 years.
    #[error("period is longer than 292 years: {0}")]
    PeriodTooLong(i64),
}

impl ClThrottle {
    /// Checks the parameters of a call. The period is in seconds; a negative quantity refunds.
    pub fn new(max_burst: i64, count: i64, period: i64, quantity: i64) -> Result<Self, ClThrottleError> {
        let unsigned =
            |parameter, value: i64| u64::try_from(value).map_err(|_| ClThrottleError::Negative { parameter, value });
        let burst = unsigned("max_burst", max_burst)?;
        unsigned("count", count)?;
        unsigned("period", period)?;
        let nanos = period.checked_mul(1_000_000_000).ok_or(ClThrottleError::PeriodTooLong(period))?;
        if count == 0 || nanos == 0 {
            return Err(ClThrottleError::ZeroRate);
        }
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as redis-cell computes it")]
        let interval = (nanos as f64 / count as f64) as i64;
        if interval == 0 {
            return Err(ClThrottleError::ZeroRate);
        }
        // Two powers of ten below the range of u64, so it can't overflow.
        let limit = burst + 1;
        let too_long = |parameter, value| ClThrottleError::TooLong { parameter, value };
        let span = i64::try_from(limit).ok().and_then(|limit| interval.checked_mul(limit));
        let span = span.ok_or_else(|| too_long("max_burst", max_burst))?;
        let cost = interval.checked_mul(quantity).ok_or_else(|| too_long("quantity", quantity))?;
        Ok(Self { limit, interval: interval.unsigned_abs(), span: span.unsigned_abs(), cost })
    }

    /// Returns the permits that can be granted at once: `max_burst + 1`.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the debt up to which requests are granted.
    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.span)
    }

    /// Returns the time that the request adds to the debt, in nanoseconds; negative for a refund.
    pub fn cost_nanos(&self) -> i64 {
        self.cost
    }

    /// Returns the debt after this call, or `None` if the call is limited.
    #[inline]
    fn debt_after(&self, debt: u64) -> Option<u64> {
        // A debt and a cost are below 2^63 each.
        let after = if self.cost < 0 {
            debt.saturating_sub(self.cost.unsigned_abs())
        } else {
            debt.saturating_add(self.cost.unsigned_abs())
        };
        (after <= self.span).then_some(after)
    }

    /// Returns the answer to this call for a key with `debt` at `now`. How a store computes the reported values if it
    /// decides by other means, such as a script.
    pub fn answer(&self, debt: Duration, now: Timestamp) -> Answer {
        self.answer_nanos(saturating_nanos(debt), now)
    }

    #[inline]
    fn answer_nanos(&self, debt: u64, now: Timestamp) -> Answer {
        let after = self.debt_after(debt);
        // A cost above the limit is never granted, so it has no retry time.
        let is_possible = self.cost < 0 || self.cost.unsigned_abs() <= self.span;
        let outcome = match after {
            Some(_) => Outcome::granted(Receipt::new(Cost::ZERO, now)),
            None if is_possible => Outcome::denied_for(debt.saturating_add_signed(self.cost).saturating_sub(self.span)),
            None => Outcome::never(),
        };
        let debt = after.unwrap_or(debt);
        let remaining = self.remaining(self.span.saturating_sub(debt));
        Answer::new(outcome, Status { limit: self.limit, remaining, reset: Duration::from_nanos(debt) })
    }

    /// Returns the permits in `free` nanoseconds of the span.
    #[inline]
    fn remaining(&self, free: u64) -> u64 {
        if self.interval < WHOLE_MICROS {
            return free / self.interval;
        }
        ((free / 1_000) / (self.interval / 1_000)).min(self.limit)
    }

    /// Returns a denial that does not depend on the debt, such as that of a store without memory or without a connection.
    pub fn denied(&self, retry_after: Duration) -> Answer {
        let outcome = Outcome::Denied { retry: Retry::After(retry_after) };
        Answer::new(outcome, Status { limit: self.limit, remaining: 0, reset: Duration::ZERO })
    }

    /// Returns the share of one of `instances` processes that count by themselves: the rate divided, the burst divided
    /// and at least 1. The cost stays that of the same number of permits.
    #[must_use]
    pub fn divided(&self, instances: u64) -> Self {
        let instances = instances.max(1);
        let limit = (self.limit / instances).max(1);
        let cost = self.cost.saturating_mul(i64::try_from(instances).unwrap_or(i64::MAX));
        let interval = self.interval.saturating_mul(instances);
        Self { limit, interval, span: interval.saturating_mul(limit), cost }
    }
}

impl Answer {
    /// Returns the five integers of redis-cell's reply to a [`ClThrottle`] call: limited, limit, remaining, retry_after,
    /// reset_after.
    ///
    /// Times are in seconds, rounded up if they have at least a millisecond more; `retry_after` is -1 if there is none.
    ///
    /// ```
    /// use diana_core::{ClThrottle, Timestamp};
    /// use std::time::Duration;
    ///
    /// let (call, now) = (ClThrottle::new(0, 1, 10, 1)?, Timestamp::EPOCH);
    /// assert_eq!(call.answer(Duration::from_micros(9_000_900), now).to_integers(), [1, 1, 0, 9, 9]);
    /// assert_eq!(call.answer(Duration::from_millis(9_001), now).to_integers(), [1, 1, 0, 10, 10]);
    /// # Ok::<(), diana_core::ClThrottleError>(())
    /// ```
    #[inline]
    pub fn to_integers(&self) -> [i64; 5] {
        let integer = |value| i64::try_from(value).unwrap_or(i64::MAX);
        let seconds = |time: Duration| integer(time.as_secs() + u64::from(time.subsec_millis() > 0));
        let Status { limit, remaining, reset } = self.status();
        let retry_after = match self.outcome {
            Outcome::Denied { retry: Retry::After(after) } => seconds(after),
            _ => -1,
        };
        [i64::from(!self.is_granted()), integer(limit), integer(remaining), retry_after, seconds(reset)]
    }
}
