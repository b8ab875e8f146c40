//! The log itself: moments by time, each with a running total of all that was granted up to it.
//!
//! ```text
//!  before   time  3 s   7 s   8 s
//!    40     total  41    43    44      granted at 7 s: 43 - 41 = 2;  since 7 s: 44 - 41 = 3
//! ```
//!
//! A running total makes every question a difference of two entries, found by binary search. Totals wrap around after
//! 2⁶⁴ permits; differences don't mind, as long as less than [`MOST`] is in the log at once.

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
/// A store that keeps its states elsewhere reads and writes them as moments with what was granted at each:
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
    /// By time, each later than the one before.
    entries: VecDeque<Entry>,
}

/// A moment at which something was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    time: Timestamp,
    /// All that was granted up to and including this moment. It wraps around: only differences have a meaning, and
    /// those are less than [`MOST`].
    total: u64,
}

/// The most that a log may hold, charges included, so that differences of running totals are never ambiguous.
const MOST: u64 = u64::MAX / 2;

impl SlidingLogState {
    /// The log of these moments, oldest first, with what was granted at each. Those of one moment come together, and one
    /// that lies before the one before it counts as at that one's time.
    pub fn from_entries(entries: impl IntoIterator<Item = (Timestamp, u64)>) -> Self {
        let mut state = Self::default();
        for (time, permits) in entries {
            state.record(time, permits, u64::MAX);
        }
        state
    }

    /// The moments, oldest first, with what was granted at each.
    pub fn entries(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        self.entries.iter().enumerate().map(|(place, entry)| (entry.time, self.held(place)))
    }

    /// `now`, or the newest entry's time if that is later: time does not go back.
    #[inline]
    pub(super) fn time(&self, now: Timestamp) -> Timestamp {
        self.entries.back().map_or(now, |newest| newest.time.max(now))
    }

    /// The place of the first entry that still counts in `window`; the log's length if there is none.
    #[inline]
    pub(super) fn first_in(&self, window: &Quota, now: Timestamp) -> usize {
        let (time, length) = (self.time(now).as_nanos(), window.period_nanos());
        self.entries.partition_point(|entry| time - entry.time.as_nanos() >= length)
    }

    /// The running total before the entry at `place`.
    #[inline]
    fn total_before(&self, place: usize) -> u64 {
        place.checked_sub(1).and_then(|before| self.entries.get(before)).map_or(self.before, |entry| entry.total)
    }

    #[inline]
    fn total(&self) -> u64 {
        self.total_before(self.entries.len())
    }

    /// How much was granted from the entry at `first` on.
    #[inline]
    pub(super) fn used(&self, first: usize) -> u64 {
        self.total().wrapping_sub(self.total_before(first))
    }

    /// When `permits` of what counts from the entry at `first` on will have left `window`, in nanoseconds.
    pub(super) fn freeing(&self, first: usize, permits: u64, window: &Quota) -> Option<u128> {
        // Counted from the log's beginning, where totals rise all the way, whether or not they have wrapped around.
        let enough = self.total_before(first).wrapping_sub(self.before).saturating_add(permits);
        let place = self.entries.partition_point(|entry| entry.total.wrapping_sub(self.before) < enough);
        let entry = self.entries.get(place)?;
        Some(u128::from(entry.time.as_nanos()) + u128::from(window.period_nanos()))
    }

    /// From the newest entry to the one at `first`: when, and how much at that moment.
    pub(super) fn newest_first(&self, first: usize) -> impl Iterator<Item = (Timestamp, u64)> {
        (first..self.entries.len()).rev().filter_map(|place| Some((self.entries.get(place)?.time, self.held(place))))
    }

    /// The place of the entry of this very moment, in nanoseconds.
    pub(super) fn find(&self, moment: u128) -> Option<usize> {
        self.entries.binary_search_by_key(&moment, |entry| u128::from(entry.time.as_nanos())).ok()
    }

    /// Writes `permits` at `now`, in at most `most_entries` entries.
    pub(super) fn record(&mut self, now: Timestamp, permits: u64, most_entries: u64) {
        let room = MOST.saturating_sub(self.used(0));
        let entry = Entry { time: self.time(now), total: self.total().wrapping_add(permits.min(room)) };
        let is_full = u64::try_from(self.entries.len()).is_ok_and(|length| length >= most_entries);
        match self.entries.back_mut() {
            // When the log is full no ask is granted, so only a charge comes here as "full". The newest entry takes it in,
            // and leaves later for it.
            Some(newest) if newest.time == entry.time || is_full => *newest = entry,
            _ => {
                self.entries.reserve_exact(self.added_places(self.entries.len()));
                self.entries.push_back(entry);
            }
        }
    }

    /// Bytes that [`record`](Self::record) at `now` adds, once the entries before the one at `first` are dropped.
    pub(super) fn heap_growth(&self, first: usize, now: Timestamp, most_entries: u64) -> usize {
        let left = self.entries.len() - first;
        let is_full = u64::try_from(left).is_ok_and(|length| length >= most_entries);
        let newest = self.entries.back().filter(|_| left > 0);
        match newest {
            Some(newest) if newest.time >= now || is_full => 0,
            _ if left < self.entries.capacity() => 0,
            _ => self.added_places(left) * size_of::<Entry>(),
        }
    }

    /// Places that a log of `length` entries gets in order to take one more; 0 if it has a free one.
    fn added_places(&self, length: usize) -> usize {
        match self.entries.capacity() {
            capacity if length < capacity => 0,
            0 => 4,
            // Whoever finds the memory used up should not find it half empty.
            capacity @ 1..64 => capacity,
            capacity => capacity / 4,
        }
    }

    /// Takes `permits` back from the entry at `place`, at most what it holds.
    pub(super) fn take_back(&mut self, place: usize, permits: u64) {
        let held = self.held(place);
        let returned = held.min(permits);
        for entry in self.entries.iter_mut().skip(place) {
            entry.total = entry.total.wrapping_sub(returned);
        }
        if returned == held {
            self.entries.remove(place);
        }
    }

    /// Drops the entries before the one at `first`.
    pub(super) fn drop_first(&mut self, first: usize) {
        self.before = self.total_before(first);
        self.entries.drain(..first);
    }

    /// Lets the oldest `permits` go.
    pub(super) fn let_go(&mut self, permits: u64) {
        let gone = self.before.wrapping_add(permits);
        let first = self.entries.partition_point(|entry| entry.total.wrapping_sub(self.before) <= permits);
        self.drop_first(first);
        // Perhaps a part of the entry that is the first now.
        self.before = gone;
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// How much was granted at the moment of the entry at `place`.
    fn held(&self, place: usize) -> u64 {
        self.entries.get(place).map_or(0, |entry| entry.total.wrapping_sub(self.total_before(place)))
    }
}
