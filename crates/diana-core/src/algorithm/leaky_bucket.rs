//! Leaky bucket: requests proceed at an even rate, and wait in a bounded queue until then.
//!
//! # How it works
//! The usual picture is a bucket with a hole: requests drip out one every interval, and a request that finds the bucket
//! full is denied. Implemented literally, that is a queue and a timer. Neither is needed, since the time at which a
//! request will proceed is known as soon as it arrives: after all earlier ones. So the state is one time, `tat`, at
//! which the turn of the last queued request ends, and the answer contains the wait:
//!
//! ```text
//!         now               tat                     now + (queue + 1) × interval
//!  ────────┼───────┬───────┬──┼─────────────────────────┼──────▶ time
//!          │proceed│ waits │  │◀───── free slots ──────▶│
//!          │  now  │       └─ the next one proceeds here  (denied if it would end later)
//! ```
//!
//! A cost of `c` occupies `c` slots, and the request proceeds when the first of them has its turn.
//!
//! # The same as nginx
//! nginx's `limit_req` keeps an `excess`, in thousandths of a request, which falls by `rate × ms` and rises by one
//! with each request. That is `tat − now − interval` in Diana, so `burst=n` is
//! [`with_queue(n)`](LeakyBucket::with_queue), and `delay=n` and `nodelay` mean the same as in nginx. Diana counts
//! exactly where nginx truncates (1r/m is one in 62.5 s in nginx, since 1000/60 is truncated to 16), and has a maximum
//! wait: nginx is [`MaxWait::FOREVER`], and a request with a shorter one is denied instead.
//!
//! # What always holds (tests/it/laws.rs, tests/it/leaky_bucket.rs)
//! - Of the requests that proceed from a time `s` to a time `e`, all but the last cost at most `delay + rate × (e − s)`
//!   together. Without `delay` that means: after a request of cost `c`, the next one proceeds no sooner than `c`
//!   intervals later.
//! - No more than `queue + 1` permits are in the bucket at any time.

use super::gcra::{Departure, Gcra, WideTicks};
use crate::{
    Algorithm, Answer, Cost, MaxWait, Outcome, Properties, Quota, Receipt, Refund, Restores, Status, Timestamp,
    WaitMode, words,
};
use std::time::Duration;

/// A queue that drains at an even rate: nginx's `limit_req`.
///
/// Protects services that cannot take a burst. The quota's rate is used and its burst is not: the length of the queue
/// is [`with_queue`](Self::with_queue), 0 by default. Only requests with a [`MaxWait`] are queued; without one, a
/// request is granted only if it can proceed immediately. [`Status::remaining`] is the number of free slots in the queue.
///
/// ```
/// use diana_core::{Algorithm, Cost, LeakyBucket, MaxWait, Retry, Timestamp};
/// use std::time::Duration;
///
/// let bucket = LeakyBucket::new("10/s".parse()?).with_queue(1);
/// let mut state = bucket.fresh(Timestamp::EPOCH);
/// let mut ask = || bucket.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::FOREVER);
///
/// assert_eq!(ask().wait(), Some(Duration::ZERO));
/// assert_eq!(ask().wait(), Some(Duration::from_millis(100))); // queued
/// assert_eq!(ask().retry(), Some(Retry::After(Duration::from_millis(100)))); // the queue is full
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    quota: Quota,
    queue: u64,
    delay: Delay,
    gcra: Gcra<u128>,
}

/// Which queued requests must wait for their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    /// Requests after the first `n`.
    After(u64),
    /// No requests: the queue only bounds the number of grants.
    Never,
}

impl LeakyBucket {
    /// Lets requests proceed evenly at the quota's rate, without a queue.
    pub fn new(quota: Quota) -> Self {
        Self::build(quota, 0, Delay::After(0))
    }

    /// Queues up to `permits`: nginx's `burst=n`. At most 2⁵³ − 1.
    ///
    /// ```
    /// use diana_core::{Algorithm, LeakyBucket, Timestamp};
    ///
    /// let bucket = LeakyBucket::new("10/s".parse()?).with_queue(4);
    /// let state = bucket.fresh(Timestamp::EPOCH);
    /// assert_eq!(bucket.status(&state, Timestamp::EPOCH).limit, 5); // one proceeds, four are queued
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    #[must_use]
    pub fn with_queue(self, permits: u64) -> Self {
        Self::build(self.quota, permits.min(crate::MAX_PERMITS - 1), self.delay)
    }

    /// Lets the first `permits` in the queue proceed immediately; only those after them wait: nginx's `delay=n`.
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, LeakyBucket, MaxWait, Timestamp};
    /// use std::time::Duration;
    ///
    /// let bucket = LeakyBucket::new("10/s".parse()?).with_queue(4).with_delay(1);
    /// let mut state = bucket.fresh(Timestamp::EPOCH);
    /// let mut wait = || bucket.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::FOREVER).wait();
    /// assert_eq!(wait(), Some(Duration::ZERO));
    /// assert_eq!(wait(), Some(Duration::ZERO)); // the one excess request that is not delayed
    /// assert_eq!(wait(), Some(Duration::from_millis(100)));
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    #[must_use]
    pub fn with_delay(self, permits: u64) -> Self {
        Self::build(self.quota, self.queue, Delay::After(permits))
    }

    /// Lets all queued requests proceed immediately; their slots still become free at the rate: nginx's `nodelay`.
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, LeakyBucket, MaxWait, Timestamp};
    ///
    /// let bucket = LeakyBucket::new("10/s".parse()?).with_queue(1).without_delay();
    /// let mut state = bucket.fresh(Timestamp::EPOCH);
    /// let mut ask = || bucket.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::NONE);
    /// assert!(ask().is_granted() && ask().is_granted() && !ask().is_granted());
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    #[must_use]
    pub fn without_delay(self) -> Self {
        Self::build(self.quota, self.queue, Delay::Never)
    }

    /// Returns the quota whose rate this bucket uses.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the length of the queue in permits, as set by [`with_queue`](Self::with_queue).
    pub fn queue_length(&self) -> u64 {
        self.queue
    }

    /// Returns how many queued permits proceed immediately, as set by [`with_delay`](Self::with_delay), or `None` for all of
    /// them ([`without_delay`](Self::without_delay)).
    ///
    /// ```
    /// use diana_core::{LeakyBucket, Quota};
    ///
    /// let bucket = LeakyBucket::new(Quota::per_second(10)?).with_queue(4);
    /// assert_eq!((bucket.queue_length(), bucket.undelayed()), (4, Some(0)));
    /// assert_eq!(bucket.without_delay().undelayed(), None);
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub fn undelayed(&self) -> Option<u64> {
        match self.delay {
            Delay::After(permits) => Some(permits),
            Delay::Never => None,
        }
    }

    fn build(quota: Quota, queue: u64, delay: Delay) -> Self {
        // The request that proceeds now is not queued, so the capacity is one more than the queue. A product of two
        // 64-bit numbers fits 128 bits.
        let gcra = Gcra::new(&quota, queue + 1).unwrap_or_else(|| unreachable!("u128 holds every product"));
        Self { quota, queue, delay, gcra }
    }

    /// Returns when a request proceeds: when its turn starts, or earlier by the turns of the undelayed permits.
    #[inline]
    fn departure(&self) -> Departure<u128> {
        let grace = match self.delay {
            Delay::After(permits) => self.gcra.ticks_of(permits),
            // No turn starts further ahead than the capacity.
            Delay::Never => self.gcra.capacity(),
        };
        Departure::Queued { grace }
    }
}

impl Algorithm for LeakyBucket {
    type State = LeakyBucketState;

    fn properties(&self) -> Properties<'_> {
        Properties { restores: Restores::Continuously(self.quota), delays: true, ..Properties::default() }
    }

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        let even = match self.quota.interval() {
            (nanos, 1) => format!("one every {}", words::period(Duration::from_nanos(nanos))),
            _ => format!("{}, evenly", words::rate(self.quota)),
        };
        // The one that proceeds now is not queued.
        let most = |undelayed: u64| words::at_most(self.quota, undelayed.saturating_add(1));
        let queue = self.queue;
        Some(match self.undelayed() {
            _ if queue == 0 => even,
            None => format!("{even}, {queue} more at once: {}", most(queue)),
            Some(0) => format!("{even}, {queue} may be queued"),
            Some(undelayed) => {
                let most = most(undelayed.min(queue));
                format!("{even}, {queue} may be queued, the first {undelayed} of them without delay: {most}")
            }
        })
    }

    fn fresh(&self, _now: Timestamp) -> LeakyBucketState {
        LeakyBucketState::default()
    }

    #[inline]
    fn take(&self, state: &mut LeakyBucketState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
        state.0.update(|tat| self.gcra.take(tat, now, cost, max_wait, self.departure()))
    }

    #[inline]
    fn answer(&self, state: &mut LeakyBucketState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let outcome = self.take(state, now, cost, max_wait);
        Answer::with_lazy_status(outcome, self.gcra.lazy_status(state.0.get(), now))
    }

    #[inline]
    fn status(&self, state: &LeakyBucketState, now: Timestamp) -> Status {
        self.gcra.status(state.0.get(), now)
    }

    fn charge(&self, state: &mut LeakyBucketState, now: Timestamp, cost: Cost) {
        state.0.update(|tat| self.gcra.charge(tat, now, cost));
    }

    fn refund(&self, state: &mut LeakyBucketState, now: Timestamp, receipt: &Receipt) -> Refund {
        state.0.update(|tat| self.gcra.refund(tat, now, receipt, self.departure()))
    }

    fn is_fresh(&self, state: &LeakyBucketState, now: Timestamp) -> bool {
        self.gcra.is_clear(state.0.get(), now)
    }

    fn rescale(&self, state: &mut LeakyBucketState, old: &Self, now: Timestamp) {
        state.0.update(|tat| self.gcra.rescale(tat, &old.gcra, now));
    }

    fn encode(&self, state: &LeakyBucketState, words: &mut Vec<u64>) -> bool {
        words.extend(state.0.words());
        true
    }

    fn decode(&self, words: &[u64]) -> Option<LeakyBucketState> {
        let &[first, second] = words else { return None };
        Some(LeakyBucketState(WideTicks::from_words([first, second])))
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Reserve
    }
}

/// The state of a [`LeakyBucket`]: when the turn of the last queued request ends.
///
/// Counted in ticks; a nanosecond has as many as the denominator of [`Quota::interval`]. An external store reads and
/// writes it as that number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeakyBucketState(WideTicks);

impl LeakyBucketState {
    /// Creates the state of a queue whose last turn ends at `ticks`.
    pub fn from_ticks(ticks: u128) -> Self {
        Self(ticks.into())
    }

    /// Returns when the last turn ends.
    pub fn ticks(&self) -> u128 {
        self.0.get()
    }
}
