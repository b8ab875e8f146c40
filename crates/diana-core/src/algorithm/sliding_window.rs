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
//! # What always holds (tests/it/laws.rs, tests/it/window_models.rs, tests/it/sliding_window.rs)
//! - At most `limit` in any `n` neighbouring buckets.
//! - The retry time is the moment at which enough buckets for *this* cost have left.

use crate::{Algorithm, Cost, InvalidWindow, Outcome, Patience, Quota, Receipt, Refund, Standing, Timestamp, Waiting};
use std::time::Duration;

mod ring;

pub use ring::SlidingWindowState;

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

    /// What an ask gets, and the bucket that it belongs to.
    fn judge(&self, state: &SlidingWindowState, now: Timestamp, cost: Cost) -> (Outcome, u64) {
        let limit = self.quota.permits();
        let current = state.current(self.bucket(now));
        if cost.get() > limit {
            return (Outcome::never(), current);
        }
        let excess = state.used(current).saturating_add(cost.get()).saturating_sub(limit);
        let outcome = match state.freeing(current, excess) {
            Some(bucket) if excess > 0 => Outcome::denied_until(self.leaves(bucket), now),
            _ => Outcome::granted(Receipt::new(cost, now).with_mark(u128::from(self.last_moment(current)))),
        };
        (outcome, current)
    }

    /// The last nanosecond of `bucket`: what a bucket's use counts as, should the buckets change.
    fn last_moment(&self, bucket: u64) -> u64 {
        bucket.saturating_mul(self.width).saturating_add(self.width - 1)
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
            state.record(current, cost.get(), self.buckets);
        }
        outcome
    }

    fn peek(&self, state: &SlidingWindowState, now: Timestamp, cost: Cost, _patience: Patience) -> Outcome {
        self.judge(state, now, cost).0
    }

    fn standing(&self, state: &SlidingWindowState, now: Timestamp) -> Standing {
        let (limit, current) = (self.quota.permits(), state.current(self.bucket(now)));
        let remaining = limit.saturating_sub(state.used(current));
        let reset = state.freeing(current, 1).map_or(Duration::ZERO, |oldest| {
            Timestamp::from_nanos(u64::try_from(self.leaves(oldest)).unwrap_or(u64::MAX)).since(now)
        });
        Standing { limit, remaining, reset }
    }

    fn charge(&self, state: &mut SlidingWindowState, now: Timestamp, cost: Cost) {
        state.record(state.current(self.bucket(now)), cost.get(), self.buckets);
    }

    fn refund(&self, state: &mut SlidingWindowState, now: Timestamp, receipt: &Receipt) -> Refund {
        let granted = Timestamp::from_nanos(u64::try_from(receipt.mark()).unwrap_or(u64::MAX));
        // After a change of buckets, what was current then may have been put into a narrower one.
        let bucket = self.bucket(granted).min(state.newest());
        match state.take_back(bucket, state.current(self.bucket(now)), receipt.cost().get()) {
            0 => Refund::Void,
            _ => Refund::Returned,
        }
    }

    fn is_fresh(&self, state: &SlidingWindowState, now: Timestamp) -> bool {
        state.used(state.current(self.bucket(now))) == 0
    }

    /// Puts the count of each bucket into the new bucket of its last moment (of `now`, for the current one): what is in
    /// use leaves no earlier than it would have. Above the new limit the oldest use is let go.
    fn rescale(&self, state: &mut SlidingWindowState, old: &Self, now: Timestamp) {
        let current = state.current(old.bucket(now));
        let used = state.used(current);
        let same_buckets = self.width == old.width && self.buckets == old.buckets;
        if same_buckets && used <= self.quota.permits() {
            return;
        }
        let mut excess = used.saturating_sub(self.quota.permits());
        let mut moved = SlidingWindowState::default();
        let latest = now.as_nanos().max(state.newest().saturating_mul(old.width));
        for (bucket, count) in state.counts(current) {
            let let_go = count.min(excess);
            excess -= let_go;
            if count > let_go {
                let moment = Timestamp::from_nanos(old.last_moment(bucket).min(latest));
                moved.record(self.bucket(moment), count - let_go, self.buckets);
            }
        }
        *state = moved;
    }

    fn waiting(&self) -> Waiting {
        Waiting::Queues
    }

    fn heap_bytes(&self, state: &SlidingWindowState) -> usize {
        state.heap_bytes()
    }
}
