//! Smooth warming up: Guava's `RateLimiter.create(rate, warmup)`.
//!
//! # How it works
//! Some services are slow after idle time: a cache is empty, a pool has no connections. So a full store means *cold*,
//! and permits from it cost more than fresh ones. After idle time requests are granted slowly at first, and at the full
//! rate once the store is used up.
//!
//! ```text
//!  interval
//!     cold ┤                          ╱│
//!          │                       ╱   │
//!          │                    ╱      │        the price of a permit, by the number stored;
//!          │                 ╱  warm-up│        taking goes from right to left,
//!   stable ┤━━━━━━━━━━━━━━┙            │        and the wait is the area passed
//!          │  half of it  │            │
//!        0 ┼──────────────┼────────────┼──▶ stored permits
//!          0          threshold       max
//! ```
//!
//! The constants follow from three requirements. The cold interval is `cold_factor × stable`. Going from max to the
//! threshold takes the warm-up, `(stable + cold) / 2 × (max − threshold) = warmup`, which gives max. The flat part
//! takes half of the warm-up, `stable × threshold = warmup / 2`, which gives the threshold. And the store fills from
//! empty to cold in one warm-up, so that a permit is stored every `warmup / max`.
//!
//! [`guava`](super::guava) has the arithmetic, and explains why always the next request pays.
//!
//! # What always holds (tests/it/guava.rs, tests/it/smooth.rs)
//! - From cold, the permits above the threshold take the warm-up, however they are divided into requests.
//! - A key starts cold, and is cold again after an idle warm-up: an idle key equals a fresh one.

use super::error::{InvalidSmooth, check_rate};
use super::guava::{END, MICROS_PER_SECOND, PriceCurve, SmoothRate, describe_rate};
use crate::{Quota, words};
use std::time::Duration;

/// Guava's default cold factor.
const COLD_FACTOR: f64 = 3.0;

/// Guava's `SmoothWarmingUp`, to the microsecond: an even rate that starts slowly after idle time.
///
/// For services that need to warm up: it protects a cold cache from the full rate. As with
/// [`SmoothBursty`](crate::SmoothBursty), a request of any size is granted if there is no debt, and the next request
/// pays for it.
///
/// The status is that of a [`SmoothBursty`](crate::SmoothBursty); the reset is when the key is cold again. There are no
/// initial permits to choose: a fresh key is cold, in Guava too, and so is an idle one.
///
/// ```
/// use diana_core::{Algorithm, Cost, MaxWait, SmoothWarmingUp, Timestamp};
/// use std::time::Duration;
///
/// let limiter = SmoothWarmingUp::new(5.0, Duration::from_secs(1))?;
/// let (mut state, mut now) = (limiter.fresh(Timestamp::EPOCH), Timestamp::EPOCH);
/// let mut acquire = || {
///     let wait = limiter.take(&mut state, now, Cost::ONE, MaxWait::FOREVER).wait().unwrap_or_default();
///     now = now + wait;
///     wait.as_millis()
/// };
///
/// assert_eq!([acquire(), acquire(), acquire(), acquire(), acquire(), acquire()], [0, 520, 360, 220, 200, 200]);
/// # Ok::<(), diana_core::InvalidSmooth>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothWarmingUp {
    warm_up_micros: u64,
    cold_factor: f64,
    smooth: SmoothRate,
}

impl SmoothWarmingUp {
    /// Creates a limiter with `rate` permits per second after a warm-up of `warm_up` (in whole microseconds), at first
    /// a third of it: Guava's `create(rate, warmup, unit)`.
    pub fn new(rate: f64, warm_up: Duration) -> Result<Self, InvalidSmooth> {
        match u64::try_from(warm_up.as_micros()) {
            Ok(micros @ 1..=END) => Self::build(rate, micros, COLD_FACTOR),
            _ => Err(InvalidSmooth::WarmUp(warm_up)),
        }
    }

    /// Returns the same limiter whose cold interval is `cold_factor` times the stable one.
    ///
    /// Below 1 it is *faster* when cold; Guava accepts that too.
    ///
    /// ```
    /// use diana_core::SmoothWarmingUp;
    /// use std::time::Duration;
    ///
    /// let limiter = SmoothWarmingUp::new(5.0, Duration::from_secs(4))?;
    /// assert_eq!(limiter.in_micros().max_permits(), 20.0);
    /// assert_eq!(limiter.with_cold_factor(1.0)?.in_micros().max_permits(), 30.0);
    /// # Ok::<(), diana_core::InvalidSmooth>(())
    /// ```
    pub fn with_cold_factor(self, cold_factor: f64) -> Result<Self, InvalidSmooth> {
        Self::build(self.smooth.nominal_rate, self.warm_up_micros, cold_factor)
    }

    /// Returns the limiter at another rate; [`rescale`](crate::Algorithm::rescale) migrates a state (Guava's `setRate`).
    ///
    /// ```
    /// use diana_core::SmoothWarmingUp;
    /// use std::time::Duration;
    ///
    /// assert_eq!(SmoothWarmingUp::new(5.0, Duration::from_secs(5))?.with_rate(10.0)?.rate(), 10.0);
    /// # Ok::<(), diana_core::InvalidSmooth>(())
    /// ```
    pub fn with_rate(self, rate: f64) -> Result<Self, InvalidSmooth> {
        Self::build(rate, self.warm_up_micros, self.cold_factor)
    }

    /// Permits per second once warm, as Guava's `getRate` returns them.
    pub fn rate(&self) -> f64 {
        self.smooth.rate()
    }

    /// Returns how long it takes to warm up, and to cool down.
    pub fn warm_up(&self) -> Duration {
        Duration::from_micros(self.warm_up_micros)
    }

    /// Returns the cold interval as a multiple of the stable one.
    pub fn cold_factor(&self) -> f64 {
        self.cold_factor
    }

    /// Returns the arithmetic in microseconds, and Guava's own numbers.
    pub fn in_micros(&self) -> &SmoothRate {
        &self.smooth
    }

    /// Describes the limit; `rate` is the quota that it was made from, if it was.
    pub(super) fn describe_saving(&self, rate: Option<Quota>) -> String {
        let (rate, warm_up) = (describe_rate(rate, self.rate()), words::duration(self.warm_up()));
        format!("{rate}, evenly; {} times slower after a pause, warm after {warm_up}", self.cold_factor)
    }

    fn build(rate: f64, warm_up_micros: u64, cold_factor: f64) -> Result<Self, InvalidSmooth> {
        let rate = check_rate(rate)?;
        if !cold_factor.is_finite() || cold_factor <= 0.0 {
            return Err(InvalidSmooth::ColdFactor(cold_factor));
        }
        let warm_up = warm_up_micros as f64;
        let stable_interval = MICROS_PER_SECOND / rate;
        let cold_interval = stable_interval * cold_factor;
        let threshold = 0.5 * warm_up / stable_interval;
        let max_permits = threshold + 2.0 * warm_up / (stable_interval + cold_interval);
        let slope = (cold_interval - stable_interval) / (max_permits - threshold);
        // NaN only if there is nothing above the threshold; 0 keeps `PartialEq` reflexive.
        let slope = if slope.is_nan() { 0.0 } else { slope };
        let smooth = SmoothRate {
            nominal_rate: rate,
            stable_interval,
            max_permits,
            cool_down_interval: warm_up / max_permits,
            curve: Some(PriceCurve { threshold, slope }),
            initial_permits: max_permits,
            after_unlimited: 0.0,
        };
        Ok(Self { warm_up_micros, cold_factor, smooth })
    }
}
