//! The ring: the counts of the newest `n` buckets, bucket `b` at slot `b mod n`.
//!
//! ```text
//!  slot       0   1   2   3   4
//!           ┌───┬───┬───┬───┬───┐
//!  bucket   │ 15│ 16│ 12│ 13│ 14│    newest 16, n = 5: bucket 17 will replace bucket 12
//!           └───┴───┴───┴───┴───┘
//! ```
//!
//! Nothing is ever moved. Slots of buckets that have left the window are zeroed when a grant passes over them, and not
//! before, so that a peek changes nothing; a read passes the current bucket, and skips buckets that have left by then.

use crate::SlidingWindow;

/// The state of a [`SlidingWindow`]: the ring of counts, which is allocated by the first grant.
///
/// ```
/// use diana_core::{Algorithm, Cost, MaxWait, Quota, SlidingWindow, Timestamp};
///
/// let window = SlidingWindow::new(Quota::per_minute(5)?);
/// let mut state = window.fresh(Timestamp::EPOCH);
/// assert_eq!(window.heap_bytes(&state), 0);
/// assert!(window.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::NONE).is_granted());
/// assert_eq!(window.heap_bytes(&state), 80);
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
///
/// An external store reads and writes it as bucket numbers with their counts. The bucket of a time is the time divided
/// by the [`precision`](SlidingWindow::precision), rounded down:
///
/// ```
/// use diana_core::{Quota, SlidingWindow, SlidingWindowState};
///
/// let window = SlidingWindow::new(Quota::per_minute(5)?);
/// let counts = [(70, 2), (73, 1)];
/// assert!(SlidingWindowState::from_counts(&window, counts).in_use().eq(counts));
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowState {
    /// The newest bucket with a slot in the ring; 0 if nothing is in use.
    newest: u64,
    ring: Box<[u64]>,
}

impl SlidingWindowState {
    /// Creates the state under `window` with these buckets, oldest first, and their counts.
    pub fn from_counts(window: &SlidingWindow, counts: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut state = Self::default();
        for (bucket, permits) in counts {
            state.record(state.current(bucket), permits, window.counted_buckets());
        }
        state
    }

    /// Returns the buckets in use, oldest first, with their counts. The newest is included even if all of it was refunded: time
    /// does not go back before it.
    pub fn in_use(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts(self.newest).filter(|(bucket, count)| *count > 0 || (*bucket == self.newest && *bucket > 0))
    }

    /// Returns `bucket`, or the newest in use if that is later: time does not go back.
    #[inline]
    pub(super) fn current(&self, bucket: u64) -> u64 {
        bucket.max(self.newest)
    }

    /// Returns the buckets that are still in the window if `current` is the current one, oldest first, with their counts.
    #[inline]
    pub(super) fn counts(&self, current: u64) -> impl Iterator<Item = (u64, u64)> {
        // The oldest of `n` buckets is `n - 1` before the current one; buckets after the newest are empty.
        let oldest = current.saturating_sub(self.length().saturating_sub(1));
        (oldest..=self.newest).map(|bucket| (bucket, self.ring.get(self.slot(bucket)).copied().unwrap_or(0)))
    }

    /// Returns the permits in use if `current` is the current bucket.
    #[inline]
    pub(super) fn used(&self, current: u64) -> u64 {
        if current == self.newest {
            // The whole ring, in any order: the fast path for a busy key.
            return self.ring.iter().fold(0, |sum, count| sum.saturating_add(*count));
        }
        self.counts(current).fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Returns the oldest bucket in use.
    pub(super) fn oldest(&self, current: u64) -> Option<u64> {
        self.counts(current).find(|(_, count)| *count > 0).map(|(bucket, _)| bucket)
    }

    /// Counts `permits` in bucket `current`, which is no older than the newest, in a ring of `buckets`.
    pub(super) fn record(&mut self, current: u64, permits: u64, buckets: u64) {
        if self.ring.is_empty() {
            let length = usize::try_from(buckets).unwrap_or(usize::MAX);
            *self = Self { newest: current, ring: vec![0; length].into_boxed_slice() };
        }
        if current.saturating_sub(self.newest) >= self.length() {
            self.ring.fill(0);
        } else {
            for passed in self.newest..current {
                self.change(passed + 1, |_| 0);
            }
        }
        self.newest = self.newest.max(current);
        self.change(current, |count| count.saturating_add(permits));
    }

    /// Removes `permits` from `bucket`, at most all of its permits; returns how many were removed.
    pub(super) fn refund(&mut self, bucket: u64, current: u64, permits: u64) -> u64 {
        let granted = self.counts(current).find(|(other, _)| *other == bucket).map_or(0, |(_, count)| count);
        let returned = granted.min(permits);
        if returned > 0 {
            self.change(bucket, |count| count - returned);
        }
        if self.used(self.newest) == 0 {
            // Nothing is in use, so the newest bucket need not be kept.
            self.newest = 0;
        }
        returned
    }

    /// Returns the newest bucket in use; 0 if nothing is.
    #[inline]
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.ring)
    }

    #[inline]
    fn length(&self) -> u64 {
        self.ring.len() as u64
    }

    #[inline]
    fn slot(&self, bucket: u64) -> usize {
        // A number below the ring's length is a `usize`, as the length is.
        usize::try_from(bucket % self.length().max(1)).unwrap_or(0)
    }

    #[inline]
    fn change(&mut self, bucket: u64, new: impl Fn(u64) -> u64) {
        let slot = self.slot(bucket);
        if let Some(count) = self.ring.get_mut(slot) {
            *count = new(*count);
        }
    }
}
