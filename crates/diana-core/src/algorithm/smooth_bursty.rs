//! Smooth bursty: Guava's `RateLimiter.create(rate)`.
//!
//! # How it works
//! An even flow, and a store that a quiet spell fills. Stored permits cost nothing, so a client that was quiet for a
//! second may go on at once with a second's worth; a busy one gets a permit every interval.
//!
//! ```text
//!  interval
//!   stable ┤              ┌──────────────▶ fresh permits: the stable interval each
//!          │              │
//!        0 ┼━━━━━━━━━━━━━━┙
//!          0   stored    max               stored permits: free
//! ```
//!
//! [`smooth`](super::smooth) has the arithmetic, and tells who pays: always the next request.
//!
//! # What always holds (tests/it/guava.rs, tests/it/smooth.rs)
//! - After any idle time, `rate × burst_seconds` permits and one request more pass at once, then one an interval.
//! - An idle key equals a fresh one if it [initial full](Starts::Full).

use super::guava::{InvalidSmooth, MICROS_PER_SECOND, SmoothRate, check_rate};

/// Guava's `SmoothBursty`, to the microsecond: an even flow, with a store for quiet spells.
///
/// A request of any size is granted when nobody has to wait, and whoever comes next pays for it by waiting. So this
/// suits a single flow of work that is to be paced; where a large cost must be refused, take a
/// [`TokenBucket`](crate::TokenBucket), which also has no floats in it.
///
/// # Where a key stands
/// The limit is the size of the store in whole permits, and what remains is what is stored; both at least 1, since
/// without a debt even an empty store grants what is asked. In debt nothing remains. The reset is when the debt is paid
/// and the store is full.
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
/// assert_eq!(acquire(5)?, Some(Duration::ZERO)); // granted at once, though nothing is stored
/// assert_eq!(acquire(1)?, Some(Duration::from_secs(1))); // the next one waits for it
/// assert_eq!(acquire(1)?, Some(Duration::from_millis(1_200)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothBursty {
    burst_seconds: f64,
    initial: InitialPermits,
    smooth: SmoothRate,
}

/// What a key that is seen for the first time has in store.
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
/// // What idles long enough is as good as new, so it need not be kept.
/// let (old, later) = (keyed.fresh(Timestamp::EPOCH), Timestamp::from_secs(9));
/// assert!(keyed.is_fresh(&old, later) && !guava.is_fresh(&old, later));
/// # Ok::<(), diana_core::InvalidSmooth>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InitialPermits {
    /// Nothing, as Guava does: right for a single limiter that initial with its program. An idle key is never as good as
    /// new, so a table of keys can't forget any.
    #[default]
    Empty,
    /// As much as it can hold: for many keys, so that an idle one equals a fresh one and may be forgotten.
    Full,
}

impl SmoothBursty {
    /// `rate` permits a second, and a store of one second's worth: Guava's `create(rate)`.
    pub fn new(rate: f64) -> Result<Self, InvalidSmooth> {
        Self::build(rate, 1.0, InitialPermits::Empty)
    }

    /// The same limiter with a store of `burst_seconds` seconds' worth of permits.
    ///
    /// ```
    /// use diana_core::SmoothBursty;
    ///
    /// assert_eq!(SmoothBursty::new(5.0)?.with_burst_seconds(10.0)?.in_micros().max_permits(), 50.0);
    /// # Ok::<(), diana_core::InvalidSmooth>(())
    /// ```
    pub fn with_burst_seconds(self, burst_seconds: f64) -> Result<Self, InvalidSmooth> {
        Self::build(self.smooth.rate_given, burst_seconds, self.initial)
    }

    /// The same limiter at another rate; [`rescale`](crate::Algorithm::rescale) brings a state over, as Guava's `setRate` does.
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
    /// assert_eq!(acquire(), Some(Duration::from_millis(1_000))); // a debt stays what it was
    /// assert_eq!(acquire(), Some(Duration::from_millis(1_500)));
    /// # Ok::<(), diana_core::InvalidSmooth>(())
    /// ```
    pub fn with_rate(self, rate: f64) -> Result<Self, InvalidSmooth> {
        Self::build(rate, self.burst_seconds, self.initial)
    }

    /// The same limiter with another beginning.
    #[must_use]
    pub fn with_initial_permits(mut self, initial: InitialPermits) -> Self {
        self.initial = initial;
        self.smooth.begins_with = match initial {
            InitialPermits::Empty => 0.0,
            InitialPermits::Full => self.smooth.max_permits,
        };
        self
    }

    /// Permits a second, as Guava's `getRate` tells them.
    pub fn rate(&self) -> f64 {
        self.smooth.rate()
    }

    /// How many seconds' worth of permits can be stored.
    pub fn burst_seconds(&self) -> f64 {
        self.burst_seconds
    }

    /// What a fresh key has in store.
    pub fn initial_permits(&self) -> InitialPermits {
        self.initial
    }

    /// The arithmetic in microseconds, and Guava's own numbers.
    pub fn in_micros(&self) -> &SmoothRate {
        &self.smooth
    }

    fn build(rate: f64, burst_seconds: f64, initial: InitialPermits) -> Result<Self, InvalidSmooth> {
        let rate = check_rate(rate)?;
        if burst_seconds.is_nan() || burst_seconds < 0.0 {
            return Err(InvalidSmooth::BurstSeconds(burst_seconds));
        }
        let max_permits = burst_seconds * rate;
        // An endless store is what an infinite rate means; elsewhere, the next `setRate` would fill it for good.
        if max_permits.is_nan() || (max_permits.is_infinite() && rate.is_finite()) || burst_seconds.is_infinite() {
            return Err(InvalidSmooth::Store { rate, burst_seconds });
        }
        let stable_interval = MICROS_PER_SECOND / rate;
        let smooth = SmoothRate {
            rate_given: rate,
            stable_interval,
            max_permits,
            cool_down_interval: stable_interval,
            climb: None,
            begins_with: 0.0,
            after_unlimited: max_permits,
        };
        Ok(Self { burst_seconds, initial, smooth }.with_initial_permits(initial))
    }
}
