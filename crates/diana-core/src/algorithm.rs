//! The interface of an algorithm: parameters, and a function from state to state.
//!
//! It has no clock, no lock, and no allocation on the hot path (except the sliding ones). So the same function serves
//! the single limiter, the table of keys, the simulator and the tests, and is the specification that other stores are
//! tested against: the same asks at the same times must get the same answers everywhere.

use crate::{Answer, Cost, MaxWait, Outcome, Quota, Receipt, Refund, Status, Timestamp};
use std::fmt::Debug;

mod adaptive;
#[cfg(feature = "calendar")]
mod calendar;
mod cl_throttle;
mod concurrency;
pub(crate) mod erased_state;
mod error;
mod fixed_window;
mod gcra;
mod guava;
mod leaky_bucket;
mod min_interval;
mod properties;
mod refilling_bucket;
mod sliding_log;
mod sliding_window;
mod smooth_bursty;
mod smooth_warming_up;
pub(crate) mod token_bucket;
mod total;

pub use adaptive::{Adaptive, AdaptiveState, Gradient2State, Sample, SampleKind};
#[cfg(feature = "calendar")]
pub use calendar::Calendar;
pub use cl_throttle::{ClThrottle, ClThrottleError, TimeDebt, TimeDebtState};
pub use concurrency::{Concurrency, ConcurrencyState};
pub use error::{InvalidSmooth, InvalidWindow};
pub use fixed_window::{FixedWindow, FixedWindowState, WindowStart};
pub use guava::{SmoothPrice, SmoothRate, SmoothState};
pub use leaky_bucket::{LeakyBucket, LeakyBucketState};
pub use min_interval::{IntervalState, MinInterval};
pub use properties::{Properties, Restores};
pub use refilling_bucket::{RefillingBucket, RefillingState};
pub use sliding_log::{SlidingLog, SlidingLogState};
pub use sliding_window::{Edge, MAX_BUCKETS, SlidingWindow, SlidingWindowState};
pub use smooth_bursty::{InitialPermits, SmoothBursty};
pub use smooth_warming_up::SmoothWarmingUp;
pub use token_bucket::{BucketState, TokenBucket};
pub use total::{Total, TotalState};

/// A rate limiting algorithm with its parameters; the state of each key is stored elsewhere.
///
/// # What always holds
/// 1. A denial leaves the state as it was.
/// 2. [`peek`](Self::peek) answers what [`take`](Self::take) would, and changes nothing.
/// 3. After [`Retry::After(d)`](crate::Retry::After) the same ask is granted exactly `d` later, and not 1 ns earlier.
/// 4. A `now` before an earlier one refills nothing. (Stores never let the time of a key go back.)
/// 5. A state that [`is_fresh`](Self::is_fresh) answers every ask as [`fresh`](Self::fresh) does, so it may be dropped.
/// 6. Nothing overflows or panics, for any time and cost.
///
/// `tests/it/laws.rs` checks these for every algorithm in this crate.
pub trait Algorithm: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// The state of one key. Its `Default` only fills empty slots; [`fresh`](Self::fresh) initialises a key.
    type State: Clone + Debug + Default + Send + Sync + 'static;

    /// Returns the properties of the algorithm besides how it decides.
    fn properties(&self) -> Properties<'_> {
        Properties::default()
    }

    /// Describes the limit in words, such as `at most 5 in any second`. `rate` is the rate that it was configured with, for
    /// an algorithm that stores it in another form. Without a description, a limit is shown as it was written.
    fn describe(&self, rate: Option<Quota>) -> Option<String> {
        let _ = rate;
        None
    }

    /// Returns the state of a key that is first seen at `now`.
    fn fresh(&self, now: Timestamp) -> Self::State;

    /// Takes `cost` from `state` at `now`, waiting at most `max_wait`; leaves `state` unchanged if it denies.
    fn take(&self, state: &mut Self::State, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome;

    /// Returns the outcome that [`take`](Self::take) would give, without changing the state.
    fn peek(&self, state: &Self::State, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
        self.take(&mut state.clone(), now, cost, max_wait)
    }

    /// Returns the status of the key at `now`.
    fn status(&self, state: &Self::State, now: Timestamp) -> Status;

    /// Charges `cost` unconditionally, even over the limit: corrects an estimated cost.
    fn charge(&self, state: &mut Self::State, now: Timestamp, cost: Cost);

    /// Refunds the permits of `receipt`, except for those that have been refilled since.
    fn refund(&self, state: &mut Self::State, now: Timestamp, receipt: &Receipt) -> Refund;

    /// Refunds the part of `receipt` above `used`, as [`refund`](Self::refund) refunds all of it.
    ///
    /// The default is correct if permits are interchangeable. An algorithm whose grants cost more or less than the sum
    /// of their permits overrides it.
    fn refund_rest(&self, state: &mut Self::State, now: Timestamp, receipt: &Receipt, used: u64) -> Refund {
        match Cost::new(receipt.cost().get().saturating_sub(used)) {
            Ok(rest) => self.refund(state, now, &Receipt::new(rest, receipt.at()).with_mark(receipt.mark())),
            // The whole grant was used.
            Err(_) => Refund::Void,
        }
    }

    /// Returns `true` if this state behaves like a fresh one, so that it may be dropped.
    fn is_fresh(&self, state: &Self::State, now: Timestamp) -> bool;

    /// Migrates a state from the `old` parameters: its usage is kept, clamped to the new capacity.
    fn rescale(&self, state: &mut Self::State, old: &Self, now: Timestamp);

    /// Returns whether a request waits by a reservation of the algorithm, or in a queue in front of it.
    fn wait_mode(&self) -> WaitMode;

    /// Returns the heap memory of `state` in bytes, for the memory bound. It depends on the state alone, not on
    /// the parameters.
    fn heap_bytes(&self, _state: &Self::State) -> usize {
        0
    }

    /// Returns the bytes that a grant at `now` would add to the heap memory of `state`, so that a store without free memory can
    /// deny before the state is copied. 0 if unknown: then the store undoes the grant afterwards.
    fn heap_growth(&self, _state: &Self::State, _now: Timestamp) -> usize {
        0
    }

    /// Takes like [`take`](Self::take), and returns the status after it.
    #[inline(always)]
    fn answer(&self, state: &mut Self::State, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let outcome = self.take(state, now, cost, max_wait);
        Answer::new(outcome, self.status(state, now))
    }

    /// Decides one `CL.THROTTLE` call, whose parameters come with it. Only [`TimeDebt`] grants it: every other algorithm
    /// has parameters of its own.
    fn cl_throttle(&self, state: &mut Self::State, now: Timestamp, call: &ClThrottle) -> Answer {
        let _ = call;
        Answer::new(Outcome::never(), self.status(state, now))
    }

    /// Records the result of one response. Only an [adaptive](crate::Adaptive) limit uses it.
    fn observe(&self, state: &mut Self::State, now: Timestamp, sample: &Sample) {
        let _ = (state, now, sample);
    }

    /// Returns `true` if a key without a state, asked at `now`, has to be migrated over a change of parameters at `changed` as if
    /// it had one. Only Guava's limiters distinguish such a key from a fresh one, and only within the microsecond of
    /// the change.
    fn migrates_fresh(&self, changed: Timestamp, now: Timestamp) -> bool {
        let _ = (changed, now);
        false
    }

    /// Returns the same algorithm with one-word states, if it has that form; only the token bucket has.
    fn packed(&self) -> Option<Packed> {
        None
    }

    /// Returns `true` if usage outlives the process, so that a snapshot of the counts includes it. Not so for permits that running
    /// requests hold.
    fn outlives_process(&self) -> bool {
        true
    }

    /// Appends `state` to `words`, from which [`decode`](Self::decode) restores it, in this process or in another one.
    /// Returns `false` if the algorithm does not support it: then a snapshot has only the number of permits in use, and
    /// the state is restored by [`occupied`](Self::occupied).
    fn encode(&self, state: &Self::State, words: &mut Vec<u64>) -> bool {
        let _ = (state, words);
        false
    }

    /// Restores a state that [`encode`](Self::encode) of an equal algorithm has written; `None` if it can't have.
    fn decode(&self, words: &[u64]) -> Option<Self::State> {
        let _ = words;
        None
    }

    /// Returns a state with `used` permits in use at `now`: how a key is migrated from another kind of algorithm.
    fn occupied(&self, used: u64, now: Timestamp) -> Self::State {
        let mut state = self.fresh(now);
        if let Ok(cost) = Cost::new(used.min(self.status(&state, now).limit)) {
            self.charge(&mut state, now, cost);
        }
        state
    }
}

/// A token bucket whose state is one word, for the atomic limiter and the smallest table entry. Only
/// [`TokenBucket::packed`](Algorithm::packed) creates it.
#[derive(Clone, Copy, Debug)]
pub struct Packed(pub(crate) token_bucket::PackedBucket);

/// How a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// The algorithm knows its next free time and reserves it: FIFO by construction.
    Reserve,
    /// The next free time is unknown, so waiting requests are queued and ask again, in FIFO order.
    Queue,
}
