//! Points in time, as whole nanoseconds.
//!
//! All times in Diana are a [`Timestamp`] or a [`Duration`]. A timestamp counts from the Unix epoch, because windows
//! are aligned to the wall clock ("every full minute") and calendars need the date. It fits one word until the year
//! 2554, and every operation on it saturates.

use std::fmt;
use std::time::Duration;

/// A point in time: nanoseconds since 1970-01-01T00:00:00Z.
///
/// ```
/// use diana_core::Timestamp;
/// use std::time::Duration;
///
/// let t = Timestamp::from_millis(1_500);
/// assert_eq!(t + Duration::from_millis(500), Timestamp::from_secs(2));
/// assert_eq!(t.since(Timestamp::from_secs(1)), Duration::from_millis(500));
/// assert_eq!(Timestamp::from_secs(1).since(t), Duration::ZERO); // never negative
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The earliest timestamp: 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// The latest timestamp, in the year 2554.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the time `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the time `micros` microseconds after the epoch; [`MAX`](Self::MAX) at most.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Returns the time `millis` milliseconds after the epoch; [`MAX`](Self::MAX) at most.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns the time `secs` seconds after the epoch; [`MAX`](Self::MAX) at most.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns whole microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the duration since `earlier`; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Returns the time `later` after this one; [`MAX`](Self::MAX) at most.
    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(later)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Returns a duration in nanoseconds, `u64::MAX` (584 years) at most.
pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
