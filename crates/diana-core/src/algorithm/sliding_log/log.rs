//! The log: times of grants in order, each with a running total of all grants up to it.
//!
//! ```text
//!  before   time  3 s   7 s   8 s
//!    40     total  41    43    44      granted at 7 s: 43 - 41 = 2;  since 7 s: 44 - 41 = 3
//! ```
//!
//! With a running total, every lookup is a difference of two entries, found by binary search. Totals wrap around after
//! 2⁶⁴ permits; differences stay correct as long as less than [`MAX_TOTAL`] is in the log at once.

use crate::{Quota, Timestamp};
use std::collections::VecDeque;

/// The state of a [`SlidingLog`](crate::SlidingLog): the log, which is allocated by the first grant.
///
/// ```
/// use diana_core::{Algorithm, Quota, SlidingLog, SlidingLogState, Timestamp};
///
/// let log = SlidingLog::new(Quota::per_minute(5)?);
/// assert_eq!(log.fresh(Timestamp::EPOCH), SlidingLogState::default());
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
///
/// An external store reads and writes it as times with the permits granted at each:
///
/// ```
/// use diana_core::{SlidingLogState, Timestamp};
///
/// let granted = [(Timestamp::from_secs(7), 2), (Timestamp::from_secs(8), 1)];
/// assert!(SlidingLogState::from_entries(granted).entries().eq(granted));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLogState {
    /// The running total before the first entry.
    before: u64,
    /// The entries in ascending order of time.
    entries: VecDeque<LogEntry>,
}

/// A time with grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogEntry {
    time: Timestamp,
    /// All permits granted up to and including this time. It wraps around: only differences are meaningful, and those
    /// are less than [`MAX_TOTAL`].
    total: u64,
}

/// The maximum total of a log, charges included, so that differences of running totals are never ambiguous.
const MAX_TOTAL: u64 = u64::MAX / 2;

impl SlidingLogState {
    /// Creates the log of these times, oldest first, with the permits granted at each. Equal times are merged, and a
    /// time before its predecessor counts as the predecessor's.
    pub fn from_entries(entries: impl IntoIterator<Item = (Timestamp, u64)>) -> Self {
        let mut state = Self::default();
        for (time, permits) in entries {
            state.record(time, permits, u64::MAX);
        }
        state
    }

    /// Returns the times, oldest first, with the permits granted at each.
    pub fn entries(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        self.entries.iter().enumerate().map(|(index, entry)| (entry.time, self.permits_at(index)))
    }

    /// Returns `now`, or the newest entry's time if that is later: time does not go back.
    #[inline]
    pub(super) fn time(&self, now: Timestamp) -> Timestamp {
        self.entries.back().map_or(now, |newest| newest.time.max(now))
    }

    /// Returns the index of the first entry that still counts in `window`; the log's length if there is none.
    #[inline]
    pub(super) fn first_in(&self, window: &Quota, now: Timestamp) -> usize {
        let (time, length) = (self.time(now).as_nanos(), window.period_nanos());
        self.entries.partition_point(|entry| time - entry.time.as_nanos() >= length)
    }

    /// Returns the running total before the entry at `index`.
    #[inline]
    fn total_before(&self, index: usize) -> u64 {
        index.checked_sub(1).and_then(|before| self.entries.get(before)).map_or(self.before, |entry| entry.total)
    }

    #[inline]
    fn total(&self) -> u64 {
        self.total_before(self.entries.len())
    }

    /// Returns the permits granted from the entry at `first` on.
    #[inline]
    pub(super) fn used(&self, first: usize) -> u64 {
        self.total().wrapping_sub(self.total_before(first))
    }

    /// Returns when `permits` of those counted from the entry at `first` on will have left `window`, in nanoseconds.
    pub(super) fn freed_at(&self, first: usize, permits: u64, window: &Quota) -> Option<u128> {
        // Counted from the log's start, where totals are ascending, whether or not they have wrapped around.
        let enough = self.total_before(first).wrapping_sub(self.before).saturating_add(permits);
        let index = self.entries.partition_point(|entry| entry.total.wrapping_sub(self.before) < enough);
        let entry = self.entries.get(index)?;
        Some(u128::from(entry.time.as_nanos()) + u128::from(window.period_nanos()))
    }

    /// Returns each time with its permits, from the newest entry to the one at `first`.
    pub(super) fn newest_first(&self, first: usize) -> impl Iterator<Item = (Timestamp, u64)> {
        (first..self.entries.len())
            .rev()
            .filter_map(|index| Some((self.entries.get(index)?.time, self.permits_at(index))))
    }

    /// Returns the index of the entry of exactly this time, in nanoseconds.
    pub(super) fn find(&self, nanos: u128) -> Option<usize> {
        self.entries.binary_search_by_key(&nanos, |entry| u128::from(entry.time.as_nanos())).ok()
    }

    /// Records `permits` at `now`, in at most `max_entries` entries.
    pub(super) fn record(&mut self, now: Timestamp, permits: u64, max_entries: u64) {
        let free = MAX_TOTAL.saturating_sub(self.used(0));
        let entry = LogEntry { time: self.time(now), total: self.total().wrapping_add(permits.min(free)) };
        let is_full = u64::try_from(self.entries.len()).is_ok_and(|length| length >= max_entries);
        match self.entries.back_mut() {
            // When the log is full no ask is granted, so only a charge can find it full. The newest entry takes it, and
            // expires later because of it.
            Some(newest) if newest.time == entry.time || is_full => *newest = entry,
            _ => {
                self.entries.reserve_exact(self.added_slots(self.entries.len()));
                self.entries.push_back(entry);
            }
        }
    }

    /// Returns the bytes that [`record`](Self::record) at `now` adds, after the entries before the one at `first` are dropped.
    pub(super) fn heap_growth(&self, first: usize, now: Timestamp, max_entries: u64) -> usize {
        let length = self.entries.len() - first;
        let is_full = u64::try_from(length).is_ok_and(|length| length >= max_entries);
        let newest = self.entries.back().filter(|_| length > 0);
        match newest {
            Some(newest) if newest.time >= now || is_full => 0,
            _ if length < self.entries.capacity() => 0,
            _ => self.added_slots(length) * size_of::<LogEntry>(),
        }
    }

    /// Returns the slots that a log of `length` entries adds for one more; 0 if it has a free one.
    fn added_slots(&self, length: usize) -> usize {
        match self.entries.capacity() {
            capacity if length < capacity => 0,
            0 => 4,
            // Memory that is used up should not be half empty.
            capacity @ 1..64 => capacity,
            capacity => capacity / 4,
        }
    }

    /// Removes `permits` from the entry at `index`, at most all of its permits.
    pub(super) fn refund(&mut self, index: usize, permits: u64) {
        let granted = self.permits_at(index);
        let returned = granted.min(permits);
        for entry in self.entries.iter_mut().skip(index) {
            entry.total = entry.total.wrapping_sub(returned);
        }
        if returned == granted {
            self.entries.remove(index);
        }
    }

    /// Drops the entries before the one at `first`.
    pub(super) fn drop_first(&mut self, first: usize) {
        self.before = self.total_before(first);
        self.entries.drain(..first);
    }

    /// Drops the oldest `permits`.
    pub(super) fn drop_oldest(&mut self, permits: u64) {
        let before = self.before.wrapping_add(permits);
        let first = self.entries.partition_point(|entry| entry.total.wrapping_sub(self.before) <= permits);
        self.drop_first(first);
        // This may drop a part of the first remaining entry.
        self.before = before;
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<LogEntry>()
    }

    /// Returns the permits granted at the time of the entry at `index`.
    fn permits_at(&self, index: usize) -> u64 {
        self.entries.get(index).map_or(0, |entry| entry.total.wrapping_sub(self.total_before(index)))
    }
}
