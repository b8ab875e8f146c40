//! Leaky bucket: requests leave at an even rate, and stand in a line of bounded length until then.
//!
//! # How it works
//! The plain picture is a bucket with a hole: requests drip out one every interval, and a request that finds the bucket
//! full is refused. Kept literally, that is a queue and a timer. Neither is needed, since the time at which a request
//! will leave is known as soon as it comes: when all that came before it have left. So the state is one moment, the time
//! at which the last one's turn will be over, and a request is told how long to wait:
//!
//! ```text
//!         now              moment                   now + (queue + 1) × interval
//!  ────────┼───────┬───────┬──┼─────────────────────────┼──────▶ time
//!          │ leaves│ waits │  │◀── room for more ──────▶│
//!          │  now  │       └─ the next one leaves here   (one that would end beyond this is refused)
//! ```
//!
//! A cost of `c` occupies `c` places, and leaves when the first of them has its turn.
//!
//! # The same as nginx
//! nginx's `limit_req` keeps an `excess`, in thousandths of a request, which falls by `rate × ms` and rises by one with
//! each request. That is `moment − now − interval` here, so `burst=n` is [`queue(n)`](LeakyBucket::queue), and
//! `delay=n` and `nodelay` mean what they mean there. Diana counts exactly where nginx truncates (1r/m is one in 62.5 s
//! there, since 1000/60 is cut to 16), and has maximum wait: nginx is [`MaxWait::FOREVER`], and one who won't wait so long
//! is refused instead.
//!
//! # What always holds (tests/it/laws.rs, tests/it/leaky_bucket.rs)
//! - Of those that leave from a time `s` to a time `e`, all but the last cost at most `delay + rate × (e − s)` together.
//!   Without `delay` that means: whoever leaves with cost `c`, the next one leaves no sooner than `c` intervals later.
//! - No more than `queue + 1` permits are in the bucket at any time.

use super::gcra::{Departure, Gcra, Moment};
use crate::{Algorithm, Cost, MaxWait, Outcome, Quota, Receipt, Refund, Status, Timestamp, Waiting};

/// A line that moves at an even rate: nginx's `limit_req`.
///
/// Shields what can't take a burst. The quota's rate counts and its burst does not: how many may stand in line is
/// [`queue`](Self::queue), none unless you say so. Only those who have the [`MaxWait`] stand in line; one who has none
/// is granted what can leave at once. [`Status::remaining`] is the number of places that are free in the line.
///
/// ```
/// use diana_core::{Algorithm, Cost, LeakyBucket, MaxWait, Retry, Timestamp};
/// use std::time::Duration;
///
/// let bucket = LeakyBucket::new("10/s".parse()?).queue(1);
/// let mut state = bucket.fresh(Timestamp::EPOCH);
/// let mut ask = || bucket.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::FOREVER);
///
/// assert_eq!(ask().wait(), Some(Duration::ZERO));
/// assert_eq!(ask().wait(), Some(Duration::from_millis(100))); // stands in line
/// assert_eq!(ask().retry(), Some(Retry::After(Duration::from_millis(100)))); // the line is full
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    quota: Quota,
    queue: u64,
    delay: Delay,
    gcra: Gcra<u128>,
}

/// Which of those in line must wait for their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    /// Those behind the first `n`.
    Behind(u64),
    /// Nobody: the line only bounds how many go.
    Nobody,
}

impl LeakyBucket {
    /// Lets requests leave evenly at the quota's rate; nobody may stand in line.
    pub fn new(quota: Quota) -> Self {
        Self::build(quota, 0, Delay::Behind(0))
    }

    /// Lets `permits` stand in line: nginx's `burst=n`. 2⁵³ − 1 at most.
    ///
    /// ```
    /// use diana_core::{Algorithm, LeakyBucket, Timestamp};
    ///
    /// let bucket = LeakyBucket::new("10/s".parse()?).queue(4);
    /// let state = bucket.fresh(Timestamp::EPOCH);
    /// assert_eq!(bucket.status(&state, Timestamp::EPOCH).limit, 5); // one that leaves, four in line
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    #[must_use]
    pub fn queue(self, permits: u64) -> Self {
        Self::build(self.quota, permits.min(crate::MAX_PERMITS - 1), self.delay)
    }

    /// Lets the first `permits` in line go at once, and only those behind them wait: nginx's `delay=n`.
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, LeakyBucket, MaxWait, Timestamp};
    /// use std::time::Duration;
    ///
    /// let bucket = LeakyBucket::new("10/s".parse()?).queue(4).delay(1);
    /// let mut state = bucket.fresh(Timestamp::EPOCH);
    /// let mut wait = || bucket.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::FOREVER).wait();
    /// assert_eq!(wait(), Some(Duration::ZERO));
    /// assert_eq!(wait(), Some(Duration::ZERO)); // the one excess request that goes at once
    /// assert_eq!(wait(), Some(Duration::from_millis(100)));
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    #[must_use]
    pub fn delay(self, permits: u64) -> Self {
        Self::build(self.quota, self.queue, Delay::Behind(permits))
    }

    /// Lets everybody in line go at once; their places come free at the rate all the same: nginx's `nodelay`.
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, LeakyBucket, MaxWait, Timestamp};
    ///
    /// let bucket = LeakyBucket::new("10/s".parse()?).queue(1).nodelay();
    /// let mut state = bucket.fresh(Timestamp::EPOCH);
    /// let mut ask = || bucket.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::NONE);
    /// assert!(ask().is_granted() && ask().is_granted() && !ask().is_granted());
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    #[must_use]
    pub fn nodelay(self) -> Self {
        Self::build(self.quota, self.queue, Delay::Nobody)
    }

    /// The quota whose rate this bucket keeps.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// How many permits may stand in line: what [`queue`](Self::queue) was given.
    pub fn queue_length(&self) -> u64 {
        self.queue
    }

    /// How many of those in line go at once: what [`delay`](Self::delay) was given, or `None` for all of them
    /// ([`nodelay`](Self::nodelay)).
    ///
    /// ```
    /// use diana_core::{LeakyBucket, Quota};
    ///
    /// let bucket = LeakyBucket::new(Quota::per_second(10)?).queue(4);
    /// assert_eq!((bucket.queue_length(), bucket.undelayed()), (4, Some(0)));
    /// assert_eq!(bucket.nodelay().undelayed(), None);
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub fn undelayed(&self) -> Option<u64> {
        match self.delay {
            Delay::Behind(permits) => Some(permits),
            Delay::Nobody => None,
        }
    }

    fn build(quota: Quota, queue: u64, delay: Delay) -> Self {
        // The one that is leaving is not in line, so there is room for one more than the queue.
        // A product of two 64-bit numbers fits 128 bits.
        let gcra = Gcra::new(&quota, queue + 1).unwrap_or_else(|| unreachable!("u128 holds every product"));
        Self { quota, queue, delay, gcra }
    }

    /// When a request goes on: as its turn begins, or earlier by the turns of those that need not wait.
    #[inline]
    fn departure(&self) -> Departure<u128> {
        let grace = match self.delay {
            Delay::Behind(permits) => self.gcra.ticks_of(permits),
            // No turn begins further ahead than the capacity.
            Delay::Nobody => self.gcra.capacity(),
        };
        Departure::InLine { grace }
    }
}

impl Algorithm for LeakyBucket {
    type State = LeakyBucketState;

    fn fresh(&self, _now: Timestamp) -> LeakyBucketState {
        LeakyBucketState::default()
    }

    #[inline]
    fn take(&self, state: &mut LeakyBucketState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
        state.0.update(|over_at| self.gcra.take(over_at, now, cost, max_wait, self.departure()))
    }

    #[inline]
    fn status(&self, state: &LeakyBucketState, now: Timestamp) -> Status {
        let over_at = state.0.get();
        Status {
            limit: self.gcra.limit(),
            remaining: self.gcra.remaining(over_at, now),
            reset: self.gcra.reset(over_at, now),
        }
    }

    fn charge(&self, state: &mut LeakyBucketState, now: Timestamp, cost: Cost) {
        state.0.update(|over_at| self.gcra.charge(over_at, now, cost));
    }

    fn refund(&self, state: &mut LeakyBucketState, now: Timestamp, receipt: &Receipt) -> Refund {
        state.0.update(|over_at| self.gcra.refund(over_at, now, receipt, self.departure()))
    }

    fn is_fresh(&self, state: &LeakyBucketState, now: Timestamp) -> bool {
        self.gcra.is_clear(state.0.get(), now)
    }

    fn rescale(&self, state: &mut LeakyBucketState, old: &Self, now: Timestamp) {
        state.0.update(|over_at| self.gcra.rescale(over_at, &old.gcra, now));
    }

    fn waiting(&self) -> Waiting {
        Waiting::Reserves
    }
}

/// The state of a [`LeakyBucket`]: when the turn of the last one in line will be over.
///
/// Counted in ticks, of which a nanosecond has as many as the denominator of [`Quota::interval`] says. A store that keeps
/// its states elsewhere reads and writes them as that number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeakyBucketState(Moment);

impl LeakyBucketState {
    /// The state of a line whose last turn will be over at `ticks`.
    pub fn from_ticks(ticks: u128) -> Self {
        Self(ticks.into())
    }

    /// When the last turn will be over.
    pub fn ticks(&self) -> u128 {
        self.0.get()
    }
}
