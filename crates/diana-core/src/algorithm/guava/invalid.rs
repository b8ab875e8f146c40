//! Errors for invalid smooth limiters.

use std::time::Duration;

/// Why a smooth limiter is invalid: the value, the problem, and a fix.
///
/// ```
/// use diana_core::{SmoothBursty, SmoothWarmingUp};
/// use std::time::Duration;
///
/// let error = SmoothBursty::new(0.0).unwrap_err();
/// assert_eq!(error.to_string(), "rate 0/s: must be above 0, as in 0.5 or 100; infinity lets everything pass");
/// let error = SmoothWarmingUp::new(5.0, Duration::ZERO).unwrap_err();
/// assert!(error.to_string().starts_with("warm-up 0ns: must be from 1µs"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSmooth {
    /// A rate of zero or less, or NaN.
    #[error("rate {0}/s: must be above 0, as in 0.5 or 100; infinity lets everything pass")]
    Rate(f64),
    /// A burst of less than zero seconds, or NaN.
    #[error("burst of {0} seconds: must be 0 or above; Guava's own is 1")]
    BurstSeconds(f64),
    /// A store that is NaN, or infinite at a finite rate.
    ///
    /// Guava accepts these, and after the next change of rate such a limiter grants everything.
    #[error(
        "burst of {burst_seconds} seconds at rate {rate}/s: is no finite number of permits; take a smaller burst, or one above 0 with an infinite rate"
    )]
    Store {
        /// Permits per second.
        rate: f64,
        /// The size of the store in seconds.
        burst_seconds: f64,
    },
    /// A warm-up of less than a microsecond, or longer than Java can represent.
    ///
    /// Guava accepts a warm-up of zero. Its store is then 0 permits in 0 microseconds, which is NaN after the first
    /// idle microsecond, and from then on everything is granted.
    #[error("warm-up {0:?}: must be from 1µs to 292,000 years; for none at all, use the bursty limiter")]
    WarmUp(Duration),
    /// A cold factor of zero or less, NaN or infinite.
    #[error("cold factor {0}: must be a finite number above 0; Guava's own is 3")]
    ColdFactor(f64),
}

/// Returns `rate` if it is valid permits per second.
pub(in crate::algorithm) fn check_rate(rate: f64) -> Result<f64, InvalidSmooth> {
    if rate.is_nan() || rate <= 0.0 { Err(InvalidSmooth::Rate(rate)) } else { Ok(rate) }
}
