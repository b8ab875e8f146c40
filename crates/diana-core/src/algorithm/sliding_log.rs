//! Sliding log: stores the times of all grants, so that *every* window keeps the limit, exactly.
//!
//! # How it works
//! The time of each grant is stored. At `now`, those of the last window count:
//!
//! ```text
//!  (expired)        ┌──────── window ────────┐
//!  ───▪─────────────▪───▪▪────▪──────────────┼──▶ time
//!                   │◀──────── 4 used ──────▶now
//!                   └ leaves at its time + window: the retry time of the fifth
//! ```
//!
//! An entry of time `t` counts while `now < t + window`, so each window is half-open. Several windows (1 a second *and*
//! 5 a minute) share one log: a request must fit all of them, and is stored once.
//!
//! The simplest log, one entry per request, is as long as the limit, and counting takes a scan. In this one an entry is
//! a *time*, with a running total of all grants up to it. Then requests at the same time are one entry, the usage of a
//! window is the difference of two totals, and every lookup is a binary search.
//!
//! # Where it fails
//! Memory: 16 bytes for each distinct time of a grant in the longest window, at most as many as that window's limit,
//! and up to a quarter more (twice as much below 64 entries), so that not every grant moves the log. For a limit in the
//! thousands the [`SlidingWindow`](super::SlidingWindow) is nearly as exact in 80 bytes.
//!
//! # What always holds (tests/it/laws.rs, tests/it/window_models.rs, tests/it/sliding_log.rs)
//! - At most `limit` in every window, wherever it starts, for each of the windows.
//! - Denied requests leave no entry, so a client that keeps trying is granted as soon as one that waited.
//! - The log has at most as many entries as the limit of the longest window, even after charges.

use crate::{
    Algorithm, Cost, InvalidWindow, MaxWait, Outcome, Properties, Quota, Receipt, Refund, Restores, Status, Timestamp,
    WaitMode, words,
};
use std::time::Duration;

mod log;

pub use log::SlidingLogState;

/// At most `quota.permits()` in *every* span of `quota.period()`, for one quota or several. The burst is not used.
///
/// ```
/// use diana_core::{Algorithm, Cost, MaxWait, Quota, Retry, SlidingLog, Timestamp};
/// use std::time::Duration;
///
/// let log = SlidingLog::several([Quota::per_second(1)?, Quota::per_minute(2)?])?;
/// let mut state = log.fresh(Timestamp::EPOCH);
/// let mut ask = |secs| log.take(&mut state, Timestamp::from_secs(secs), Cost::ONE, MaxWait::NONE);
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
    /// The windows in the configured order; never empty.
    windows: Box<[Quota]>,
    /// The longest of them, which determines how long an entry is kept; of equal ones the one with the highest limit.
    longest: Quota,
    /// The lowest limit: the permits that a fresh key can take at once.
    limit: u64,
}

impl SlidingLog {
    /// Allows at most `quota.permits()` in every span of `quota.period()`.
    pub fn new(quota: Quota) -> Self {
        Self { windows: Box::new([quota]), longest: quota, limit: quota.permits() }
    }

    /// Applies several windows to one log: a request must fit all of them.
    pub fn several(windows: impl IntoIterator<Item = Quota>) -> Result<Self, InvalidWindow> {
        let windows: Box<[Quota]> = windows.into_iter().collect();
        let longest = windows.iter().max_by_key(|quota| (quota.period(), quota.permits()));
        let limit = windows.iter().map(Quota::permits).min();
        match (longest.copied(), limit) {
            (Some(longest), Some(limit)) => Ok(Self { windows, longest, limit }),
            _ => Err(InvalidWindow::NoWindows),
        }
    }

    /// Returns the windows, in the configured order.
    pub fn windows(&self) -> &[Quota] {
        &self.windows
    }

    /// Returns the lowest limit of the windows: the permits that a fresh key can take at once.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the most entries that a key can have: the limit of the longest window.
    pub fn max_entries(&self) -> u64 {
        self.longest.permits()
    }

    /// Returns the usage of each window at `now`, in the configured order.
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, MaxWait, Quota, SlidingLog, Timestamp};
    ///
    /// let log = SlidingLog::several([Quota::per_second(1)?, Quota::per_minute(5)?])?;
    /// let mut state = log.fresh(Timestamp::EPOCH);
    /// assert!(log.take(&mut state, Timestamp::from_secs(7), Cost::ONE, MaxWait::NONE).is_granted());
    ///
    /// let used: Vec<u64> = log.used(&state, Timestamp::from_secs(8)).map(|(_, used)| used).collect();
    /// assert_eq!(used, [0, 1]);
    /// # Ok::<(), diana_core::InvalidWindow>(())
    /// ```
    pub fn used(&self, state: &SlidingLogState, now: Timestamp) -> impl Iterator<Item = (Quota, u64)> {
        self.windows.iter().map(move |window| (*window, state.used(state.first_in(window, now))))
    }

    /// Returns the grants in the longest window up to `now`, newest first: each time with its number of permits.
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, MaxWait, Quota, SlidingLog, Timestamp};
    ///
    /// let log = SlidingLog::new(Quota::per_minute(5)?);
    /// let mut state = log.fresh(Timestamp::EPOCH);
    /// for secs in [10, 40, 40, 75] {
    ///     assert!(log.take(&mut state, Timestamp::from_secs(secs), Cost::ONE, MaxWait::NONE).is_granted());
    /// }
    /// let recent: Vec<_> = log.recent(&state, Timestamp::from_secs(75)).collect();
    /// assert_eq!(recent, [(Timestamp::from_secs(75), 1), (Timestamp::from_secs(40), 2)]);
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub fn recent(&self, state: &SlidingLogState, now: Timestamp) -> impl Iterator<Item = (Timestamp, u64)> {
        state.newest_first(state.first_in(&self.longest, now))
    }

    /// Returns the outcome of an ask: denied until all windows allow it.
    fn decide(&self, state: &SlidingLogState, now: Timestamp, cost: Cost) -> Outcome {
        if cost.get() > self.limit {
            return Outcome::never();
        }
        let free_at = self.windows.iter().filter_map(|window| {
            let first = state.first_in(window, now);
            let excess = state.used(first).saturating_add(cost.get()).saturating_sub(window.permits());
            (excess > 0).then(|| state.freed_at(first, excess, window))?
        });
        match free_at.max() {
            Some(time) => Outcome::denied_until(time, now),
            None => Outcome::granted(Receipt::new(cost, now).with_mark(u128::from(state.time(now).as_nanos()))),
        }
    }

    /// Records `permits` at `now`, and drops entries that have left the longest window.
    fn record(&self, state: &mut SlidingLogState, now: Timestamp, permits: u64) {
        state.drop_first(state.first_in(&self.longest, now));
        state.record(now, permits, self.longest.permits());
    }
}

impl Algorithm for SlidingLog {
    type State = SlidingLogState;

    fn properties(&self) -> Properties<'_> {
        Properties {
            restores: Restores::InWindows(&self.windows),
            max_entries: Some(self.max_entries()),
            ..Properties::default()
        }
    }

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        let describe = |quota: &Quota| format!("at most {} in any {}", quota.permits(), words::period(quota.period()));
        Some(self.windows.iter().map(describe).collect::<Vec<_>>().join(" and "))
    }

    fn fresh(&self, _now: Timestamp) -> SlidingLogState {
        SlidingLogState::default()
    }

    fn take(&self, state: &mut SlidingLogState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
        let outcome = self.decide(state, now, cost);
        if outcome.is_granted() {
            self.record(state, now, cost.get());
        }
        outcome
    }

    fn peek(&self, state: &SlidingLogState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
        self.decide(state, now, cost)
    }

    /// Returns the status of the window with the least remaining; of several such, the one with the latest reset.
    fn status(&self, state: &SlidingLogState, now: Timestamp) -> Status {
        let each = self.windows.iter().map(|window| {
            let first = state.first_in(window, now);
            let reset = state.freed_at(first, 1, window).map_or(0, |time| u64::try_from(time).unwrap_or(u64::MAX));
            (window.permits().saturating_sub(state.used(first)), Timestamp::from_nanos(reset).since(now))
        });
        let least = each.min_by_key(|(remaining, reset)| (*remaining, std::cmp::Reverse(*reset)));
        let (remaining, reset) = least.unwrap_or((self.limit, Duration::ZERO));
        Status { limit: self.limit, remaining, reset }
    }

    fn charge(&self, state: &mut SlidingLogState, now: Timestamp, cost: Cost) {
        self.record(state, now, cost.get());
    }

    fn refund(&self, state: &mut SlidingLogState, now: Timestamp, receipt: &Receipt) -> Refund {
        match state.find(receipt.mark()) {
            Some(index) if index >= state.first_in(&self.longest, now) => {
                state.refund(index, receipt.cost().get());
                Refund::Returned
            }
            _ => Refund::Void,
        }
    }

    fn is_fresh(&self, state: &SlidingLogState, now: Timestamp) -> bool {
        state.first_in(&self.longest, now) == state.len()
    }

    /// Keeps the times. Over the limit of the longest window the oldest usage is dropped; over that of a shorter one
    /// nothing is, since the longer ones still count it.
    fn rescale(&self, state: &mut SlidingLogState, old: &Self, now: Timestamp) {
        if self == old {
            return;
        }
        state.drop_first(state.first_in(&self.longest, now).max(state.first_in(&old.longest, now)));
        state.drop_oldest(state.used(0).saturating_sub(self.longest.permits()));
    }

    fn encode(&self, state: &SlidingLogState, words: &mut Vec<u64>) -> bool {
        words.extend(state.entries().flat_map(|(time, permits)| [time.as_nanos(), permits]));
        true
    }

    fn decode(&self, words: &[u64]) -> Option<SlidingLogState> {
        let (pairs, []) = words.as_chunks() else { return None };
        Some(SlidingLogState::from_entries(pairs.iter().map(|&[time, permits]| (Timestamp::from_nanos(time), permits))))
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Queue
    }

    fn heap_bytes(&self, state: &SlidingLogState) -> usize {
        state.heap_bytes()
    }

    fn heap_growth(&self, state: &SlidingLogState, now: Timestamp) -> usize {
        state.heap_growth(state.first_in(&self.longest, now), now, self.longest.permits())
    }
}
