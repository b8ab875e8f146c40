//! How late somebody is for its turns, so that nothing of the rate is lost by it.
//!
//! # How it works
//! A timer has a grain (tokio's is a millisecond), and a machine has other work. With a burst of 1, what comes back between a
//! turn and the late wake-up is lost, and 10,000/s would become 2,000/s. So whoever was late asks for the next turn as of the
//! moment at which it would have asked, had it been in time:
//!
//! ```text
//!   turns   ─┼──────┼──────┼──────┼──────┼──────▶ time     as the limit grants them
//!   passed  ─┼──────────────▪▪▪───▪──────▪──────▶          woken late: two turns are past, and pass at once
//! ```
//!
//! The turns keep to the limit whoever is late. What passes is behind them by [`MOST`] at most, so in every span `t` at most
//! `burst + rate × (t + MOST)` pass.

use diana_core::Timestamp;
use std::time::Duration;

/// What is later than this is lost: a flow that stood still for a second must not make up for it in one gush.
///
/// A timer is late by a millisecond or two, a thread on a crowded machine by tens of them. Who wants to make up for more
/// says so by a burst.
pub(super) const MOST: Duration = Duration::from_millis(50);

/// How late the last turn was used.
#[derive(Debug, Default)]
pub(super) struct Late {
    by: Duration,
    /// Since when there is nothing to pass.
    idle: Option<Timestamp>,
}

impl Late {
    /// Whether the last turn was used later than it came.
    pub(super) fn is_late(&self) -> bool {
        !self.by.is_zero()
    }

    /// When somebody who asks at `now` would have asked, had it not been late.
    pub(super) fn since(&mut self, now: Timestamp) -> Timestamp {
        // What was not there could not have passed earlier. (A producer that is woken by what has passed is soon back.)
        if self.idle.take().is_some_and(|from| now.since(from) > MOST) {
            self.by = Duration::ZERO;
        }
        let by = u64::try_from(self.by.as_nanos()).unwrap_or(u64::MAX);
        Timestamp::from_nanos(now.as_nanos().saturating_sub(by))
    }

    /// A turn that came at `turn` is used at `now`.
    pub(super) fn came(&mut self, turn: Timestamp, now: Timestamp) {
        self.by = now.since(turn).min(MOST);
    }

    /// At `now` there is nothing to pass.
    pub(super) fn idles(&mut self, now: Timestamp) {
        self.idle.get_or_insert(now);
    }
}
