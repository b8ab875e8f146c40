//! What every algorithm is: parameters, and a function from state to state.
//!
//! No clock inside, no lock, no allocation on the way (the sliding ones aside). So the same function serves the single
//! limiter, the table of keys, the simulator and the tests, and is the specification that other stores are tested
//! against: the same asks at the same times must get the same answers everywhere.

use crate::{Answer, Cost, MaxWait, Outcome, Receipt, Refund, Sample, Status, Timestamp};
use std::fmt::Debug;

#[cfg(feature = "calendar")]
mod calendar;
mod concurrency;
pub(crate) mod erased;
mod fixed_window;
mod gcra;
mod guava;
mod invalid_window;
mod leaky_bucket;
mod min_interval;
mod refilling_bucket;
mod sliding_log;
mod sliding_window;
mod smooth_bursty;
mod smooth_warming_up;
pub(crate) mod token_bucket;
mod total;

#[cfg(feature = "calendar")]
pub use calendar::Calendar;
pub use concurrency::{Concurrency, ConcurrencyState};
pub use fixed_window::{FixedWindow, FixedWindowState, WindowStart};
pub use guava::{InvalidSmooth, SmoothPrice, SmoothRate, SmoothState};
pub use invalid_window::InvalidWindow;
pub use leaky_bucket::{LeakyBucket, LeakyBucketState};
pub use min_interval::{IntervalState, MinInterval};
pub use refilling_bucket::{RefillingBucket, RefillingState};
pub use sliding_log::{SlidingLog, SlidingLogState};
pub use sliding_window::{Edge, MAX_BUCKETS, SlidingWindow, SlidingWindowState};
pub use smooth_bursty::{InitialPermits, SmoothBursty};
pub use smooth_warming_up::SmoothWarmingUp;
pub use token_bucket::{BucketState, TokenBucket};
pub use total::{Total, TotalState};

/// One way to limit, with its parameters; the state of each key is kept outside.
///
/// # What always holds
/// 1. A denial leaves the state as it was.
/// 2. [`peek`](Self::peek) answers what [`take`](Self::take) would, and changes nothing.
/// 3. After [`Retry::After(d)`](crate::Retry::After) the same ask is granted exactly `d` later, and not one nanosecond before.
/// 4. A `now` that lies before an earlier one gives nothing back. (Stores keep the time of a key from going back at all.)
/// 5. A state that [`is_fresh`](Self::is_fresh) answers every ask as [`fresh`](Self::fresh) does, so it may be forgotten.
/// 6. Nothing overflows or panics, whatever the time and the cost.
///
/// `tests/it/laws.rs` checks these for every algorithm here.
pub trait Algorithm: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// What is kept for each key. Its `Default` only fills unused places; [`fresh`](Self::fresh) begins a key.
    type State: Clone + Debug + Default + Send + Sync + 'static;

    /// The state of a key that is seen for the first time at `now`.
    fn fresh(&self, now: Timestamp) -> Self::State;

    /// Takes `cost` from `state` at `now`, waiting at most `max_wait`; leaves `state` untouched when it refuses.
    fn take(&self, state: &mut Self::State, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome;

    /// What [`take`](Self::take) would answer, without the effect.
    fn peek(&self, state: &Self::State, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
        self.take(&mut state.clone(), now, cost, max_wait)
    }

    /// Where the key stands at `now`.
    fn status(&self, state: &Self::State, now: Timestamp) -> Status;

    /// Takes `cost` without asking, even beyond the capacity: corrects what a request turned out to cost.
    fn charge(&self, state: &mut Self::State, now: Timestamp, cost: Cost);

    /// Gives back what `receipt` says was taken, where time has not given it back already.
    fn refund(&self, state: &mut Self::State, now: Timestamp, receipt: &Receipt) -> Refund;

    /// Gives back what of `receipt` is above `used`, as [`refund`](Self::refund) gives back all of it.
    ///
    /// Right as it is for an algorithm that takes permits one like the other. One whose grants are more or less than the
    /// sum of their permits says here what a part is worth.
    fn refund_rest(&self, state: &mut Self::State, now: Timestamp, receipt: &Receipt, used: u64) -> Refund {
        match Cost::new(receipt.cost().get().saturating_sub(used)) {
            Ok(rest) => self.refund(state, now, &Receipt::new(rest, receipt.at()).with_mark(receipt.mark())),
            // All of it was used.
            Err(_) => Refund::Void,
        }
    }

    /// Whether nobody could tell this state from a fresh one, so that it may be forgotten.
    fn is_fresh(&self, state: &Self::State, now: Timestamp) -> bool;

    /// Takes over a state that was kept under `old` parameters: its use is kept, clamped to what the new ones allow.
    fn rescale(&self, state: &mut Self::State, old: &Self, now: Timestamp);

    /// Who makes a patient request wait: the algorithm, or a queue in front of it.
    fn waiting(&self) -> Waiting;

    /// Bytes that `state` keeps outside of itself, for the memory ceiling. A function of the state alone: it must not
    /// depend on the parameters.
    fn heap_bytes(&self, _state: &Self::State) -> usize {
        0
    }

    /// Bytes that a grant at `now` would add to what `state` keeps outside of itself. So a store whose memory is used up can
    /// deny before the state is copied to a larger place. 0 where that is not known: then it is taken back afterwards.
    fn heap_growth(&self, _state: &Self::State, _now: Timestamp) -> usize {
        0
    }

    /// [`take`](Self::take), and where the key stands after it.
    #[inline(always)]
    fn answer(&self, state: &mut Self::State, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let outcome = self.take(state, now, cost, max_wait);
        Answer { outcome, status: self.status(state, now) }
    }

    /// Hears how one answer came out. Only a limit that [adapts](crate::Adaptive) learns from it.
    fn observe(&self, state: &mut Self::State, now: Timestamp, sample: &Sample) {
        let _ = (state, now, sample);
    }

    /// Whether a key without a state, asked at `now`, has to be carried over a change of parameters at `changed` as if it
    /// had one. Only Guava's limiters tell such a key from a fresh one, and only within the microsecond of the change.
    #[doc(hidden)]
    fn carries_fresh(&self, changed: Timestamp, now: Timestamp) -> bool {
        let _ = (changed, now);
        false
    }

    /// The same algorithm with states of one word, where it has such a form; only the token bucket has.
    #[doc(hidden)]
    fn one_word(&self) -> Option<Packed> {
        None
    }

    /// A state of which `used` permits are in use at `now`: how a key comes over from another kind of algorithm.
    fn occupied(&self, used: u64, now: Timestamp) -> Self::State {
        let mut state = self.fresh(now);
        if let Ok(cost) = Cost::new(used.min(self.status(&state, now).limit)) {
            self.charge(&mut state, now, cost);
        }
        state
    }
}

/// An algorithm whose state is one word, for the atomic limiter and the smallest table entry.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Packed(pub(crate) token_bucket::OneWordBucket);

/// Who makes a patient request wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The algorithm knows its next free time and reserves it: order of arrival by construction.
    Reserves,
    /// It can't know, so patient requests stand in a queue and ask again, first come, first served.
    Queues,
}
