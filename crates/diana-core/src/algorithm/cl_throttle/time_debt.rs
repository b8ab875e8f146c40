//! A debt in time: the state of a key that `CL.THROTTLE` counts.

use super::ClThrottle;
use crate::{Algorithm, Answer, Cost, MAX_PERMITS, MaxWait, Outcome, Receipt, Refund, Status, Timestamp, WaitMode};
use std::time::Duration;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The algorithm of limits whose parameters come with each call, [`ClThrottle`]: a debt in time, which time pays off.
///
/// As an [`Algorithm`] it has no limit of its own: a permit is a nanosecond, and a request that is not a `ClThrottle`
/// call only adds to the debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeDebt;

/// The state of a key of a [`TimeDebt`]: until when it is paid for, and when it expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeDebtState {
    /// The time in nanoseconds.
    paid_until: u64,
    /// The last millisecond of the key: like Redis, this truncates the present and the debt to whole milliseconds, and
    /// so forgets a debt of less than one.
    expires: u64,
}

impl TimeDebtState {
    /// Returns the debt at `now`.
    pub fn debt(&self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.nanos(now))
    }

    #[inline]
    fn nanos(&self, now: Timestamp) -> u64 {
        if now.as_nanos() / NANOS_PER_MILLI > self.expires { 0 } else { self.paid_until.saturating_sub(now.as_nanos()) }
    }

    #[inline]
    fn set(&mut self, debt: u64, now: Timestamp) {
        let now = now.as_nanos();
        self.paid_until = now.saturating_add(debt);
        self.expires = now / NANOS_PER_MILLI + debt / NANOS_PER_MILLI;
    }

    /// Charges `call` at `now`, unless it is limited.
    #[inline]
    pub fn cl_throttle(&mut self, call: &ClThrottle, now: Timestamp) -> Answer {
        let debt = self.nanos(now);
        if let Some(after) = call.debt_after(debt) {
            self.set(after, now);
        }
        call.answer_nanos(debt, now)
    }
}

impl Algorithm for TimeDebt {
    type State = TimeDebtState;

    fn fresh(&self, _now: Timestamp) -> TimeDebtState {
        TimeDebtState::default()
    }

    /// Adds `cost` nanoseconds to the debt, even over the limit.
    fn take(&self, state: &mut TimeDebtState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
        self.charge(state, now, cost);
        Outcome::granted(Receipt::new(cost, now))
    }

    fn status(&self, state: &TimeDebtState, now: Timestamp) -> Status {
        let debt = state.nanos(now);
        Status { limit: MAX_PERMITS, remaining: MAX_PERMITS.saturating_sub(debt), reset: Duration::from_nanos(debt) }
    }

    fn charge(&self, state: &mut TimeDebtState, now: Timestamp, cost: Cost) {
        let expires = state.expires;
        state.set(state.nanos(now).saturating_add(cost.get()), now);
        // A charge at an earlier time must not truncate the debt to an earlier millisecond.
        state.expires = state.expires.max(expires);
    }

    fn refund(&self, state: &mut TimeDebtState, now: Timestamp, receipt: &Receipt) -> Refund {
        let debt = state.nanos(now);
        if debt == 0 {
            return Refund::Void;
        }
        state.set(debt.saturating_sub(receipt.cost().get()), now);
        Refund::Returned
    }

    #[inline]
    fn is_fresh(&self, state: &TimeDebtState, now: Timestamp) -> bool {
        state.nanos(now) == 0
    }

    #[inline]
    fn cl_throttle(&self, state: &mut TimeDebtState, now: Timestamp, call: &ClThrottle) -> Answer {
        state.cl_throttle(call, now)
    }

    fn rescale(&self, _state: &mut TimeDebtState, _old: &Self, _now: Timestamp) {}

    fn encode(&self, state: &TimeDebtState, words: &mut Vec<u64>) -> bool {
        words.extend([state.paid_until, state.expires]);
        true
    }

    fn decode(&self, words: &[u64]) -> Option<TimeDebtState> {
        let &[first, second] = words else { return None };
        Some(TimeDebtState { paid_until: first, expires: second })
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Reserve
    }
}
