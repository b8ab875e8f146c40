//! Strikes: at most `limit` in a period, and a pause for a key that uses them all.
//!
//! # How it works
//! The first request starts a window. The request that fills it moves its end: nothing more is granted until the pause
//! is over.
//!
//! ```text
//!  opened           last strike                          ends
//!  ───┼──x────x────────x─────────────────────────────────┼───▶ time
//!     │◀──── period ─────────▶│                          │
//!     │                │◀──────────── pause ────────────▶│
//! ```
//!
//! # What always holds
//! The contract of `Algorithm`: a denial changes nothing, and its retry time is exact.

use diana::algorithm::{Algorithm, WaitMode};
use diana::{Cost, MaxWait, Outcome, Quota, Receipt, Refund, Retry, Status, Timestamp};
use std::time::Duration;

/// At most `limit` in `period`; after the last of them nothing for `pause`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strikes {
    limit: u64,
    period: Duration,
    pause: Duration,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StrikesState {
    opened: Timestamp,
    ends: Timestamp,
    count: u64,
}

impl Strikes {
    pub(crate) fn new(limit: u64, period: Duration, pause: Duration) -> Self {
        Self { limit, period, pause }
    }

    /// Returns the window at `now`: that of the state, or a new one.
    fn current(&self, state: &StrikesState, now: Timestamp) -> StrikesState {
        match state.is_over(now) {
            true => StrikesState { opened: now, ends: now + self.period, count: 0 },
            false => *state,
        }
    }

    /// Returns the window with `cost` added.
    fn with(&self, window: StrikesState, now: Timestamp, cost: Cost) -> StrikesState {
        let count = window.count.saturating_add(cost.get());
        let ends = if count >= self.limit { window.ends.max(now + self.pause) } else { window.ends };
        StrikesState { ends, count, ..window }
    }
}

impl StrikesState {
    fn is_over(&self, now: Timestamp) -> bool {
        // A window that ends at the maximum time never ends; otherwise each request at that instant would start a new
        // one.
        self.count == 0 || (now >= self.ends && self.ends < Timestamp::MAX)
    }
}

impl Algorithm for Strikes {
    type State = StrikesState;

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        Some(format!("at most {} in {:?}, then a pause of {:?}", self.limit, self.period, self.pause))
    }

    fn fresh(&self, _now: Timestamp) -> StrikesState {
        StrikesState::default()
    }

    fn take(&self, state: &mut StrikesState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
        let window = self.current(state, now);
        if cost.get() > self.limit {
            return Outcome::never();
        }
        if window.count.saturating_add(cost.get()) > self.limit {
            return match window.ends {
                Timestamp::MAX => Outcome::never(),
                ends => Outcome::Denied { retry: Retry::After(ends.since(now)) },
            };
        }
        *state = self.with(window, now, cost);
        Outcome::granted(Receipt::new(cost, now).with_mark(u128::from(window.opened.as_nanos())))
    }

    fn status(&self, state: &StrikesState, now: Timestamp) -> Status {
        let (count, reset) =
            if state.is_over(now) { (0, Duration::ZERO) } else { (state.count, state.ends.since(now)) };
        Status { limit: self.limit, remaining: self.limit.saturating_sub(count), reset }
    }

    fn charge(&self, state: &mut StrikesState, now: Timestamp, cost: Cost) {
        *state = self.with(self.current(state, now), now, cost);
    }

    /// Refunding a strike ends the pause that it started.
    fn refund(&self, state: &mut StrikesState, now: Timestamp, receipt: &Receipt) -> Refund {
        if state.is_over(now) || u128::from(state.opened.as_nanos()) != receipt.mark() {
            return Refund::Void;
        }
        let count = state.count.saturating_sub(receipt.cost().get());
        let ends = if count < self.limit { state.opened + self.period } else { state.ends };
        *state = if count == 0 { StrikesState::default() } else { StrikesState { ends, count, ..*state } };
        Refund::Returned
    }

    fn is_fresh(&self, state: &StrikesState, now: Timestamp) -> bool {
        state.is_over(now)
    }

    /// A pause that has started keeps its announced end.
    fn rescale(&self, state: &mut StrikesState, old: &Self, now: Timestamp) {
        if state.is_over(now) {
            *state = StrikesState::default();
        } else if state.count < old.limit {
            let window = StrikesState { ends: state.opened + self.period, ..*state };
            *state = if state.count < self.limit { window } else { StrikesState { ends: now + self.pause, ..window } };
        } else {
            state.count = self.limit;
        }
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Queue
    }
}
