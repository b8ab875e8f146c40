//! Sliding window: a ring of small counts that advances bucket by bucket.
//!
//! # How it works
//! The fixed window drops its whole count at once, so twice the limit can pass around its edge. The sliding window is
//! divided into `n` buckets with separate counts, and the current bucket and the `n - 1` before it count:
//!
//! ```text
//!          oldest                             current
//!  ──┬───────┬───────┬───────┬───────┬───────┬──▪────┬──▶ time
//!    │ (old) │   3   │   0   │   1   │   0   │  2    │
//!            │◀────────── n buckets: 6 used ────────▶│
//!                                               now
//! ```
//!
//! Buckets are aligned to the epoch: the bucket of a time is `now / width`, and bucket `b` leaves the window at
//! `(b + n) × width`, all of it at once. The counts are in a ring in which bucket `b` has slot `b mod n`, so nothing is
//! ever moved; slots of buckets that have left are zeroed when the next grant passes over them.
//!
//! # The edge
//! A window that ends now started in the middle of bucket `current - n`, and of that bucket only the sum is known. How
//! much of it counts is the [`Edge`]:
//!
//! ```text
//!            now - window                            now
//!  ──┬──────────┼──┬───────┬───────┬───────┬───────┬──┼────┬──▶ time
//!    │    k     │  │   0   │   1   │   0   │   4   │  2    │
//!    └──────────┴──┘       bucket current - n: loose 0, weighted k × the share right of the line, strict k
//! ```
//!
//! - **loose**: nothing. The counted span is between `(n - 1) / n` of a window and a whole one. So at most `limit` pass
//!   in any `n` adjacent buckets and in any span of `n - 1` bucket widths; but in a whole window up to *twice* the
//!   limit, if it is used up at the end of one bucket and again at the start of the `n`-th after it. One bucket is the
//!   fixed window.
//! - **weighted**: in proportion to the part that the window still covers, like Cloudflare and APISIX. Exact if
//!   requests are evenly distributed within a bucket. There is no burst at the edge: the count of bucket `current - n`
//!   expires gradually over one bucket width. If all of it came at the end of that bucket, up to twice the limit can
//!   still pass in a window.
//! - **strict**: all of it, so that never more than `limit` pass in any window of this length, wherever it starts.
//!   Usage expires up to a bucket width later than in the [`SlidingLog`](super::SlidingLog), which has the same
//!   guarantee without that delay.
//!
//! More buckets make each of them more exact. If the number of buckets does not divide the window, their width is
//! rounded up, and if a precision does not, their number is: the window is longer than configured, never shorter.
//!
//! # What always holds (tests/it/laws.rs, tests/it/window_models.rs, tests/it/sliding_window.rs)
//! - At most `limit` in any `n` adjacent buckets; strict: in any `n + 1`, and so in any window.
//! - The retry time is when enough usage for *this* cost has left the window, to the nanosecond.

use crate::{
    Algorithm, Cost, InvalidWindow, MaxWait, Outcome, Properties, Quota, Receipt, Refund, Restores, Status, Timestamp,
    WaitMode, words,
};
use std::time::Duration;

mod ring;

pub use ring::SlidingWindowState;

/// The largest number of buckets: 2¹⁷, a megabyte for each key.
///
/// A day in steps of a second fits.
pub const MAX_BUCKETS: u64 = 1 << 17;

const DEFAULT_BUCKETS: u64 = 10;

/// How much the oldest bucket counts, which the window covers only in part.
///
/// ```
/// use diana_core::{Algorithm, Cost, Edge, Quota, SlidingWindow, Timestamp};
///
/// let (window, eight) = (SlidingWindow::new(Quota::per_minute(10)?), Cost::new(8)?);
/// let remaining = |edge| {
///     let window = window.clone().with_edge(edge);
///     let mut state = window.fresh(Timestamp::EPOCH);
///     window.charge(&mut state, Timestamp::from_secs(5), eight); // the first of ten buckets of six seconds
///     window.status(&state, Timestamp::from_secs(63)).remaining // a minute after the middle of that bucket
/// };
/// assert_eq!([remaining(Edge::Loose), remaining(Edge::Weighted), remaining(Edge::Strict)], [10, 6, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Edge {
    /// The oldest bucket does not count: at most the limit in any [`buckets`](SlidingWindow::buckets) adjacent buckets, and up to twice the
    /// limit in a window that starts and ends in the middle of one.
    #[default]
    Loose,
    /// The part that the window covers counts, rounded up: exact if requests are even within a bucket.
    Weighted,
    /// The oldest bucket counts fully: never more than the limit in any window of this length.
    Strict,
}

/// At most `quota.permits()` in the last `quota.period()`, to within a bucket. The quota's burst is not used.
///
/// The [`Edge`] determines what happens within that bucket: by default up to twice the limit can pass in one window, if
/// it is used up at the end of a bucket and again one window later; [`Edge::Strict`] prevents that.
///
/// ```
/// use diana_core::{Algorithm, Cost, MaxWait, Quota, Retry, SlidingWindow, Timestamp};
/// use std::time::Duration;
///
/// let window = SlidingWindow::new("2/10s".parse()?); // ten buckets of a second
/// let mut state = window.fresh(Timestamp::EPOCH);
/// let mut ask = |ms| window.take(&mut state, Timestamp::from_millis(ms), Cost::ONE, MaxWait::NONE);
///
/// assert!(ask(9_500).is_granted());
/// assert!(ask(10_000).is_granted()); // a fixed window would restart here
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
    edge: Edge,
}

impl SlidingWindow {
    /// Creates a window of `quota.period()` in ten buckets.
    pub fn new(quota: Quota) -> Self {
        Self::divided(quota, quota.period_nanos().div_ceil(DEFAULT_BUCKETS), Edge::Loose)
    }

    /// Returns the same window in `buckets` buckets, or fewer if it has fewer nanoseconds.
    pub fn with_buckets(self, buckets: u64) -> Result<Self, InvalidWindow> {
        match buckets {
            1..=MAX_BUCKETS => Ok(Self::divided(self.quota, self.quota.period_nanos().div_ceil(buckets), self.edge)),
            _ => Err(InvalidWindow::Buckets(buckets)),
        }
    }

    /// Returns the same window in buckets of `precision`, as many as are needed to cover it.
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
        // A bucket longer than the window would make the window longer than configured; the minimum is one bucket.
        let divided = Self::divided(self.quota, crate::time::saturating_nanos(precision.min(window)), self.edge);
        if divided.buckets > MAX_BUCKETS {
            let least = Duration::from_nanos(period.div_ceil(MAX_BUCKETS));
            return Err(InvalidWindow::TooPrecise { precision, window, buckets: divided.buckets, least });
        }
        Ok(divided)
    }

    /// Returns the same window with another [`Edge`].
    #[must_use]
    pub fn with_edge(mut self, edge: Edge) -> Self {
        self.edge = edge;
        self
    }

    /// Returns how much the oldest bucket counts, which the window covers only in part.
    pub fn edge(&self) -> Edge {
        self.edge
    }

    /// Returns the configured limit and window length.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Returns the number of buckets that may count at a time: one more than [`buckets`](Self::buckets) if the oldest one
    /// counts, which the window covers only in part.
    ///
    /// ```
    /// use diana_core::{Edge, Quota, SlidingWindow};
    ///
    /// let window = SlidingWindow::new(Quota::per_minute(5)?);
    /// assert_eq!(window.counted_buckets(), 10);
    /// assert_eq!(window.with_edge(Edge::Strict).counted_buckets(), 11);
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub fn counted_buckets(&self) -> u64 {
        self.buckets + u64::from(self.edge != Edge::Loose)
    }

    /// Returns the length of one bucket.
    pub fn precision(&self) -> Duration {
        Duration::from_nanos(self.width)
    }

    /// Returns when a permit taken from a fresh state at `now` is restored: when the bucket of `now` no longer counts.
    pub fn restored_at(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(u64::try_from(self.expires_at(self.bucket(now))).unwrap_or(u64::MAX))
    }

    fn divided(quota: Quota, width: u64, edge: Edge) -> Self {
        Self { quota, width, buckets: quota.period_nanos().div_ceil(width), edge }
    }

    #[inline]
    fn bucket(&self, time: Timestamp) -> u64 {
        time.as_nanos() / self.width
    }

    /// Returns when `bucket` no longer counts, in nanoseconds.
    #[inline]
    fn expires_at(&self, bucket: u64) -> u128 {
        (u128::from(bucket) + u128::from(self.counted_buckets())) * u128::from(self.width)
    }

    /// Returns the position of `now`, for a key in `state`.
    #[inline]
    fn position(&self, state: &SlidingWindowState, now: Timestamp) -> Position {
        let bucket = self.bucket(now);
        let current = state.current(bucket);
        // A time that went back counts as the start of the newest bucket.
        let into = if current == bucket { now.as_nanos() % self.width } else { 0 };
        Position { current, covered: self.width - into }
    }

    /// Returns how much of the count of `bucket` is in use.
    #[inline]
    fn counted(&self, position: &Position, bucket: u64, count: u64) -> u64 {
        if self.edge == Edge::Weighted && bucket.checked_add(self.buckets) == Some(position.current) {
            share(count, position.covered, self.width)
        } else {
            count
        }
    }

    /// Returns the permits in use.
    #[inline]
    fn used(&self, state: &SlidingWindowState, position: &Position) -> u64 {
        match self.edge {
            Edge::Loose | Edge::Strict => state.used(position.current),
            Edge::Weighted => state
                .counts(position.current)
                .fold(0, |sum, (bucket, count)| sum.saturating_add(self.counted(position, bucket, count))),
        }
    }

    /// Returns when no more than `max_used` will be in use, in nanoseconds, if more is in use now.
    fn freed_at(&self, state: &SlidingWindowState, position: &Position, max_used: u64) -> u128 {
        // When this bucket leaves the window, and not when the one before it does.
        let (counts, max_used) = (|| state.counts(position.current), u128::from(max_used));
        let mut remaining: u128 = counts().map(|(_, count)| u128::from(count)).sum();
        let freeing = counts().find(|(_, count)| {
            remaining -= u128::from(*count);
            *count > 0 && remaining <= max_used
        });
        let Some((bucket, count)) = freeing else { return u128::MAX };
        let early = match self.edge {
            Edge::Loose | Edge::Strict => 0,
            // The window may still cover this much of it.
            Edge::Weighted => {
                let covered = (max_used - remaining).saturating_mul(self.width.into()) / u128::from(count);
                covered.min(self.width.into())
            }
        };
        self.expires_at(bucket) - early
    }

    /// Returns the outcome of an ask, and its bucket.
    fn decide(&self, state: &SlidingWindowState, now: Timestamp, cost: Cost) -> (Outcome, u64) {
        let position = self.position(state, now);
        let Some(max_used) = self.quota.permits().checked_sub(cost.get()) else {
            return (Outcome::never(), position.current);
        };
        let outcome = if self.used(state, &position) > max_used {
            Outcome::denied_until(self.freed_at(state, &position, max_used), now)
        } else {
            Outcome::granted(Receipt::new(cost, now).with_mark(u128::from(self.last_nanos(position.current))))
        };
        (outcome, position.current)
    }

    /// Returns `state` with `excess` less in use, oldest first.
    fn without_oldest(&self, state: &SlidingWindowState, position: &Position, mut excess: u64) -> SlidingWindowState {
        let mut kept = SlidingWindowState::default();
        for (bucket, count) in state.counts(position.current) {
            let counted = self.counted(position, bucket, count);
            let dropped = counted.min(excess);
            excess -= dropped;
            let new_count = match counted - dropped {
                _ if dropped == 0 => count,
                rest if counted == count => rest,
                // The highest count whose share is at most `rest`.
                rest => narrow(u128::from(rest) * u128::from(self.width) / u128::from(position.covered)),
            };
            if new_count > 0 {
                kept.record(bucket, new_count, self.counted_buckets());
            }
        }
        kept
    }

    /// Returns the last nanosecond of `bucket`: the time of a bucket's usage if the buckets change.
    fn last_nanos(&self, bucket: u64) -> u64 {
        bucket.saturating_mul(self.width).saturating_add(self.width - 1)
    }
}

/// The position of a time.
#[derive(Clone, Copy, Debug)]
struct Position {
    /// Its bucket.
    current: u64,
    /// How much of the oldest bucket a window that ends at this time still covers, in nanoseconds: at least 1.
    covered: u64,
}

/// Returns `count × covered / width`, rounded up: usage is an integer, so a fraction of a permit counts as one.
fn share(count: u64, covered: u64, width: u64) -> u64 {
    narrow((u128::from(count) * u128::from(covered)).div_ceil(u128::from(width)))
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

impl Algorithm for SlidingWindow {
    type State = SlidingWindowState;

    fn properties(&self) -> Properties<'_> {
        Properties {
            restores: Restores::InWindows(std::slice::from_ref(&self.quota)),
            doubles_at_edges: self.edge == Edge::Loose,
            ..Properties::default()
        }
    }

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        let (permits, step) = (self.quota.permits(), words::duration(self.precision()));
        // If the precision does not divide the window, the window is longer than configured.
        let window = words::period(Duration::from_nanos(self.width.saturating_mul(self.buckets)));
        Some(match self.edge {
            Edge::Loose => format!("{permits} in a sliding {window}, in steps of {step}; {}", words::TWICE),
            Edge::Weighted => format!("{permits} in a sliding {window}, in steps of {step}, the oldest in proportion"),
            Edge::Strict => format!("at most {permits} in any {window}, in steps of {step}"),
        })
    }

    fn fresh(&self, _now: Timestamp) -> SlidingWindowState {
        SlidingWindowState::default()
    }

    #[inline]
    fn take(&self, state: &mut SlidingWindowState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
        let (outcome, current) = self.decide(state, now, cost);
        if outcome.is_granted() {
            state.record(current, cost.get(), self.counted_buckets());
        }
        outcome
    }

    fn peek(&self, state: &SlidingWindowState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
        self.decide(state, now, cost).0
    }

    fn status(&self, state: &SlidingWindowState, now: Timestamp) -> Status {
        let (limit, position) = (self.quota.permits(), self.position(state, now));
        let remaining = limit.saturating_sub(self.used(state, &position));
        let reset = state.oldest(position.current).map_or(Duration::ZERO, |oldest| {
            Timestamp::from_nanos(u64::try_from(self.expires_at(oldest)).unwrap_or(u64::MAX)).since(now)
        });
        Status { limit, remaining, reset }
    }

    fn charge(&self, state: &mut SlidingWindowState, now: Timestamp, cost: Cost) {
        state.record(state.current(self.bucket(now)), cost.get(), self.counted_buckets());
    }

    fn refund(&self, state: &mut SlidingWindowState, now: Timestamp, receipt: &Receipt) -> Refund {
        let granted = Timestamp::from_nanos(u64::try_from(receipt.mark()).unwrap_or(u64::MAX));
        // After a change of buckets, the then current bucket's count may be in a narrower one.
        let bucket = self.bucket(granted).min(state.newest());
        match state.refund(bucket, state.current(self.bucket(now)), receipt.cost().get()) {
            0 => Refund::Void,
            _ => Refund::Returned,
        }
    }

    fn is_fresh(&self, state: &SlidingWindowState, now: Timestamp) -> bool {
        state.used(state.current(self.bucket(now))) == 0
    }

    /// Moves the count of each bucket to the new bucket of its last nanosecond (of `now`, for the current one): usage
    /// expires no earlier than it would have. Over the new limit the oldest usage is dropped.
    fn rescale(&self, state: &mut SlidingWindowState, old: &Self, now: Timestamp) {
        let same_buckets = (self.width, self.buckets, self.edge) == (old.width, old.buckets, old.edge);
        if !same_buckets {
            let mut moved = SlidingWindowState::default();
            let latest = now.as_nanos().max(state.newest().saturating_mul(old.width));
            for (bucket, count) in state.counts(state.current(old.bucket(now))).filter(|(_, count)| *count > 0) {
                let time = Timestamp::from_nanos(old.last_nanos(bucket).min(latest));
                moved.record(self.bucket(time), count, self.counted_buckets());
            }
            *state = moved;
        }
        let position = self.position(state, now);
        let excess = self.used(state, &position).saturating_sub(self.quota.permits());
        if excess > 0 {
            *state = self.without_oldest(state, &position, excess);
        }
    }

    fn encode(&self, state: &SlidingWindowState, words: &mut Vec<u64>) -> bool {
        words.extend(state.in_use().flat_map(|(bucket, permits)| [bucket, permits]));
        true
    }

    fn decode(&self, words: &[u64]) -> Option<SlidingWindowState> {
        let (pairs, []) = words.as_chunks() else { return None };
        Some(SlidingWindowState::from_counts(self, pairs.iter().map(|&[bucket, permits]| (bucket, permits))))
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Queue
    }

    fn heap_bytes(&self, state: &SlidingWindowState) -> usize {
        state.heap_bytes()
    }

    fn heap_growth(&self, state: &SlidingWindowState, _now: Timestamp) -> usize {
        match state.heap_bytes() {
            0 => usize::try_from(self.counted_buckets()).unwrap_or(usize::MAX).saturating_mul(size_of::<u64>()),
            _ => 0,
        }
    }
}
