//! Sliding window: a ring of small counts that moves on bucket by bucket.
//!
//! # How it works
//! The fixed window forgets everything at once, so twice the limit passes around its edge. Cut the window into `n`
//! buckets instead, count each on its own, and look at the current bucket and the `n - 1` before it:
//!
//! ```text
//!          oldest                             current
//!  ──┬───────┬───────┬───────┬───────┬───────┬──▪────┬──▶ time
//!    │ (gone)│   3   │   0   │   1   │   0   │  2    │
//!            │◀────────── n buckets: 6 used ────────▶│
//!                                               now
//! ```
//!
//! Buckets are aligned to the epoch: the bucket of a moment is `now / width`, and bucket `b` leaves the window at
//! `(b + n) × width`, all of it at once. The counts live in a ring in which bucket `b` has place `b mod n`, so nothing is
//! ever moved; places of buckets that have left are zeroed when the next grant passes over them.
//!
//! # Exactness
//! What is looked at is between `(n - 1) / n` of a window and a whole one, so a little more than the limit can pass in a
//! window that ends in the middle of a bucket. More buckets, less of that; one bucket is the fixed window; the
//! [`SlidingLog`](super::SlidingLog) has none of it. Where the buckets don't divide the window their width is rounded
//! up, and where a precision doesn't, their number is: the window is longer than asked, never shorter.
//!
//! # What always holds (tests/laws.rs, tests/sliding_window.rs)
//! - At most `limit` in any `n` neighbouring buckets.
//! - The retry time is the moment at which enough buckets for *this* cost have left.

use crate::{Algorithm, Cost, InvalidWindow, Outcome, Patience, Quota, Receipt, Refund, Standing, Timestamp, Waiting};
use std::time::Duration;

/// The largest number of buckets: 2¹⁷, a megabyte for each key.
///
/// A day in steps of a second fits.
pub const MAX_BUCKETS: u64 = 1 << 17;

const DEFAULT_BUCKETS: u64 = 10;

/// At most `quota.permits()` in the last `quota.period()`, to within a bucket. The quota's burst plays no part.
///
/// ```
/// use diana_core::{Algorithm, Cost, Patience, Quota, Retry, SlidingWindow, Timestamp};
/// use std::time::Duration;
///
/// let window = SlidingWindow::new("2/10s".parse()?); // ten buckets of a second
/// let mut state = window.fresh(Timestamp::EPOCH);
/// let mut ask = |ms| window.take(&mut state, Timestamp::from_millis(ms), Cost::ONE, Patience::NONE);
///
/// assert!(ask(9_500).is_granted());
/// assert!(ask(10_000).is_granted()); // a fixed window would begin again here
/// assert_eq!(ask(10_000).retry(), Some(Retry::After(Duration::from_secs(9))));
/// assert!(ask(19_000).is_granted());
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    quota: Quota,
    /// Nanoseconds of one bucket.
    width: u64,
    /// Buckets in the window.
    buckets: u64,
}

/// The state of a [`SlidingWindow`]: the ring of counts, which is allocated by the first grant.
///
/// ```
/// use diana_core::{Algorithm, Cost, Patience, Quota, SlidingWindow, Timestamp};
///
/// let window = SlidingWindow::new(Quota::per_minute(5)?);
/// let mut state = window.fresh(Timestamp::EPOCH);
/// assert_eq!(window.heap_bytes(&state), 0);
/// assert!(window.take(&mut state, Timestamp::EPOCH, Cost::ONE, Patience::NONE).is_granted());
/// assert_eq!(window.heap_bytes(&state), 80);
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowState {
    /// The newest bucket that the ring has a place for; 0 when nothing is in use.
    newest: u64,
    ring: Box<[u64]>,
}

impl SlidingWindow {
    /// A window of `quota.period()` in ten buckets.
    pub fn new(quota: Quota) -> Self {
        Self::divided(quota, quota.period_nanos().div_ceil(DEFAULT_BUCKETS))
    }

    /// The same window in `buckets` buckets, or fewer where there are not that many nanoseconds.
    pub fn with_buckets(self, buckets: u64) -> Result<Self, InvalidWindow> {
        match buckets {
            1..=MAX_BUCKETS => Ok(Self::divided(self.quota, self.quota.period_nanos().div_ceil(buckets))),
            _ => Err(InvalidWindow::Buckets(buckets)),
        }
    }

    /// The same window in buckets of `precision`, as many as it takes to cover it.
    ///
    /// ```
    /// use diana_core::{Quota, SlidingWindow};
    /// use std::time::Duration;
    ///
    /// let window = SlidingWindow::new(Quota::per_minute(5)?).with_precision(Duration::from_secs(7))?;
    /// assert_eq!(window.buckets(), 9); // 63 seconds
    /// # Ok::<(), diana_core::InvalidWindow>(())
    /// ```
    pub fn with_precision(self, precision: Duration) -> Result<Self, InvalidWindow> {
        if precision.is_zero() {
            return Err(InvalidWindow::NoPrecision);
        }
        let (window, period) = (self.quota.period(), self.quota.period_nanos());
        // A bucket longer than the window would make the window longer than asked; one bucket is the least.
        let divided = Self::divided(self.quota, crate::time::saturating_nanos(precision.min(window)));
        if divided.buckets > MAX_BUCKETS {
            let least = Duration::from_nanos(period.div_ceil(MAX_BUCKETS));
            return Err(InvalidWindow::TooPrecise { precision, window, buckets: divided.buckets, least });
        }
        Ok(divided)
    }

    /// The limit and the window's length as asked for.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// How many buckets the window has.
    pub fn buckets(&self) -> u64 {
        self.buckets
    }

    /// How long one bucket is.
    pub fn precision(&self) -> Duration {
        Duration::from_nanos(self.width)
    }

    /// When a permit that is taken from a fresh state at `now` comes back: when the bucket of `now` leaves the window.
    pub fn comes_back(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(u64::try_from(self.leaves(self.bucket(now))).unwrap_or(u64::MAX))
    }

    fn divided(quota: Quota, width: u64) -> Self {
        Self { quota, width, buckets: quota.period_nanos().div_ceil(width) }
    }

    #[inline]
    fn bucket(&self, time: Timestamp) -> u64 {
        time.as_nanos() / self.width
    }

    /// When `bucket` leaves the window, in nanoseconds.
    #[inline]
    fn leaves(&self, bucket: u64) -> u128 {
        (u128::from(bucket) + u128::from(self.buckets)) * u128::from(self.width)
    }

    /// The bucket that is current at `now`; time does not go back.
    #[inline]
    fn current(&self, state: &SlidingWindowState, now: Timestamp) -> u64 {
        self.bucket(now).max(state.newest)
    }

    /// The buckets that the ring has a place for and that are still in the window at bucket `current`.
    #[inline]
    fn in_window(&self, state: &SlidingWindowState, current: u64) -> std::ops::RangeInclusive<u64> {
        // The oldest of `n` buckets is `n - 1` before the current one; what comes after the newest is empty.
        current.saturating_sub(self.buckets - 1)..=state.newest
    }

    /// What is in use when `current` is the current bucket.
    fn used(&self, state: &SlidingWindowState, current: u64) -> u64 {
        if state.ring.is_empty() {
            return 0;
        }
        if current == state.newest {
            return state.ring.iter().fold(0, |sum, count| sum.saturating_add(*count));
        }
        self.in_window(state, current).fold(0, |sum, bucket| sum.saturating_add(state.count(bucket)))
    }

    /// The first bucket with whose leaving at least `permits` have left.
    fn freeing(&self, state: &SlidingWindowState, current: u64, permits: u64) -> Option<u64> {
        let mut freed = 0_u64;
        self.in_window(state, current).find(|bucket| {
            let count = state.count(*bucket);
            freed = freed.saturating_add(count);
            count > 0 && freed >= permits
        })
    }

    /// What an ask gets, and the bucket that it belongs to.
    fn judge(&self, state: &SlidingWindowState, now: Timestamp, cost: Cost) -> (Outcome, u64) {
        let limit = self.quota.permits();
        let current = self.current(state, now);
        if cost.get() > limit {
            return (Outcome::never(), current);
        }
        let excess = self.used(state, current).saturating_add(cost.get()).saturating_sub(limit);
        let outcome = match self.freeing(state, current, excess) {
            Some(bucket) if excess > 0 => Outcome::denied_until(self.leaves(bucket), now),
            _ => Outcome::granted(Receipt::new(cost, now).with_mark(u128::from(self.last_moment(current)))),
        };
        (outcome, current)
    }

    /// The last nanosecond of `bucket`: what a bucket's use counts as, should the buckets change.
    fn last_moment(&self, bucket: u64) -> u64 {
        bucket.saturating_mul(self.width).saturating_add(self.width - 1)
    }

    /// Counts `permits` in bucket `current`, after zeroing what the ring passes over on the way there.
    fn record(&self, state: &mut SlidingWindowState, current: u64, permits: u64) {
        if state.ring.is_empty() {
            let places = usize::try_from(self.buckets).unwrap_or(usize::MAX);
            *state = SlidingWindowState { newest: current, ring: vec![0; places].into_boxed_slice() };
        }
        if current.saturating_sub(state.newest) >= self.buckets {
            state.ring.fill(0);
        } else {
            for passed in state.newest..current {
                if let Some(count) = state.count_mut(passed + 1) {
                    *count = 0;
                }
            }
        }
        state.newest = state.newest.max(current);
        if let Some(count) = state.count_mut(current) {
            *count = count.saturating_add(permits);
        }
    }
}

impl SlidingWindowState {
    #[inline]
    fn place(&self, bucket: u64) -> usize {
        // The ring's length is a `usize`, so what is less than it is one too.
        usize::try_from(bucket % (self.ring.len() as u64).max(1)).unwrap_or(0)
    }

    #[inline]
    fn count(&self, bucket: u64) -> u64 {
        self.ring.get(self.place(bucket)).copied().unwrap_or(0)
    }

    #[inline]
    fn count_mut(&mut self, bucket: u64) -> Option<&mut u64> {
        let place = self.place(bucket);
        self.ring.get_mut(place)
    }
}

impl Algorithm for SlidingWindow {
    type State = SlidingWindowState;

    fn fresh(&self, _now: Timestamp) -> SlidingWindowState {
        SlidingWindowState::default()
    }

    #[inline]
    fn take(&self, state: &mut SlidingWindowState, now: Timestamp, cost: Cost, _patience: Patience) -> Outcome {
        let (outcome, current) = self.judge(state, now, cost);
        if outcome.is_granted() {
            self.record(state, current, cost.get());
        }
        outcome
    }

    fn peek(&self, state: &SlidingWindowState, now: Timestamp, cost: Cost, _patience: Patience) -> Outcome {
        self.judge(state, now, cost).0
    }

    fn standing(&self, state: &SlidingWindowState, now: Timestamp) -> Standing {
        let (limit, current) = (self.quota.permits(), self.current(state, now));
        let remaining = limit.saturating_sub(self.used(state, current));
        let reset = self.freeing(state, current, 1).map_or(Duration::ZERO, |oldest| {
            Timestamp::from_nanos(u64::try_from(self.leaves(oldest)).unwrap_or(u64::MAX)).since(now)
        });
        Standing { limit, remaining, reset }
    }

    fn charge(&self, state: &mut SlidingWindowState, now: Timestamp, cost: Cost) {
        self.record(state, self.current(state, now), cost.get());
    }

    fn refund(&self, state: &mut SlidingWindowState, now: Timestamp, receipt: &Receipt) -> Refund {
        let granted = Timestamp::from_nanos(u64::try_from(receipt.mark()).unwrap_or(u64::MAX));
        // After a change of buckets, what was current then may have been put into a narrower one.
        let bucket = self.bucket(granted).min(state.newest);
        let is_in_window = self.in_window(state, self.current(state, now)).contains(&bucket);
        match state.count_mut(bucket) {
            Some(count) if is_in_window && *count > 0 => {
                *count = count.saturating_sub(receipt.cost().get());
            }
            _ => return Refund::Void,
        }
        if self.used(state, state.newest) == 0 {
            // Nothing is in use, so no bucket needs to be remembered as the newest.
            state.newest = 0;
        }
        Refund::Returned
    }

    fn is_fresh(&self, state: &SlidingWindowState, now: Timestamp) -> bool {
        self.used(state, self.current(state, now)) == 0
    }

    /// Puts the count of each bucket into the new bucket of its last moment (of `now`, for the current one): what is in
    /// use leaves no earlier than it would have. Above the new limit the oldest use is let go.
    fn rescale(&self, state: &mut SlidingWindowState, old: &Self, now: Timestamp) {
        let current = old.current(state, now);
        let used = old.used(state, current);
        if used == 0 {
            *state = SlidingWindowState::default();
            return;
        }
        let same_buckets = self.width == old.width && self.buckets == old.buckets;
        if same_buckets && used <= self.quota.permits() {
            return;
        }
        let mut excess = used.saturating_sub(self.quota.permits());
        let mut moved = SlidingWindowState::default();
        let latest = now.as_nanos().max(state.newest.saturating_mul(old.width));
        for bucket in old.in_window(state, current) {
            let let_go = state.count(bucket).min(excess);
            excess -= let_go;
            let kept = state.count(bucket) - let_go;
            if kept > 0 {
                let moment = Timestamp::from_nanos(old.last_moment(bucket).min(latest));
                self.record(&mut moved, self.bucket(moment), kept);
            }
        }
        *state = moved;
    }

    fn waiting(&self) -> Waiting {
        Waiting::Queues
    }

    fn heap_bytes(&self, state: &SlidingWindowState) -> usize {
        size_of_val(&*state.ring)
    }
}
