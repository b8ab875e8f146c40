//! Tracks how late grants are used, so that late wake-ups do not reduce the rate.
//!
//! # How it works
//! A timer has a resolution (tokio's is a millisecond), and a machine has other work. With a burst of 1, permits
//! between a grant and a late wake-up would be lost, and 10,000/s would become 2,000/s. So a user that was late
//! requests its next permit as of the instant at which it would have done so on time:
//!
//! ```text
//!   grants  ─┼──────┼──────┼──────┼──────┼──────▶ time     as the limit grants them
//!   passed  ─┼──────────────▪▪▪───▪──────▪──────▶          woken late: two grants are past, and pass at once
//! ```
//!
//! Grants never exceed the limit. Items pass at most [`MAX_LAG`] later, so in every span `t` at most
//! `burst + rate × (t + MAX_LAG)` pass.

use diana_core::Timestamp;
use std::time::Duration;

/// A longer lag is not made up for: a flow that stalled for a second must not continue with a spike.
///
/// A timer is late by a millisecond or two, a thread on a busy machine by tens of them. To make up for more, configure a burst.
pub(super) const MAX_LAG: Duration = Duration::from_millis(50);

/// How late the last grant was used.
#[derive(Debug, Default)]
pub(super) struct Lag {
    by: Duration,
    /// Since when there is nothing to pass.
    idle: Option<Timestamp>,
}

impl Lag {
    /// Returns `true` if the last grant was used late.
    pub(super) fn is_late(&self) -> bool {
        !self.by.is_zero()
    }

    /// Returns when a request at `now` would have been made without the lag.
    pub(super) fn since(&mut self, now: Timestamp) -> Timestamp {
        // Items that did not exist could not have passed earlier. (A producer that is woken by a passed item needs
        // little time.)
        if self.idle.take().is_some_and(|from| now.since(from) > MAX_LAG) {
            self.by = Duration::ZERO;
        }
        let by = u64::try_from(self.by.as_nanos()).unwrap_or(u64::MAX);
        Timestamp::from_nanos(now.as_nanos().saturating_sub(by))
    }

    /// Records that a grant of `granted_at` is used at `now`.
    pub(super) fn record(&mut self, granted_at: Timestamp, now: Timestamp) {
        self.by = now.since(granted_at).min(MAX_LAG);
    }

    /// Records that at `now` there is nothing to pass.
    pub(super) fn record_idle(&mut self, now: Timestamp) {
        self.idle.get_or_insert(now);
    }
}
