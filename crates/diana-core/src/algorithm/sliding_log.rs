//! Sliding log: the times of all that was granted, so that *every* window keeps the limit, exactly.
//!
//! # How it works
//! Write down when each request was granted. At `now`, those of the last window count:
//!
//! ```text
//!   (left)          ┌──────── window ────────┐
//!  ───▪─────────────▪───▪▪────▪──────────────┼──▶ time
//!                   │◀──────── 4 used ──────▶now
//!                   └ leaves at its time + window: the retry time of the fifth
//! ```
//!
//! An entry of time `t` counts while `now < t + window`, so each window is half-open. Several windows (1 a second *and* 5
//! a minute) look at one log: a request must fit all of them, and is written once.
//!
//! The simplest log, one entry a request, is as long as the limit, and takes a walk to count. Here an entry is a *time*,
//! with a running total of all that was granted up to it. Then requests of one moment are one entry, what a window has
//! used is the difference of two totals, and any question is a binary search.
//!
//! # Where it fails
//! Memory: 16 bytes for each moment at which something was granted in the longest window, at most as many as that
//! window's limit. For a limit in the thousands the [`SlidingWindow`](super::SlidingWindow) does nearly as well in 80.
//!
//! # What always holds (tests/laws.rs, tests/sliding_log.rs)
//! - At most `limit` in every window, wherever one puts it, for each of the windows.
//! - Requests that were denied leave no entry, so a client that keeps trying gets in as soon as one that waited.
//! - The log has at most as many entries as the limit of the longest window, even after charges.

use crate::{Algorithm, Cost, InvalidWindow, Outcome, Patience, Quota, Receipt, Refund, Standing, Timestamp, Waiting};
use std::collections::VecDeque;
use std::time::Duration;

/// At most `quota.permits()` in *every* span of `quota.period()`, for one quota or several. The burst plays no part.
///
/// ```
/// use diana_core::{Algorithm, Cost, Patience, Quota, Retry, SlidingLog, Timestamp};
/// use std::time::Duration;
///
/// let log = SlidingLog::several([Quota::per_second(1)?, Quota::per_minute(2)?])?;
/// let mut state = log.fresh(Timestamp::EPOCH);
/// let mut ask = |secs| log.take(&mut state, Timestamp::from_secs(secs), Cost::ONE, Patience::NONE);
///
/// assert!(ask(100).is_granted());
/// assert_eq!(ask(100).retry(), Some(Retry::After(Duration::from_secs(1)))); // one a second
/// assert!(ask(130).is_granted());
/// assert_eq!(ask(131).retry(), Some(Retry::After(Duration::from_secs(29)))); // two a minute
/// assert!(ask(160).is_granted());
/// # Ok::<(), diana_core::InvalidWindow>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    /// As they were given; never empty.
    windows: Box<[Quota]>,
    /// The longest of them, which says how long an entry matters; of equal ones the largest.
    longest: Quota,
    /// The smallest limit: what a fresh key can take at once.
    limit: u64,
}

/// The state of a [`SlidingLog`]: the log, which is allocated by the first grant.
///
/// ```
/// use diana_core::{Algorithm, Quota, SlidingLog, SlidingLogState, Timestamp};
///
/// let log = SlidingLog::new(Quota::per_minute(5)?);
/// assert_eq!(log.fresh(Timestamp::EPOCH), SlidingLogState::default());
/// # Ok::<(), diana_core::InvalidQuota>(())
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

impl SlidingLog {
    /// At most `quota.permits()` in every span of `quota.period()`.
    pub fn new(quota: Quota) -> Self {
        Self { windows: Box::new([quota]), longest: quota, limit: quota.permits() }
    }

    /// Several windows over one log: a request must fit all of them.
    pub fn several(windows: impl IntoIterator<Item = Quota>) -> Result<Self, InvalidWindow> {
        let windows: Box<[Quota]> = windows.into_iter().collect();
        let longest = windows.iter().max_by_key(|quota| (quota.period(), quota.permits()));
        let limit = windows.iter().map(Quota::permits).min();
        match (longest.copied(), limit) {
            (Some(longest), Some(limit)) => Ok(Self { windows, longest, limit }),
            _ => Err(InvalidWindow::NoWindows),
        }
    }

    /// The windows, in the order in which they were given.
    pub fn windows(&self) -> &[Quota] {
        &self.windows
    }

    /// What each window has used at `now`, in the order in which the windows were given.
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, Patience, Quota, SlidingLog, Timestamp};
    ///
    /// let log = SlidingLog::several([Quota::per_second(1)?, Quota::per_minute(5)?])?;
    /// let mut state = log.fresh(Timestamp::EPOCH);
    /// assert!(log.take(&mut state, Timestamp::from_secs(7), Cost::ONE, Patience::NONE).is_granted());
    ///
    /// let used: Vec<u64> = log.used(&state, Timestamp::from_secs(8)).map(|(_, used)| used).collect();
    /// assert_eq!(used, [0, 1]);
    /// # Ok::<(), diana_core::InvalidWindow>(())
    /// ```
    pub fn used(&self, state: &SlidingLogState, now: Timestamp) -> impl Iterator<Item = (Quota, u64)> {
        self.windows.iter().map(move |window| (*window, state.used(state.first_in(window, now))))
    }

    /// What was granted in the longest window up to `now`, newest first: when, and how much at that moment.
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, Patience, Quota, SlidingLog, Timestamp};
    ///
    /// let log = SlidingLog::new(Quota::per_minute(5)?);
    /// let mut state = log.fresh(Timestamp::EPOCH);
    /// for secs in [10, 40, 40, 75] {
    ///     assert!(log.take(&mut state, Timestamp::from_secs(secs), Cost::ONE, Patience::NONE).is_granted());
    /// }
    /// let recent: Vec<_> = log.recent(&state, Timestamp::from_secs(75)).collect();
    /// assert_eq!(recent, [(Timestamp::from_secs(75), 1), (Timestamp::from_secs(40), 2)]);
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub fn recent(&self, state: &SlidingLogState, now: Timestamp) -> impl Iterator<Item = (Timestamp, u64)> {
        let places = state.first_in(&self.longest, now)..state.entries.len();
        places.rev().filter_map(|place| {
            let entry = state.entries.get(place)?;
            Some((entry.time, entry.total.wrapping_sub(state.total_before(place))))
        })
    }

    /// What an ask gets: denied until the last of the windows has room for it.
    fn judge(&self, state: &SlidingLogState, now: Timestamp, cost: Cost) -> Outcome {
        if cost.get() > self.limit {
            return Outcome::never();
        }
        let free_at = self.windows.iter().filter_map(|window| {
            let first = state.first_in(window, now);
            let excess = state.used(first).saturating_add(cost.get()).saturating_sub(window.permits());
            (excess > 0).then(|| state.freeing(first, excess, window))?
        });
        match free_at.max() {
            Some(moment) => Outcome::denied_until(moment, now),
            None => Outcome::granted(Receipt::new(cost, now).with_mark(u128::from(state.time(now).as_nanos()))),
        }
    }

    /// Writes `permits` at `now`, and drops what has left the longest window.
    fn record(&self, state: &mut SlidingLogState, now: Timestamp, permits: u64) {
        state.drop_first(state.first_in(&self.longest, now));
        let (time, total) = (state.time(now), state.total());
        let room = MOST.saturating_sub(state.used(0));
        let total = total.wrapping_add(permits.min(room));
        let is_full = u64::try_from(state.entries.len()).is_ok_and(|length| length >= self.longest.permits());
        match state.entries.back_mut() {
            Some(newest) if newest.time == time => newest.total = total,
            // Only charges come here. The newest entry takes them in, and leaves later for it.
            Some(newest) if is_full => *newest = Entry { time, total },
            _ => state.entries.push_back(Entry { time, total }),
        }
    }
}

impl SlidingLogState {
    /// `now`, or the newest entry's time if that is later: time does not go back.
    #[inline]
    fn time(&self, now: Timestamp) -> Timestamp {
        self.entries.back().map_or(now, |newest| newest.time.max(now))
    }

    /// The place of the first entry that still counts in `window`; the log's length if there is none.
    #[inline]
    fn first_in(&self, window: &Quota, now: Timestamp) -> usize {
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
    fn used(&self, first: usize) -> u64 {
        self.total().wrapping_sub(self.total_before(first))
    }

    /// When `permits` of what counts from the entry at `first` on will have left `window`, in nanoseconds.
    fn freeing(&self, first: usize, permits: u64, window: &Quota) -> Option<u128> {
        // Counted from the log's beginning, where totals rise all the way, whether or not they have wrapped around.
        let enough = self.total_before(first).wrapping_sub(self.before).saturating_add(permits);
        let place = self.entries.partition_point(|entry| entry.total.wrapping_sub(self.before) < enough);
        let entry = self.entries.get(place)?;
        Some(u128::from(entry.time.as_nanos()) + u128::from(window.period_nanos()))
    }

    fn drop_first(&mut self, count: usize) {
        self.before = self.total_before(count);
        self.entries.drain(..count);
    }

    /// Takes `permits` back from the entry at `place`, at most what it holds.
    fn take_back(&mut self, place: usize, permits: u64) {
        let before = self.total_before(place);
        let held = self.entries.get(place).map_or(0, |entry| entry.total.wrapping_sub(before));
        let returned = held.min(permits);
        for entry in self.entries.iter_mut().skip(place) {
            entry.total = entry.total.wrapping_sub(returned);
        }
        if returned == held {
            self.entries.remove(place);
        }
    }
}

impl Algorithm for SlidingLog {
    type State = SlidingLogState;

    fn fresh(&self, _now: Timestamp) -> SlidingLogState {
        SlidingLogState::default()
    }

    fn take(&self, state: &mut SlidingLogState, now: Timestamp, cost: Cost, _patience: Patience) -> Outcome {
        let outcome = self.judge(state, now, cost);
        if outcome.is_granted() {
            self.record(state, now, cost.get());
        }
        outcome
    }

    fn peek(&self, state: &SlidingLogState, now: Timestamp, cost: Cost, _patience: Patience) -> Outcome {
        self.judge(state, now, cost)
    }

    /// Of the window that has the least left; of several such, the one that gives back last.
    fn standing(&self, state: &SlidingLogState, now: Timestamp) -> Standing {
        let each = self.windows.iter().map(|window| {
            let first = state.first_in(window, now);
            let reset = state.freeing(first, 1, window).map_or(0, |moment| u64::try_from(moment).unwrap_or(u64::MAX));
            (window.permits().saturating_sub(state.used(first)), Timestamp::from_nanos(reset).since(now))
        });
        let least = each.min_by_key(|(remaining, reset)| (*remaining, std::cmp::Reverse(*reset)));
        let (remaining, reset) = least.unwrap_or((self.limit, Duration::ZERO));
        Standing { limit: self.limit, remaining, reset }
    }

    fn charge(&self, state: &mut SlidingLogState, now: Timestamp, cost: Cost) {
        self.record(state, now, cost.get());
    }

    fn refund(&self, state: &mut SlidingLogState, now: Timestamp, receipt: &Receipt) -> Refund {
        let place = state.entries.binary_search_by_key(&receipt.mark(), |entry| u128::from(entry.time.as_nanos()));
        match place {
            Ok(place) if place >= state.first_in(&self.longest, now) => {
                state.take_back(place, receipt.cost().get());
                Refund::Returned
            }
            _ => Refund::Void,
        }
    }

    fn is_fresh(&self, state: &SlidingLogState, now: Timestamp) -> bool {
        state.first_in(&self.longest, now) == state.entries.len()
    }

    /// Keeps the times. Above the limit of the longest window the oldest use is let go; above that of a shorter one
    /// nothing is, since the longer ones still count it.
    fn rescale(&self, state: &mut SlidingLogState, old: &Self, now: Timestamp) {
        if self == old {
            return;
        }
        state.drop_first(state.first_in(&self.longest, now).max(state.first_in(&old.longest, now)));
        let mut excess = state.used(0).saturating_sub(self.longest.permits());
        while excess > 0 {
            let Some(oldest) = state.entries.front() else { break };
            let held = oldest.total.wrapping_sub(state.before);
            if held > excess {
                state.before = state.before.wrapping_add(excess);
                break;
            }
            excess -= held;
            state.drop_first(1);
        }
    }

    fn waiting(&self) -> Waiting {
        Waiting::Queues
    }

    fn heap_bytes(&self, state: &SlidingLogState) -> usize {
        state.entries.capacity() * size_of::<Entry>()
    }
}
