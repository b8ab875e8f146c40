//! Token bucket, stored as one time: when the bucket will be full again.
//!
//! # How it works
//! A bucket has up to `burst` tokens; a request takes as many as it costs, and they are refilled evenly at the rate.
//! The usual form is two numbers, tokens and the time of the last refill. Both follow from one, since the state of a
//! bucket that refills evenly is determined by when it will be full:
//!
//! ```text
//!         now            full_at         now + capacity
//!  ────────┼─────────────────┼────────────────┼──────▶ time
//!          │◀──── used ─────▶│◀─ remaining ──▶│
//! ```
//!
//! One number can be swapped by one atomic instruction in memory and by one `SET` in Redis; two cannot. The arithmetic
//! is in [`gcra`](super::gcra), which also explains why nothing drifts.
//!
//! # What always holds (tests/it/laws.rs, tests/it/token_bucket.rs)
//! - In every span `t` at most `burst + rate × t` pass, reservations included, plus the refunds within the span.
//! - 3/s is exactly 3,000,000 in a million seconds; 600,000,001/s is not 1,000,000,000/s.
//! - A grant of `a + b` costs what a grant of `a` and one of `b` cost.

use super::Packed;
use super::gcra::{Departure, Gcra, WideTicks};
use crate::{
    Algorithm, Answer, Cost, MaxWait, Outcome, Properties, Quota, Receipt, Refund, Restores, Status, Timestamp,
    WaitMode, words,
};

/// A bucket of `burst` tokens that refills evenly: the default algorithm.
///
/// Allows an idle client a burst, and limits a busy one to the rate. A cost above the burst is denied permanently. With
/// a maximum wait it reserves: the answer contains the wait, and later requests wait longer.
///
/// ```
/// use diana_core::{Algorithm, Cost, MaxWait, Quota, Retry, Timestamp, TokenBucket};
/// use std::time::Duration;
///
/// let bucket = TokenBucket::new("2/s".parse()?);
/// let mut state = bucket.fresh(Timestamp::EPOCH);
/// let mut ask = |ms| bucket.take(&mut state, Timestamp::from_millis(ms), Cost::ONE, MaxWait::NONE);
///
/// assert!(ask(0).is_granted());
/// assert!(ask(0).is_granted());
/// assert_eq!(ask(0).retry(), Some(Retry::After(Duration::from_millis(500))));
/// assert!(ask(500).is_granted());
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    quota: Quota,
    gcra: Gcra<u128>,
}

impl TokenBucket {
    /// Creates a bucket of `quota.burst()` tokens that refills at the quota's rate.
    pub fn new(quota: Quota) -> Self {
        // A product of two 64-bit numbers fits 128 bits.
        let gcra = Gcra::new(&quota, quota.burst()).unwrap_or_else(|| unreachable!("u128 holds every product"));
        Self { quota, gcra }
    }

    /// Returns the quota of this bucket.
    pub fn quota(&self) -> Quota {
        self.quota
    }
}

impl Algorithm for TokenBucket {
    type State = BucketState;

    fn properties(&self) -> Properties<'_> {
        Restores::Continuously(self.quota).into()
    }

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        let burst = self.quota.burst();
        Some(format!("{}, up to {burst} at once: {}", words::rate(self.quota), words::at_most(self.quota, burst)))
    }

    fn fresh(&self, _now: Timestamp) -> BucketState {
        BucketState::default()
    }

    #[inline]
    fn take(&self, state: &mut BucketState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
        state.0.update(|full_at| self.gcra.take(full_at, now, cost, max_wait, Departure::Fits))
    }

    #[inline]
    fn answer(&self, state: &mut BucketState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let outcome = self.take(state, now, cost, max_wait);
        Answer::with_lazy_status(outcome, self.gcra.lazy_status(state.0.get(), now))
    }

    #[inline]
    fn status(&self, state: &BucketState, now: Timestamp) -> Status {
        self.gcra.status(state.0.get(), now)
    }

    fn charge(&self, state: &mut BucketState, now: Timestamp, cost: Cost) {
        state.0.update(|full_at| self.gcra.charge(full_at, now, cost));
    }

    fn refund(&self, state: &mut BucketState, now: Timestamp, receipt: &Receipt) -> Refund {
        state.0.update(|full_at| self.gcra.refund(full_at, now, receipt, Departure::Fits))
    }

    fn is_fresh(&self, state: &BucketState, now: Timestamp) -> bool {
        self.gcra.is_clear(state.0.get(), now)
    }

    fn rescale(&self, state: &mut BucketState, old: &Self, now: Timestamp) {
        state.0.update(|full_at| self.gcra.rescale(full_at, &old.gcra, now));
    }

    fn encode(&self, state: &BucketState, words: &mut Vec<u64>) -> bool {
        words.extend(state.0.words());
        true
    }

    fn decode(&self, words: &[u64]) -> Option<BucketState> {
        let &[first, second] = words else { return None };
        Some(BucketState(WideTicks::from_words([first, second])))
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Reserve
    }

    fn packed(&self) -> Option<Packed> {
        // Half of the range is reserved for the clock: until the year 2262 no sum of a time and a capacity overflows.
        let gcra = Gcra::<u64>::new(&self.quota, self.quota.burst())?;
        let fits = gcra.scale() == 1 && gcra.capacity() <= u64::MAX / 2;
        fits.then_some(Packed(PackedBucket(gcra)))
    }
}

/// The state of a [`TokenBucket`]: when it will be full again.
///
/// Counted in ticks; a nanosecond has as many as the denominator of [`Quota::interval`]. An external store reads and
/// writes it as that number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState(WideTicks);

impl BucketState {
    /// Creates the state of a bucket that will be full at `ticks`.
    pub fn from_ticks(ticks: u128) -> Self {
        Self(ticks.into())
    }

    /// Returns when the bucket will be full.
    pub fn ticks(&self) -> u128 {
        self.0.get()
    }
}

/// A token bucket whose state is one word, in nanoseconds, for the atomic limiter and the 16-byte table entry.
///
/// It gives the answers of [`TokenBucket`] to the nanosecond (token_bucket/tests.rs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedBucket(Gcra<u64>);

impl PackedBucket {
    /// Returns the nanoseconds per permit, and the capacity in permits.
    pub(crate) fn parameters(&self) -> (u64, u64) {
        (self.0.interval(), self.0.limit())
    }

    /// Creates the bucket with these [parameters](Self::parameters).
    #[inline(always)]
    pub(crate) fn from_parameters(interval: u64, limit: u64) -> Self {
        Self(Gcra::whole(interval, limit))
    }
}

impl Algorithm for PackedBucket {
    type State = u64;

    #[inline(always)]
    fn fresh(&self, _now: Timestamp) -> u64 {
        0
    }

    #[inline(always)]
    fn take(&self, full_at: &mut u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
        self.0.take(full_at, now, cost, max_wait, Departure::Fits)
    }

    #[inline(always)]
    fn answer(&self, full_at: &mut u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let outcome = self.take(full_at, now, cost, max_wait);
        Answer::with_lazy_status(outcome, self.0.lazy_status(*full_at, now))
    }

    #[inline(always)]
    fn status(&self, full_at: &u64, now: Timestamp) -> Status {
        self.0.status(*full_at, now)
    }

    fn charge(&self, full_at: &mut u64, now: Timestamp, cost: Cost) {
        self.0.charge(full_at, now, cost);
    }

    fn refund(&self, full_at: &mut u64, now: Timestamp, receipt: &Receipt) -> Refund {
        self.0.refund(full_at, now, receipt, Departure::Fits)
    }

    #[inline(always)]
    fn is_fresh(&self, full_at: &u64, now: Timestamp) -> bool {
        self.0.is_clear(*full_at, now)
    }

    fn rescale(&self, full_at: &mut u64, old: &Self, now: Timestamp) {
        self.0.rescale(full_at, &old.0, now);
    }

    fn encode(&self, state: &u64, words: &mut Vec<u64>) -> bool {
        words.extend([*state]);
        true
    }

    fn decode(&self, words: &[u64]) -> Option<u64> {
        let &[word] = words else { return None };
        Some(word)
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Reserve
    }
}

#[cfg(test)]
mod tests;
