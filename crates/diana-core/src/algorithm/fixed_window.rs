//! Fixed window: a count that restarts with each window.
//!
//! # How it works
//! Time is divided into windows, and each allows `limit` permits. A window is half-open, `[start, end)`: a request at
//! exactly its end belongs to the next one. The state is the end of the current window, and its count:
//!
//! ```text
//!        start               now          ends
//!  ────────┼──────────────────┼────────────┼──────▶ time
//!          │◀ count of these ▶│◀── reset ─▶│ count begins at 0
//! ```
//!
//! Because the end is stored and not the start, checking whether the window is over needs no window length. So the same
//! two numbers serve windows on the clock, windows that the first request starts, and calendar months in a time zone,
//! where the zone is used only when a window starts.
//!
//! # Where it fails
//! Around an edge twice the limit can pass: all of one window at its end, all of the next at its start. If that
//! matters, use [`SlidingWindow`](super::SlidingWindow) or [`SlidingLog`](super::SlidingLog). For "1000 a day, from
//! midnight" this is the right algorithm.
//!
//! # What always holds (tests/it/laws.rs, tests/it/fixed_window.rs)
//! - At most `limit` in one window, refunds included.
//! - A refund is void once the window of its grant is over, so it never adds to the next one. A receipt identifies its
//!   window by its end: if the length of the window was changed and changed back in between, a new window with the same
//!   end accepts it.

#[cfg(feature = "calendar")]
use super::calendar::{Calendar, CalendarZone};
use crate::{
    Algorithm, Cost, MaxWait, Outcome, Properties, Quota, Receipt, Refund, Restores, Status, Timestamp, WaitMode, words,
};
#[cfg(feature = "calendar")]
use crate::{InvalidQuota, InvalidWindow};
use std::time::Duration;

/// Allows at most `quota.permits()` in each window of `quota.period()`. The quota's burst is not used.
///
/// ```
/// use diana_core::{Algorithm, Cost, FixedWindow, MaxWait, Quota, Retry, Timestamp};
/// use std::time::Duration;
///
/// let window = FixedWindow::new(Quota::per_minute(1)?);
/// let mut state = window.fresh(Timestamp::EPOCH);
/// let mut ask = |secs| window.take(&mut state, Timestamp::from_secs(secs), Cost::ONE, MaxWait::NONE);
///
/// assert!(ask(59).is_granted());
/// assert_eq!(ask(59).retry(), Some(Retry::After(Duration::from_secs(1))));
/// assert!(ask(60).is_granted());
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    quota: Quota,
    edges: Edges,
}

/// The start of a window.
///
/// ```
/// use diana_core::{FixedWindow, WindowStart, Quota, Timestamp};
///
/// let quota = Quota::per_minute(10)?;
/// let at = Timestamp::from_secs(59);
/// assert_eq!(FixedWindow::new(quota).restored_at(at), Timestamp::from_secs(60));
/// let window = FixedWindow::new(quota).with_window_start(WindowStart::FirstRequest);
/// assert_eq!(window.restored_at(at), Timestamp::from_secs(119));
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WindowStart {
    /// The clock: windows of a minute start with each full minute, for all keys at once.
    #[default]
    OnTheClock,
    /// The first grant after the previous window: each key has its own windows.
    FirstRequest,
}

/// The state of a [`FixedWindow`]: 16 bytes, the end of the window and its granted permits.
///
/// An external store reads and writes it as these two numbers.
///
/// ```
/// assert_eq!(size_of::<diana_core::FixedWindowState>(), 16);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindowState {
    ends: Timestamp,
    count: u64,
}

/// How the start and end of a window are determined.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Edges {
    Starting(WindowStart),
    #[cfg(feature = "calendar")]
    Calendar(CalendarZone),
}

impl FixedWindow {
    /// Allows at most `quota.permits()` in each window of `quota.period()`, counted from the epoch.
    pub fn new(quota: Quota) -> Self {
        Self { quota, edges: Edges::Starting(WindowStart::OnTheClock) }
    }

    /// Returns the same limit and length, with another window start.
    pub fn with_window_start(self, start: WindowStart) -> Self {
        Self { edges: Edges::Starting(start), ..self }
    }

    /// Allows at most `limit` in each day, week or month of a time zone, such as `Europe/Berlin`.
    ///
    /// ```
    /// use diana_core::{Calendar, FixedWindow};
    ///
    /// let window = FixedWindow::calendar(1000, Calendar::Day, "Europe/Berlin")?;
    /// assert_eq!(window.quota().permits(), 1000);
    ///
    /// let error = FixedWindow::calendar(1000, Calendar::Day, "Europe/Atlantis").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "unknown time zone `Europe/Atlantis`; expected an IANA name such as `Europe/Berlin` or `UTC`",
    /// );
    /// # Ok::<(), diana_core::InvalidWindow>(())
    /// ```
    #[cfg(feature = "calendar")]
    pub fn calendar(limit: u64, unit: Calendar, zone: &str) -> Result<Self, InvalidWindow> {
        let quota = Quota::new(limit, unit.usual_length()).map_err(|error| match error {
            InvalidQuota::Count { value, .. } => InvalidQuota::Count { what: "limit", value },
            other => other,
        })?;
        Ok(Self { quota, edges: Edges::Calendar(CalendarZone::new(unit, zone)?) })
    }

    /// Returns the limit and the window's length; for a calendar window the usual length (a month is 30 days).
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the start of a window; `None` for calendar windows.
    pub fn window_start(&self) -> Option<WindowStart> {
        match &self.edges {
            Edges::Starting(start) => Some(*start),
            #[cfg(feature = "calendar")]
            Edges::Calendar(_) => None,
        }
    }

    /// Returns the calendar unit and the name of its time zone, for calendar windows.
    ///
    /// ```
    /// use diana_core::{Calendar, FixedWindow};
    ///
    /// let window = FixedWindow::calendar(1000, Calendar::Day, "europe/berlin")?;
    /// assert_eq!(window.dates(), Some((Calendar::Day, "Europe/Berlin")));
    /// assert_eq!(window.window_start(), None);
    /// # Ok::<(), diana_core::InvalidWindow>(())
    /// ```
    #[cfg(feature = "calendar")]
    pub fn dates(&self) -> Option<(Calendar, &str)> {
        match &self.edges {
            Edges::Starting(_) => None,
            Edges::Calendar(zone) => Some((zone.unit(), zone.name())),
        }
    }

    /// Returns when a permit taken from a fresh state at `now` is restored: the end of the window around `now`.
    pub fn restored_at(&self, now: Timestamp) -> Timestamp {
        let length = self.quota.period_nanos();
        match &self.edges {
            Edges::Starting(WindowStart::FirstRequest) => now + self.quota.period(),
            Edges::Starting(WindowStart::OnTheClock) => {
                let start = now.as_nanos() - now.as_nanos() % length;
                Timestamp::from_nanos(start.saturating_add(length))
            }
            #[cfg(feature = "calendar")]
            Edges::Calendar(zone) => zone.ends(now).unwrap_or(now + self.quota.period()),
        }
    }

    /// Returns the window at `now`: that of the state, or a new one.
    #[inline]
    fn current(&self, state: &FixedWindowState, now: Timestamp) -> FixedWindowState {
        if state.is_over(now) { FixedWindowState { ends: self.restored_at(now), count: 0 } } else { *state }
    }
}

impl FixedWindowState {
    /// Creates the state of a window until `ends` that has granted `count`; if that is 0, no window has started.
    pub fn new(ends: Timestamp, count: u64) -> Self {
        Self { ends, count }
    }

    /// Returns the end of the window.
    pub fn ends(&self) -> Timestamp {
        self.ends
    }

    /// Returns the granted permits of the window; more than the limit after a `charge`.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns `true` if the window is over or has not started. A `now` before it is in it: time does not go back.
    #[inline]
    fn is_over(&self, now: Timestamp) -> bool {
        // A window that ends at the last timestamp is never over; else each request at that time would start another.
        self.count == 0 || (now >= self.ends && self.ends < Timestamp::MAX)
    }
}

impl Algorithm for FixedWindow {
    type State = FixedWindowState;

    fn properties(&self) -> Properties<'_> {
        Properties {
            restores: Restores::InWindows(std::slice::from_ref(&self.quota)),
            // Nothing else follows a calendar.
            doubles_at_edges: self.window_start().is_some(),
            ..Properties::default()
        }
    }

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        let permits = self.quota.permits();
        let window = match &self.edges {
            Edges::Starting(start) => {
                let start = match start {
                    WindowStart::FirstRequest => "from the first request",
                    WindowStart::OnTheClock => "by the clock",
                };
                format!("{} {start}", words::period(self.quota.period()))
            }
            #[cfg(feature = "calendar")]
            Edges::Calendar(zone) => {
                let unit = match zone.unit() {
                    Calendar::Day => "day",
                    Calendar::Week => "week, from Monday on,",
                    Calendar::Month => "month",
                };
                format!("{unit} of {}", zone.name())
            }
        };
        Some(format!("{permits} in each {window}; {}", words::TWICE))
    }

    fn fresh(&self, _now: Timestamp) -> FixedWindowState {
        FixedWindowState::default()
    }

    #[inline]
    fn take(&self, state: &mut FixedWindowState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
        let limit = self.quota.permits();
        if cost.get() > limit {
            return Outcome::never();
        }
        let window = self.current(state, now);
        let count = window.count.saturating_add(cost.get());
        if count > limit {
            return match window.ends {
                Timestamp::MAX => Outcome::never(),
                ends => Outcome::denied_until(u128::from(ends.as_nanos()), now),
            };
        }
        *state = FixedWindowState { count, ..window };
        Outcome::granted(Receipt::new(cost, now).with_mark(u128::from(window.ends.as_nanos())))
    }

    #[inline]
    fn status(&self, state: &FixedWindowState, now: Timestamp) -> Status {
        let limit = self.quota.permits();
        // The calendar is not used for a window that has not started.
        let (count, reset) =
            if state.is_over(now) { (0, Duration::ZERO) } else { (state.count, state.ends.since(now)) };
        Status { limit, remaining: limit.saturating_sub(count), reset }
    }

    fn charge(&self, state: &mut FixedWindowState, now: Timestamp, cost: Cost) {
        *state = self.current(state, now);
        state.count = state.count.saturating_add(cost.get());
    }

    fn refund(&self, state: &mut FixedWindowState, now: Timestamp, receipt: &Receipt) -> Refund {
        if state.is_over(now) || u128::from(state.ends.as_nanos()) != receipt.mark() {
            return Refund::Void;
        }
        *state = match state.count.saturating_sub(receipt.cost().get()) {
            // A window started by its first request is removed, as if there had been no request.
            0 => FixedWindowState::default(),
            count => FixedWindowState { count, ..*state },
        };
        Refund::Returned
    }

    fn is_fresh(&self, state: &FixedWindowState, now: Timestamp) -> bool {
        state.is_over(now)
    }

    /// Moves the count of the current window to the window of the new parameters at `now`.
    fn rescale(&self, state: &mut FixedWindowState, old: &Self, now: Timestamp) {
        if state.is_over(now) {
            *state = FixedWindowState::default();
            return;
        }
        let same_windows = self.edges == old.edges && self.quota.period() == old.quota.period();
        let ends = if same_windows { state.ends } else { self.restored_at(now) };
        *state = FixedWindowState { ends, count: state.count.min(self.quota.permits()) };
    }

    fn encode(&self, state: &FixedWindowState, words: &mut Vec<u64>) -> bool {
        words.extend([state.ends.as_nanos(), state.count]);
        true
    }

    fn decode(&self, words: &[u64]) -> Option<FixedWindowState> {
        let &[first, second] = words else { return None };
        Some(FixedWindowState { ends: Timestamp::from_nanos(first), count: second })
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Queue
    }
}
