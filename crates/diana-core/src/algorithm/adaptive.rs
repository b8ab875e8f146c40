//! Adaptive concurrency: a limit of requests in flight that follows the latency.
//!
//! # How it works
//! Permits in flight are counted as in [`Concurrency`](crate::Concurrency). The limit is not configured: `Gradient2`
//! computes it from the latency of responses. The server reports a response through [`observe`](Algorithm::observe)
//! once it has started; the permit is released later, when the response is complete.
//!
//! # What is dropped
//! The learned limit, ten minutes after the last response; if little was learned, ten seconds after it. Then an idle
//! key equals a fresh one, and invented keys leave no state.
//!
//! # What always holds (tests/it/laws.rs, adaptive/tests.rs)
//! - Permits in use are at most the limit at the time of the grant, except for a request that costs more than that: it
//!   runs alone.
//! - The limit is between `min` and `max`.

mod gradient2;
#[cfg(test)]
mod tests;

use crate::quota::check_count;
use crate::{
    Algorithm, Cost, InvalidQuota, MaxWait, Outcome, Properties, Receipt, Refund, Restores, Retry, Status, Timestamp,
    WaitMode,
};
use gradient2::Gradient2;
pub use gradient2::Gradient2State;
use std::time::Duration;

/// How long the learned limit is kept, and how long if little was learned.
const LEARNED_TTL: Duration = Duration::from_secs(600);
const UNLEARNED_TTL: Duration = Duration::from_secs(10);

/// An adaptive number of permits in flight that keeps the latency low.
///
/// ```
/// use diana_core::{Adaptive, Algorithm, Cost, MaxWait, Timestamp};
///
/// let adaptive = Adaptive::default();
/// let mut state = adaptive.fresh(Timestamp::EPOCH);
/// assert!(adaptive.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::NONE).is_granted());
/// assert_eq!(adaptive.status(&state, Timestamp::EPOCH).limit, 20); // until it has learned
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Adaptive {
    gradient: Gradient2,
}

impl Adaptive {
    /// Creates a limit from `min` to `max` permits, initially `initial`.
    pub fn new(min: u64, initial: u64, max: u64) -> Result<Self, InvalidQuota> {
        check_count("concurrent", min)?;
        check_count("concurrent", max)?;
        let max = max.max(min);
        Ok(Self { gradient: Gradient2::new(min, initial.clamp(min, max), max) })
    }

    fn is_expired(&self, state: &AdaptiveState, now: Timestamp) -> bool {
        let ttl = if state.gradient.has_learned() { LEARNED_TTL } else { UNLEARNED_TTL };
        state.permits == 0 && (state.last_sample == Timestamp::EPOCH || now.since(state.last_sample) > ttl)
    }
}

impl Default for Adaptive {
    /// Creates a limit of 1 to 1,000 permits, initially 20.
    fn default() -> Self {
        Self { gradient: Gradient2::new(1, 20, 1_000) }
    }
}

/// The result of one response, for [`Algorithm::observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The receipt of the request.
    pub receipt: Receipt,
    /// The latency of the response.
    pub latency: Duration,
    /// Whether the response was successful.
    pub kind: SampleKind,
}

/// Whether a response was successful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SampleKind {
    /// A response: its latency is used.
    Answered,
    /// No response, or an error: its latency is ignored.
    Dropped,
}

impl Algorithm for Adaptive {
    type State = AdaptiveState;

    fn properties(&self) -> Properties<'_> {
        let restores = Restores::WhenReleased { limit: self.gradient.initial() };
        Properties { restores, learns: true, ..Properties::default() }
    }

    fn fresh(&self, _now: Timestamp) -> AdaptiveState {
        AdaptiveState { permits: 0, last_sample: Timestamp::EPOCH, gradient: self.gradient.fresh() }
    }

    fn take(&self, state: &mut AdaptiveState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
        if cost.get() > self.gradient.max() {
            return Outcome::never();
        }
        let permits = state.permits.saturating_add(cost.get());
        let limit = if self.is_expired(state, now) { self.gradient.initial() } else { state.gradient.limit() };
        // A request that costs more than the current limit runs alone.
        if permits > limit && state.permits > 0 {
            return Outcome::Denied { retry: Retry::WhenReleased };
        }
        if self.is_expired(state, now) {
            *state = self.fresh(now);
        }
        state.permits = permits;
        Outcome::granted(Receipt::new(cost, now).with_mark(u128::from(permits)))
    }

    fn status(&self, state: &AdaptiveState, now: Timestamp) -> Status {
        let limit = if self.is_expired(state, now) { self.gradient.initial() } else { state.gradient.limit() };
        Status { limit, remaining: limit.saturating_sub(state.permits), reset: Duration::ZERO }
    }

    /// Puts `cost` in flight. There is no receipt for it, so it stays until a refund of the same cost.
    fn charge(&self, state: &mut AdaptiveState, _now: Timestamp, cost: Cost) {
        state.permits = state.permits.saturating_add(cost.get());
    }

    fn refund(&self, state: &mut AdaptiveState, now: Timestamp, receipt: &Receipt) -> Refund {
        if state.permits == 0 {
            return Refund::Void;
        }
        state.permits = state.permits.saturating_sub(receipt.cost().get());
        if self.is_expired(state, now) {
            *state = self.fresh(now);
        }
        Refund::Returned
    }

    fn is_fresh(&self, state: &AdaptiveState, now: Timestamp) -> bool {
        self.is_expired(state, now)
    }

    /// Permits in flight are released to the new limits.
    fn rescale(&self, state: &mut AdaptiveState, old: &Self, _now: Timestamp) {
        if self != old {
            state.gradient = self.gradient.fresh();
        }
    }

    /// The requests that hold permits end with the process.
    fn outlives_process(&self) -> bool {
        false
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Queue
    }

    /// Returns an unused state: permits counted by another kind of limit are not in flight, and would never be released.
    fn occupied(&self, _used: u64, now: Timestamp) -> AdaptiveState {
        self.fresh(now)
    }

    fn observe(&self, state: &mut AdaptiveState, now: Timestamp, sample: &Sample) {
        state.last_sample = state.last_sample.max(now);
        self.gradient.learn(&mut state.gradient, now, sample);
    }
}

/// The state of an [`Adaptive`]: the permits in flight, and the learned limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdaptiveState {
    permits: u64,
    /// When it last learned from a response.
    last_sample: Timestamp,
    gradient: Gradient2State,
}

impl AdaptiveState {
    /// Returns the permits in flight.
    pub fn permits(&self) -> u64 {
        self.permits
    }
}
