//! `algorithm: backoff`: one request, and each one after it waits twice as long: 30 s, 1 min, 2 min, up to `max`.
//!
//! For codes by text message, password resets and invitations: a second try is allowed soon, a tenth is not.
//!
//! # How it works
//! A key has the number of its requests in a row, and the time of the next one. A key that does not use it for `max` is
//! forgotten, and begins again.
//!
//! ```text
//!  1st    2nd           3rd                          4th
//!  ─┼──────┼─────────────┼────────────────────────────┼───▶ time
//!   │ 30 s │     1 min   │            2 min           │
//! ```
//!
//! # What always holds
//! The contract of `Algorithm`, which `tests/it/own_filter/laws.rs` checks with Diana's own laws.

use diana::algorithm::{Algorithm, WaitMode};
use diana::rules::{Problem, Registry};
use diana::{Cost, MaxWait, Outcome, Quota, Receipt, Refund, Retry, Status, Timestamp};
use std::time::Duration;

// docs: begin algorithm
/// One request; each one after it waits twice as long, at most `max`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// In nanoseconds; at least 1.
    first: u64,
    /// In nanoseconds; at least `first`.
    max: u64,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackoffState {
    /// The requests in a row.
    count: u64,
    /// The time of the next request, in nanoseconds.
    next: u64,
}

impl Backoff {
    /// Returns `None` if there is no wait, or if `max` is shorter than the first one.
    pub(crate) fn new(first: Duration, max: Duration) -> Option<Self> {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        (!first.is_zero() && max >= first).then(|| Self { first: nanos(first), max: nanos(max) })
    }

    /// Returns the state, or that of a new key if it is forgotten.
    fn current(&self, state: &BackoffState, now: Timestamp) -> BackoffState {
        if self.is_fresh(state, now) { BackoffState::default() } else { *state }
    }

    /// Returns the state after one more request; `None` if its wait ends after the last timestamp.
    fn after(&self, before: BackoffState, now: Timestamp) -> Option<BackoffState> {
        let factor = 1_u64.checked_shl(u32::try_from(before.count).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
        let wait = self.first.saturating_mul(factor).min(self.max);
        let next = before.next.max(now.as_nanos()).checked_add(wait)?;
        Some(BackoffState { count: before.count.saturating_add(1), next })
    }
}
// docs: end

impl Algorithm for Backoff {
    type State = BackoffState;

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        let [first, max] = [self.first, self.max].map(Duration::from_nanos);
        Some(format!("one, then waits of {first:?}, twice as long each time, up to {max:?}"))
    }

    fn fresh(&self, _now: Timestamp) -> BackoffState {
        BackoffState::default()
    }

    // docs: begin take
    /// Any cost is one request; a cost of 0 only looks.
    fn take(&self, state: &mut BackoffState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
        if cost == Cost::ZERO {
            return Outcome::granted(Receipt::new(cost, now));
        }
        let before = self.current(state, now);
        let Some(after) = self.after(before, now) else { return Outcome::never() };
        if let Some(wait @ 1..) = before.next.checked_sub(now.as_nanos()) {
            return Outcome::Denied { retry: Retry::After(Duration::from_nanos(wait)) };
        }
        // For a refund: the next time before this grant, and the one after it, which no other grant has.
        let mark = (u128::from(after.next) << 64) | u128::from(before.next);
        *state = after;
        Outcome::granted(Receipt::new(cost, now).with_mark(mark))
    }
    // docs: end

    fn status(&self, state: &BackoffState, now: Timestamp) -> Status {
        let reset = Timestamp::from_nanos(state.next).since(now);
        Status { limit: 1, remaining: u64::from(reset.is_zero()), reset }
    }

    fn charge(&self, state: &mut BackoffState, now: Timestamp, cost: Cost) {
        if cost != Cost::ZERO {
            let before = self.current(state, now);
            *state = self.after(before, now).unwrap_or(BackoffState { next: u64::MAX, ..before });
        }
    }

    fn refund(&self, state: &mut BackoffState, now: Timestamp, receipt: &Receipt) -> Refund {
        let [after, before] = [receipt.mark() >> 64, receipt.mark() & u128::from(u64::MAX)];
        if u128::from(state.next) != after || state.next <= now.as_nanos() {
            return Refund::Void;
        }
        let count = state.count.saturating_sub(1);
        let next = u64::try_from(before).unwrap_or(u64::MAX);
        *state = if count == 0 { BackoffState::default() } else { BackoffState { count, next } };
        Refund::Returned
    }

    /// A request that was used in part was used.
    fn refund_rest(&self, state: &mut BackoffState, now: Timestamp, receipt: &Receipt, used: u64) -> Refund {
        if used == 0 { self.refund(state, now, receipt) } else { Refund::Void }
    }

    /// A key that did not use its next request for `max` begins again.
    fn is_fresh(&self, state: &BackoffState, now: Timestamp) -> bool {
        state.count == 0 || state.next.checked_add(self.max).is_some_and(|end| end <= now.as_nanos())
    }

    /// A wait that has begun keeps its end; the next one follows the new parameters.
    fn rescale(&self, state: &mut BackoffState, old: &Self, now: Timestamp) {
        if old.is_fresh(state, now) {
            *state = BackoffState::default();
        }
    }

    fn encode(&self, state: &BackoffState, words: &mut Vec<u64>) -> bool {
        words.extend([state.count, state.next]);
        true
    }

    fn decode(&self, words: &[u64]) -> Option<BackoffState> {
        let &[count, next] = words else { return None };
        Some(BackoffState { count, next })
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Queue
    }
}

// docs: begin name
/// Registers `algorithm: backoff`: `limit: 1/30s` is the first wait, and `max` the longest one.
pub(crate) fn register(registry: &mut Registry) {
    registry.algorithm("backoff", &["max"], |quota, options| {
        let span = options.span();
        if quota.permits() != 1 {
            let problem = Problem::new(span, "`backoff` allows one request at a time");
            options.problem(problem.expected("write `limit: 1/30s` for a first wait of 30 seconds"));
            return None;
        }
        let Some(node) = options.node("max") else {
            let problem = Problem::new(span, "`backoff` needs a `max`");
            options.problem(problem.expected("add the longest wait, such as `max: 1h`"));
            return None;
        };
        let max = options.duration("max")?;
        let Some(backoff) = Backoff::new(quota.period(), max) else {
            let problem = Problem::new(node.span, "`max` is shorter than the first wait");
            options.problem(problem.expected(format!("expected at least {:?}", quota.period())));
            return None;
        };
        Some(backoff.into())
    });
    registry.describe("backoff", "each request in a row waits twice as long as the one before", |option| {
        let max = || serde_json::json!({"$ref": "#/$defs/duration", "description": "the longest wait"});
        (option == "max").then(max)
    });
}
// docs: end
