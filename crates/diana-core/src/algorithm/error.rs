//! Errors for invalid parameters of the smooth limiters and the windows: the value, the problem, and a fix.

use super::MAX_BUCKETS;
use crate::InvalidQuota;
use std::time::Duration;

/// An invalid window. Nothing was charged.
///
/// ```
/// use diana_core::{Quota, SlidingWindow};
///
/// let error = SlidingWindow::new(Quota::per_minute(5)?).with_buckets(0).unwrap_err();
/// assert_eq!(error.to_string(), "buckets 0: must be a whole number from 1 to 131072");
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidWindow {
    /// The limit is invalid.
    #[error(transparent)]
    Quota(#[from] InvalidQuota),
    /// A sliding log without windows.
    #[error("a sliding log needs at least one window, such as `5/min`")]
    NoWindows,
    /// The number of buckets is 0, or more than [`MAX_BUCKETS`].
    #[error("buckets {0}: must be a whole number from 1 to {MAX_BUCKETS}")]
    Buckets(u64),
    /// A precision of zero.
    #[error("precision 0: must be at least 1ns, as in `1s`")]
    NoPrecision,
    /// A precision so fine that the window would have more than [`MAX_BUCKETS`] buckets.
    #[error(
        "precision {precision:?} is too fine: a window of {window:?} would have {buckets} buckets, more than \
         {MAX_BUCKETS}; use {least:?} or more"
    )]
    TooPrecise {
        /// The invalid precision.
        precision: Duration,
        /// The window to divide.
        window: Duration,
        /// The resulting number of buckets.
        buckets: u64,
        /// The finest precision that this window can have.
        least: Duration,
    },
    /// An unknown time zone.
    #[error("unknown time zone `{0}`; expected an IANA name such as `Europe/Berlin` or `UTC`")]
    TimeZone(String),
}

/// Why a smooth limiter is invalid: the value, the problem, and a fix.
///
/// ```
/// use diana_core::{SmoothBursty, SmoothWarmingUp};
/// use std::time::Duration;
///
/// let error = SmoothBursty::new(0.0).unwrap_err();
/// assert_eq!(error.to_string(), "rate 0/s: must be above 0, such as 0.5 or 100; infinity allows everything");
/// let error = SmoothWarmingUp::new(5.0, Duration::ZERO).unwrap_err();
/// assert!(error.to_string().starts_with("warm-up 0ns: must be from 1µs"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSmooth {
    /// A rate of zero or less, or NaN.
    #[error("rate {0}/s: must be above 0, such as 0.5 or 100; infinity allows everything")]
    Rate(f64),
    /// Permits saved for less than zero seconds, or NaN.
    #[error("permits saved for {0} seconds: must be 0 or above; Guava's default is 1")]
    SavedSeconds(f64),
    /// A store that is NaN, or infinite at a finite rate.
    ///
    /// Guava accepts these, and after the next change of rate such a limiter grants everything.
    #[error(
        "permits saved for {saved_seconds} seconds at rate {rate}/s: must be a finite number of permits; use fewer \
         seconds, or more than 0 with an infinite rate"
    )]
    Store {
        /// Permits per second.
        rate: f64,
        /// The size of the store in seconds.
        saved_seconds: f64,
    },
    /// A warm-up of less than a microsecond, or longer than Java can represent.
    ///
    /// Guava accepts a warm-up of zero. Its store is then 0 permits in 0 microseconds, which is NaN after the first
    /// idle microsecond, and from then on everything is granted.
    #[error("warm-up {0:?}: must be from 1µs to 292,000 years; for no warm-up, use the bursty limiter")]
    WarmUp(Duration),
    /// A cold factor of zero or less, NaN or infinite.
    #[error("cold factor {0}: must be a finite number above 0; Guava's default is 3")]
    ColdFactor(f64),
}

/// Returns `rate` if it is valid permits per second.
pub(super) fn check_rate(rate: f64) -> Result<f64, InvalidSmooth> {
    if rate.is_nan() || rate <= 0.0 { Err(InvalidSmooth::Rate(rate)) } else { Ok(rate) }
}
