//! Rate and burst.

use crate::MAX_PERMITS;
use std::fmt;
use std::time::Duration;

mod parse;

/// A rate as the exact fraction `permits / period`, and the burst that is allowed at once.
///
/// # Rate and burst are two choices
/// 1/s and 60/min are the same *rate*. They differ in *burst*, which defaults to the quota's count: after an idle
/// minute the first allows 1 request at once, the second 60. If the protected service cannot take 60 at once, set
/// [`with_burst`](Self::with_burst).
///
/// The fraction is never rounded to an interval: `3/s` means three in every second, exactly, not one every 333,333,333 ns.
///
/// # Text format
/// `100/s`, `5/10min`, `1000/day`, `1 per 200ms`, `100/s burst 200`. Units: ns, us, ms, s, min, h, day, week, month (of
/// 30 days), in short and long forms. A count may have decimals if the time per permit is exact: `0.5/s` is `1/2s`.
///
/// ```
/// use diana_core::Quota;
/// use std::time::Duration;
///
/// let quota: Quota = "5/10min".parse()?;
/// assert_eq!(quota, Quota::new(5, Duration::from_secs(600))?);
/// assert_eq!(quota.to_string(), "5/10min");
/// assert_eq!("0.5/s".parse::<Quota>()?, Quota::new(1, Duration::from_secs(2))?);
/// assert_eq!("100/s burst 200".parse::<Quota>()?, Quota::per_second(100)?.with_burst(200)?);
///
/// let error = "10/fortnight".parse::<Quota>().unwrap_err();
/// assert!(error.to_string().starts_with("invalid quota `10/fortnight`: unknown unit of time `fortnight`"));
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    permits: u64,
    period_nanos: u64,
    burst: u64,
}

impl Quota {
    /// Allows `permits` in every `period`; the burst is `permits`.
    pub fn new(permits: u64, period: Duration) -> Result<Self, InvalidQuota> {
        check_count("permits", permits)?;
        let period_nanos = u64::try_from(period.as_nanos()).map_err(|_| InvalidQuota::PeriodTooLong(period))?;
        if period_nanos == 0 {
            return Err(InvalidQuota::NoPeriod);
        }
        Ok(Self { permits, period_nanos, burst: permits })
    }

    /// Allows `permits` in every second.
    pub fn per_second(permits: u64) -> Result<Self, InvalidQuota> {
        Self::new(permits, Duration::from_secs(1))
    }

    /// Allows `permits` in every minute.
    pub fn per_minute(permits: u64) -> Result<Self, InvalidQuota> {
        Self::new(permits, Duration::from_secs(60))
    }

    /// Allows `permits` in every hour.
    pub fn per_hour(permits: u64) -> Result<Self, InvalidQuota> {
        Self::new(permits, Duration::from_secs(3_600))
    }

    /// Returns the same rate with another burst.
    pub fn with_burst(self, burst: u64) -> Result<Self, InvalidQuota> {
        check_count("burst", burst)?;
        Ok(Self { burst, ..self })
    }

    /// Returns the quota with these values, which a macro has checked.
    #[doc(hidden)]
    pub const fn checked(permits: u64, period: Duration, burst: u64) -> Self {
        // A checked period fits.
        #[allow(clippy::cast_possible_truncation, reason = "a period has at most 64 bits of nanoseconds")]
        let period_nanos = period.as_nanos() as u64;
        assert!(permits > 0 && burst > 0 && period_nanos > 0, "use `quota!`");
        Self { permits, period_nanos, burst }
    }

    /// Returns the number of permits in one [`period`](Self::period).
    pub const fn permits(&self) -> u64 {
        self.permits
    }

    /// Returns the period of [`permits`](Self::permits).
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period_nanos)
    }

    /// Returns the number of permits that can be granted at once after an idle period.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Returns the rate in permits per second, rounded to a float: for display. [`interval`](Self::interval) is exact.
    ///
    /// ```
    /// use diana_core::Quota;
    ///
    /// assert_eq!(Quota::per_minute(90)?.rate(), 1.5);
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    #[allow(clippy::cast_precision_loss, reason = "rounded, as documented")]
    pub fn rate(&self) -> f64 {
        self.permits as f64 / self.period().as_secs_f64()
    }

    /// Returns the time per permit in nanoseconds, as a fraction in lowest terms: the exact rate.
    ///
    /// ```
    /// use diana_core::Quota;
    ///
    /// assert_eq!(Quota::per_second(3)?.interval(), (1_000_000_000, 3));
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub const fn interval(&self) -> (u64, u64) {
        let divisor = greatest_common_divisor(self.period_nanos, self.permits);
        (self.period_nanos / divisor, self.permits / divisor)
    }

    pub(crate) const fn period_nanos(&self) -> u64 {
        self.period_nanos
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = parse::shortest(self.period_nanos);
        match count {
            1 => write!(f, "{}/{unit}", self.permits)?,
            n => write!(f, "{}/{n}{unit}", self.permits)?,
        }
        if self.burst != self.permits {
            write!(f, " burst {}", self.burst)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

/// Why a value is not a valid quota: the value, the problem, and a fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidQuota {
    /// A count of zero or above [`MAX_PERMITS`].
    #[error("{what} {value}: must be a whole number from 1 to {MAX_PERMITS}")]
    Count {
        /// Which count.
        what: &'static str,
        /// The invalid value.
        value: u64,
    },
    /// A period of zero.
    #[error("period 0: must be at least 1ns, as in `5/10min`")]
    NoPeriod,
    /// An interval of zero between two grants.
    #[error("interval 0: must be at least 1ns, as in `every 200ms`")]
    NoInterval,
    /// A period over 584 years.
    #[error("period {0:?}: must be at most 584 years")]
    PeriodTooLong(Duration),
    /// A text that does not parse as a quota.
    #[error("invalid quota `{text}`: {problem}")]
    Text {
        /// The text.
        text: String,
        /// The problem and a fix.
        problem: String,
    },
}

/// Parses a duration: `200ms`, `10s`, `5min`, `1 day`.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(diana_core::parse_duration("200ms"), Ok(Duration::from_millis(200)));
/// let error = diana_core::parse_duration("5 fortnights").unwrap_err();
/// assert!(error.to_string().contains("`fortnights`"), "{error}");
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, InvalidQuota> {
    let fail = |problem| InvalidQuota::Text { text: text.to_owned(), problem };
    parse::parse_nanos(text).map(Duration::from_nanos).map_err(fail)
}

/// Returns `Ok` if `value` is a valid count of permits.
pub(crate) fn check_count(what: &'static str, value: u64) -> Result<(), InvalidQuota> {
    match value {
        1..=MAX_PERMITS => Ok(()),
        _ => Err(InvalidQuota::Count { what, value }),
    }
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
