//! As many at a time as keeps answers quick: a concurrency limit that finds its own number.
//!
//! # How it works
//! In flight, permits are counted as [`Concurrency`](crate::Concurrency) counts them. How many may be in flight is not said
//! by anybody: it follows from how long answers take, by `Gradient2`. Whoever serves requests tells that through
//! [`observe`](Algorithm::observe), when an answer is there; the permit comes back later, when all of it is.
//!
//! # What is forgotten
//! What was learned, ten minutes after the last answer; where that was next to nothing, ten seconds after it. Then an idle key
//! equals a fresh one, and invented keys leave nothing behind.
//!
//! # What always holds (tests/it/laws.rs, adaptive/tests.rs)
//! - Permits taken and not given back are at most the limit of their moment, but for one request that costs more than that: it
//!   goes alone.
//! - The limit lies between `min` and `max`.

mod gradient2;
#[cfg(test)]
mod tests;

use crate::quota::check_count;
use crate::{Algorithm, Cost, InvalidQuota, MaxWait, Outcome, Receipt, Refund, Retry, Status, Timestamp, Waiting};
use gradient2::Gradient2;
pub use gradient2::Gradient2State;
use std::time::Duration;

/// How long what was learned is remembered, and how long next to nothing is.
const REMEMBERED: Duration = Duration::from_secs(600);
const NEXT_TO_NOTHING_REMEMBERED: Duration = Duration::from_secs(10);

/// As many permits in flight as keeps answers quick.
///
/// ```
/// use diana_core::{Adaptive, Algorithm, Cost, MaxWait, Timestamp};
///
/// let adaptive = Adaptive::default();
/// let mut state = adaptive.fresh(Timestamp::EPOCH);
/// assert!(adaptive.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::NONE).is_granted());
/// assert_eq!(adaptive.status(&state, Timestamp::EPOCH).limit, 20); // until it knows better
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Adaptive {
    gradient: Gradient2,
}

impl Adaptive {
    /// From `min` to `max` permits, beginning with `initial`.
    pub fn new(min: u64, initial: u64, max: u64) -> Result<Self, InvalidQuota> {
        check_count("concurrent", min)?;
        check_count("concurrent", max)?;
        let max = max.max(min);
        Ok(Self { gradient: Gradient2::new(min, initial.clamp(min, max), max) })
    }

    fn forgets(&self, state: &AdaptiveState, now: Timestamp) -> bool {
        let remembered = if state.gradient.has_learned() { REMEMBERED } else { NEXT_TO_NOTHING_REMEMBERED };
        state.permits == 0 && (state.seen == Timestamp::EPOCH || now.since(state.seen) > remembered)
    }
}

impl Default for Adaptive {
    /// From 1 to 1,000 permits, beginning with 20.
    fn default() -> Self {
        Self { gradient: Gradient2::new(1, 20, 1_000) }
    }
}

/// How one answer came out, for [`Algorithm::observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What the request was granted.
    pub receipt: Receipt,
    /// How long it took.
    pub latency: Duration,
    /// Whether it was an answer at all.
    pub kind: SampleKind,
}

/// Whether an answer was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// It was, and its latency tells something.
    ResponseClass,
    /// There was none, or one that tells of trouble; the latency tells nothing.
    Dropped,
}

impl Algorithm for Adaptive {
    type State = AdaptiveState;

    fn fresh(&self, _now: Timestamp) -> AdaptiveState {
        AdaptiveState { permits: 0, seen: Timestamp::EPOCH, gradient: self.gradient.fresh() }
    }

    fn take(&self, state: &mut AdaptiveState, now: Timestamp, cost: Cost, _patience: MaxWait) -> Outcome {
        if cost.get() > self.gradient.max() {
            return Outcome::never();
        }
        let permits = state.permits.saturating_add(cost.get());
        let limit = if self.forgets(state, now) { self.gradient.initial() } else { state.gradient.limit() };
        // One that costs more than the limit of the moment goes alone.
        if permits > limit && state.permits > 0 {
            return Outcome::Denied { retry: Retry::WhenReturned };
        }
        if self.forgets(state, now) {
            *state = self.fresh(now);
        }
        state.permits = permits;
        Outcome::granted(Receipt::new(cost, now).with_mark(u128::from(permits)))
    }

    fn status(&self, state: &AdaptiveState, now: Timestamp) -> Status {
        let limit = if self.forgets(state, now) { self.gradient.initial() } else { state.gradient.limit() };
        Status { limit, remaining: limit.saturating_sub(state.permits), reset: Duration::ZERO }
    }

    /// Puts `cost` in flight. Nobody holds a receipt for it, so it stays until a refund of that much is made for it.
    fn charge(&self, state: &mut AdaptiveState, _now: Timestamp, cost: Cost) {
        state.permits = state.permits.saturating_add(cost.get());
    }

    fn refund(&self, state: &mut AdaptiveState, now: Timestamp, receipt: &Receipt) -> Refund {
        if state.permits == 0 {
            return Refund::Void;
        }
        state.permits = state.permits.saturating_sub(receipt.cost().get());
        if self.forgets(state, now) {
            *state = self.fresh(now);
        }
        Refund::Returned
    }

    fn is_fresh(&self, state: &AdaptiveState, now: Timestamp) -> bool {
        self.forgets(state, now)
    }

    /// What is in flight comes back to the new limits.
    fn rescale(&self, state: &mut AdaptiveState, old: &Self, _now: Timestamp) {
        if self != old {
            state.gradient = self.gradient.fresh();
        }
    }

    fn waiting(&self) -> Waiting {
        Waiting::Queues
    }

    /// Nothing: what another kind of limit counted is not in flight, and nobody would ever give it back.
    fn occupied(&self, _used: u64, now: Timestamp) -> AdaptiveState {
        self.fresh(now)
    }

    fn observe(&self, state: &mut AdaptiveState, now: Timestamp, sample: &Sample) {
        state.seen = state.seen.max(now);
        self.gradient.learn(&mut state.gradient, now, sample);
    }
}

/// The state of an [`Adaptive`]: the permits in flight, and what was learned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdaptiveState {
    permits: u64,
    /// When it last learned something.
    seen: Timestamp,
    gradient: Gradient2State,
}

impl AdaptiveState {
    /// The permits in flight.
    pub fn permits(&self) -> u64 {
        self.permits
    }
}
