//! Days, weeks and months of a time zone, as windows.
//!
//! # How it works
//! "1000 a day" means the day of the customer's time zone. Such a day is not always 24 hours long: when the clocks
//! change it has 23 or 25, and in some zones midnight itself does not exist or comes twice.
//!
//! ```text
//!  Europe/Berlin, 2024-03-31           02:00 → 03:00
//!  00:00 ─────────────────────────────────┼┼───────────────────────── 00:00
//!  │◀──────────────────────── 23 hours, one window ────────────────────▶│
//! ```
//!
//! So the end of a window is found by the date: the next day (the next Monday, the first of the next month), and the
//! first instant of that day in the zone. This is computed once, when a window starts, and the end is stored in the
//! state. The zone database is built in; no file is read.

use crate::{InvalidWindow, Timestamp};
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use std::time::Duration;

/// A calendar unit as a window.
///
/// ```
/// use diana_core::{Calendar, FixedWindow, Timestamp};
///
/// // 2023-11-14T22:13:20Z, which is already the 15th, a Wednesday, in Shanghai.
/// let now = Timestamp::from_secs(1_700_000_000);
/// let ends = |unit| FixedWindow::calendar(5, unit, "Asia/Shanghai").map(|window| window.restored_at(now));
///
/// assert_eq!(ends(Calendar::Day)?, Timestamp::from_secs(1_700_064_000)); // the 16th, 00:00 in Shanghai
/// assert_eq!(ends(Calendar::Week)?, Timestamp::from_secs(1_700_409_600)); // Monday the 20th
/// assert_eq!(ends(Calendar::Month)?, Timestamp::from_secs(1_701_360_000)); // the 1st of December
/// # Ok::<(), diana_core::InvalidWindow>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Calendar {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first to the first.
    Month,
}

/// A [`Calendar`] unit in a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CalendarZone {
    unit: Calendar,
    zone: TimeZone,
}

impl Calendar {
    /// Returns the length of the window without a clock change; a month is 30 days.
    pub(crate) const fn usual_length(self) -> Duration {
        let days = match self {
            Self::Day => 1,
            Self::Week => 7,
            Self::Month => 30,
        };
        Duration::from_secs(days * 86_400)
    }

    /// Returns the first day of the next window.
    fn next(self, today: Date) -> Option<Date> {
        match self {
            Self::Day => today.tomorrow(),
            Self::Week => today.nth_weekday(1, Weekday::Monday),
            Self::Month => today.last_of_month().tomorrow(),
        }
        .ok()
    }
}

impl CalendarZone {
    pub(crate) fn new(unit: Calendar, zone: &str) -> Result<Self, InvalidWindow> {
        let known_zone = TimeZone::get(zone).ok().filter(|zone| !zone.is_unknown());
        let zone = known_zone.ok_or_else(|| InvalidWindow::TimeZone(zone.to_owned()))?;
        Ok(Self { unit, zone })
    }

    pub(crate) fn unit(&self) -> Calendar {
        self.unit
    }

    /// Returns the zone's name in the database.
    pub(crate) fn name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Returns the end of the window around `now`; `None` outside the calendar's range.
    pub(crate) fn ends(&self, now: Timestamp) -> Option<Timestamp> {
        let instant = jiff::Timestamp::from_nanosecond(i128::from(now.as_nanos())).ok()?;
        let next = self.unit.next(self.zone.to_datetime(instant).date())?;
        let midnight = self.zone.to_ambiguous_timestamp(next.to_datetime(Time::midnight()));
        // Where clocks go back over midnight it comes twice. The first one ends the day, unless it has passed already.
        // A skipped midnight means the first instant after the gap.
        let first = midnight.compatible().ok()?;
        let end = if first > instant { first } else { midnight.later().ok()? };
        u64::try_from(end.as_nanosecond()).ok().map(Timestamp::from_nanos).filter(|end| *end > now)
    }
}
