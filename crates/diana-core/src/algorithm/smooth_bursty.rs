//! Smooth bursty: Guava's `RateLimiter.create(rate)`.
//!
//! # How it works
//! An even rate, and a store that fills during idle time. Stored permits are free, so a client that was idle for a
//! second may take a second's worth at once; a busy one gets a permit every interval.
//!
//! ```text
//!  interval
//!   stable ┤              ┌──────────────▶ fresh permits: the stable interval each
//!          │              │
//!        0 ┼━━━━━━━━━━━━━━┙
//!          0   stored    max               stored permits: free
//! ```
//!
//! [`guava`](super::guava) has the arithmetic, and explains why always the next request pays.
//!
//! # What always holds (tests/it/guava.rs, tests/it/smooth.rs)
//! - After any idle time, `rate × saved_seconds` permits and one request more pass at once, then one an interval.
//! - An idle key equals a fresh one if it [starts full](InitialPermits::Full).

use super::error::{InvalidSmooth, check_rate};
use super::guava::{MICROS_PER_SECOND, SmoothRate, describe_rate, whole_permits};
use crate::{Quota, words};

/// Guava's `SmoothBursty`, to the microsecond: an even rate, with a store for idle time.
///
/// A request of any size is granted if there is no debt, and the next request pays for it by waiting. So this suits
/// pacing a single stream of work; if a large cost must be denied, use a [`TokenBucket`](crate::TokenBucket), which
/// also uses no floats.
///
/// # Status
/// The limit is the size of the store in whole permits, and the remaining permits are the stored ones; both at least 1,
/// since without a debt even an empty store grants any request. In debt nothing remains. The reset is when the debt is
/// paid and the store is full.
///
/// ```
/// use diana_core::{Algorithm, Cost, MaxWait, SmoothBursty, Timestamp};
/// use std::time::Duration;
///
/// let limiter = SmoothBursty::new(5.0)?;
/// let mut state = limiter.fresh(Timestamp::EPOCH);
/// let mut acquire = |permits| -> Result<_, diana_core::InvalidCost> {
///     Ok(limiter.take(&mut state, Timestamp::EPOCH, Cost::new(permits)?, MaxWait::FOREVER).wait())
/// };
///
/// assert_eq!(acquire(5)?, Some(Duration::ZERO)); // granted immediately, although nothing is stored
/// assert_eq!(acquire(1)?, Some(Duration::from_secs(1))); // the next request pays for it
/// assert_eq!(acquire(1)?, Some(Duration::from_millis(1_200)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothBursty {
    saved_seconds: f64,
    initial: InitialPermits,
    smooth: SmoothRate,
}

/// The stored permits of a fresh key.
///
/// ```
/// use diana_core::{Algorithm, SmoothBursty, InitialPermits, Timestamp};
/// use std::time::Duration;
///
/// let guava = SmoothBursty::new(5.0)?;
/// let keyed = guava.with_initial_permits(InitialPermits::Full);
/// assert_eq!(guava.fresh(Timestamp::EPOCH).stored_permits(), 0.0);
/// assert_eq!(keyed.fresh(Timestamp::EPOCH).stored_permits(), 5.0);
///
/// // A key that was idle long enough equals a fresh one, so it need not be stored.
/// let (old, later) = (keyed.fresh(Timestamp::EPOCH), Timestamp::from_secs(9));
/// assert!(keyed.is_fresh(&old, later) && !guava.is_fresh(&old, later));
/// # Ok::<(), diana_core::InvalidSmooth>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InitialPermits {
    /// None, like Guava: right for a single limiter that starts with its program. An idle key never equals a fresh one,
    /// so a table of keys cannot drop any.
    #[default]
    Empty,
    /// A full store: for many keys, so that an idle one equals a fresh one and may be dropped.
    Full,
}

impl SmoothBursty {
    /// Creates a limiter with `rate` permits per second, and a store of one second's worth: Guava's `create(rate)`.
    pub fn new(rate: f64) -> Result<Self, InvalidSmooth> {
        Self::build(rate, 1.0, InitialPermits::Empty)
    }

    /// Returns the same limiter, which saves up to `saved_seconds` seconds' worth of permits: Guava's `maxBurstSeconds`.
    ///
    /// ```
    /// use diana_core::SmoothBursty;
    ///
    /// assert_eq!(SmoothBursty::new(5.0)?.with_saved_seconds(10.0)?.in_micros().max_permits(), 50.0);
    /// # Ok::<(), diana_core::InvalidSmooth>(())
    /// ```
    pub fn with_saved_seconds(self, saved_seconds: f64) -> Result<Self, InvalidSmooth> {
        Self::build(self.smooth.nominal_rate, saved_seconds, self.initial)
    }

    /// Returns the limiter at another rate; [`rescale`](crate::Algorithm::rescale) migrates a state (Guava's `setRate`).
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, MaxWait, SmoothBursty, Timestamp};
    /// use std::time::Duration;
    ///
    /// let (slow, now) = (SmoothBursty::new(1.0)?, Timestamp::EPOCH);
    /// let mut state = slow.fresh(now);
    /// slow.charge(&mut state, now, Cost::ONE);
    ///
    /// let fast = slow.with_rate(2.0)?;
    /// fast.rescale(&mut state, &slow, now);
    /// let mut acquire = || fast.take(&mut state, now, Cost::ONE, MaxWait::FOREVER).wait();
    /// assert_eq!(acquire(), Some(Duration::from_millis(1_000))); // the debt is unchanged
    /// assert_eq!(acquire(), Some(Duration::from_millis(1_500)));
    /// # Ok::<(), diana_core::InvalidSmooth>(())
    /// ```
    pub fn with_rate(self, rate: f64) -> Result<Self, InvalidSmooth> {
        Self::build(rate, self.saved_seconds, self.initial)
    }

    /// Returns the same limiter with other initial permits.
    #[must_use]
    pub fn with_initial_permits(mut self, initial: InitialPermits) -> Self {
        self.initial = initial;
        self.smooth.initial_permits = match initial {
            InitialPermits::Empty => 0.0,
            InitialPermits::Full => self.smooth.max_permits,
        };
        self
    }

    /// Permits per second, as Guava's `getRate` returns them.
    pub fn rate(&self) -> f64 {
        self.smooth.rate()
    }

    /// Returns how many seconds' worth of permits can be stored.
    pub fn saved_seconds(&self) -> f64 {
        self.saved_seconds
    }

    /// Returns the stored permits of a fresh key.
    pub fn initial_permits(&self) -> InitialPermits {
        self.initial
    }

    /// Returns the arithmetic in microseconds, and Guava's own numbers.
    pub fn in_micros(&self) -> &SmoothRate {
        &self.smooth
    }

    /// Describes the limit; `rate` is the quota that it was made from, if it was.
    pub(super) fn describe_saving(&self, rate: Option<Quota>) -> String {
        let start = if self.initial == InitialPermits::Empty { ", starts empty" } else { "" };
        let (rate_text, saved) = (describe_rate(rate, self.rate()), self.saved_seconds);
        // The next request waits for the cost of the previous one, so one more passes than was saved.
        let at_once = whole_permits(self.smooth.max_permits).saturating_add(1);
        let most = match rate {
            Some(quota) if at_once > 1 => format!(", up to {at_once} at once: {}", words::at_most(quota, at_once)),
            _ => String::new(),
        };
        format!("{rate_text}, evenly; unused permits are saved for {saved} s{start}{most}")
    }

    fn build(rate: f64, saved_seconds: f64, initial: InitialPermits) -> Result<Self, InvalidSmooth> {
        let rate = check_rate(rate)?;
        if saved_seconds.is_nan() || saved_seconds < 0.0 {
            return Err(InvalidSmooth::SavedSeconds(saved_seconds));
        }
        let max_permits = saved_seconds * rate;
        // An infinite rate means an infinite store; at a finite rate, the next `setRate` would fill it permanently.
        if max_permits.is_nan() || (max_permits.is_infinite() && rate.is_finite()) || saved_seconds.is_infinite() {
            return Err(InvalidSmooth::Store { rate, saved_seconds });
        }
        let stable_interval = MICROS_PER_SECOND / rate;
        let smooth = SmoothRate {
            nominal_rate: rate,
            stable_interval,
            max_permits,
            cool_down_interval: stable_interval,
            curve: None,
            initial_permits: 0.0,
            after_unlimited: max_permits,
        };
        Ok(Self { saved_seconds, initial, smooth }.with_initial_permits(initial))
    }
}
