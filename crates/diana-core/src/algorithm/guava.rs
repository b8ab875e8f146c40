//! Guava's RateLimiter in microseconds: the arithmetic that `SmoothBursty` and `SmoothWarmingUp` share.
//!
//! # How it works
//! The simplest limiter stores the time of the last request, and allows the next one an interval later. It does not
//! know how long the client was idle, so it can neither allow a burst after idle time nor slow down a cold start. Hence
//! two numbers: the time at which the next request may proceed, and the permits stored during idle time.
//!
//! ```text
//!      next_free                now
//!  ────────┼─────────────────────┼──────▶ time     idle: the time in between turns into stored permits
//!          │◀── the store grows ▶│
//!
//!         now                next_free
//!  ────────┼─────────────────────┼──────▶ time     in debt: the next request waits, whatever its cost
//!          │◀──── its wait ─────▶│
//! ```
//!
//! A request proceeds at `next_free` and does not pay itself: its price moves `next_free` for the next one. So a
//! request of any size proceeds immediately if there is no debt. The price has three parts: permits from the sloped
//! part of the store, from its flat part, and fresh ones at the stable interval; each is truncated to whole
//! microseconds separately.
//!
//! # Why floats
//! To match Guava to the microsecond, this is f64 in Java's order of operations; nothing else in Diana is. `as` casts
//! like Java's `(long)`: towards zero, NaN to 0, the rest saturates. `cargo xtask golden` replays recorded runs.
//!
//! # What always holds (tests/it/smooth.rs)
//! - A denial leaves the state bit for bit unchanged.
//! - A price is never negative and never wraps, so no request moves `next_free` back.
//! - With a finite store (`max_permits`) no number in the state is NaN or infinite.

use crate::{Cost, Receipt};

mod algorithm;
pub(super) use algorithm::{describe_rate, whole_permits};

/// The last microsecond: Java's `Long.MAX_VALUE`.
pub(super) const END: u64 = i64::MAX.unsigned_abs();
pub(super) const MICROS_PER_SECOND: f64 = 1_000_000.0;

/// The parameters of a smooth limiter, and its operations at a time in microseconds.
///
/// [`SmoothBursty`](crate::SmoothBursty) and [`SmoothWarmingUp`](crate::SmoothWarmingUp) use it. Use it directly for a
/// clock past the year 2554, which a [`Timestamp`](crate::Timestamp) cannot represent, or to read Guava's own numbers.
///
/// ```
/// use diana_core::{Cost, SmoothBursty};
///
/// let limiter = SmoothBursty::new(5.0)?;
/// let guava = limiter.in_micros();
/// let mut state = guava.fresh(0);
/// assert_eq!(guava.acquire(&mut state, 0, Cost::ONE), 0);
/// assert_eq!(guava.try_acquire(&mut state, 0, Cost::ONE, 199_999), None);
/// assert_eq!(guava.try_acquire(&mut state, 0, Cost::ONE, 200_000), Some(200_000));
/// assert_eq!(state.next_free_micros(), 400_000);
/// # Ok::<(), diana_core::InvalidSmooth>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothRate {
    /// The configured permits per second; the reciprocal of the interval may differ in the last bit.
    pub(super) nominal_rate: f64,
    /// Microseconds between two permits at the stable rate.
    pub(super) stable_interval: f64,
    /// The size of the store; infinite only if no request ever waits.
    pub(super) max_permits: f64,
    /// Microseconds of idle time that store one permit.
    pub(super) cool_down_interval: f64,
    /// The price of stored permits; they are free if `None`.
    pub(super) curve: Option<PriceCurve>,
    /// The initial store of a fresh key.
    pub(super) initial_permits: f64,
    /// The store after a rate at which it was unbounded, so that there is no proportion to keep.
    pub(super) after_unlimited: f64,
}

/// The price curve of stored permits: the stable interval up to the threshold, and the slope above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PriceCurve {
    pub(super) threshold: f64,
    pub(super) slope: f64,
}

/// The state of a smooth limiter: the stored permits, and when the next request may proceed.
///
/// An external store reads and writes it as these two numbers, the permits bit for bit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SmoothState {
    stored: f64,
    next_free_micros: u64,
}

/// The price of a request, which the next one pays, in whole microseconds.
///
/// ```
/// use diana_core::{Cost, SmoothWarmingUp};
/// use std::time::Duration;
///
/// let limiter = SmoothWarmingUp::new(5.0, Duration::from_secs(1))?;
/// let guava = limiter.in_micros();
/// let price = guava.price(&guava.fresh(0), 0, Cost::new(6)?);
/// assert_eq!((price.sloped, price.flat, price.fresh), (1_000_000, 500_000, 200_000));
/// assert_eq!(price.micros(), 1_700_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmoothPrice {
    /// The price of stored permits above the threshold.
    pub sloped: u64,
    /// The price of stored permits below it.
    pub flat: u64,
    /// The price of permits that are not in the store.
    pub fresh: u64,
}

impl SmoothState {
    /// Creates a state with these stored permits, whose next request may proceed at `next_free_micros`.
    pub fn new(stored_permits: f64, next_free_micros: u64) -> Self {
        Self { stored: stored_permits, next_free_micros: next_free_micros.min(END) }
    }

    /// Returns the state before the grant of `receipt`, which a refund restores.
    pub fn before(receipt: &Receipt) -> Self {
        algorithm::state_of(receipt.mark())
    }

    /// Returns the permits stored when the state was last updated; idle time since then is not included.
    pub fn stored_permits(&self) -> f64 {
        self.stored
    }

    /// Returns when the next request may proceed, in microseconds.
    pub fn next_free_micros(&self) -> u64 {
        self.next_free_micros
    }
}

impl SmoothPrice {
    /// Returns the sum; saturates.
    pub fn micros(&self) -> u64 {
        self.checked_micros().unwrap_or(END)
    }

    /// Returns the sum; `None` if it does not fit Java's `long`.
    ///
    /// Guava's sum turns negative in that case, so that a huge request *moves `next_free` back* and the next one is
    /// granted immediately. This depends on the cost of a request, and every warming-up limiter below 976/s has such
    /// costs; so the parameters are not rejected: the sum saturates at the last microsecond, and later requests have
    /// to wait until then.
    pub fn checked_micros(&self) -> Option<u64> {
        let sum = self.sloped.checked_add(self.flat)?.checked_add(self.fresh)?;
        (sum <= END).then_some(sum)
    }
}

/// Guava's operations, with time in microseconds.
impl SmoothRate {
    /// Permits per second, as Guava's `getRate` returns them: the reciprocal of the interval, with its rounding.
    pub fn rate(&self) -> f64 {
        MICROS_PER_SECOND / self.stable_interval
    }

    /// Returns the configured permits per second.
    pub fn nominal_rate(&self) -> f64 {
        self.nominal_rate
    }

    /// Microseconds between two permits at the stable rate.
    pub fn stable_interval_micros(&self) -> f64 {
        self.stable_interval
    }

    /// Returns the size of the store.
    pub fn max_permits(&self) -> f64 {
        self.max_permits
    }

    /// Microseconds of idle time that store one permit.
    pub fn cool_down_interval_micros(&self) -> f64 {
        self.cool_down_interval
    }

    /// Returns the price curve of stored permits, if they are not free: the number above which they cost more than fresh ones,
    /// and by how many microseconds each further one does. Guava's `thresholdPermits` and `slope`.
    pub fn threshold_and_slope(&self) -> Option<(f64, f64)> {
        self.curve.map(|curve| (curve.threshold, curve.slope))
    }

    /// Returns the state of a limiter created at `now`.
    pub fn fresh(&self, now: u64) -> SmoothState {
        SmoothState { stored: self.initial_permits, next_free_micros: now.min(END) }
    }

    /// Takes `cost` and returns the wait: Guava's `acquire`.
    pub fn acquire(&self, state: &mut SmoothState, now: u64, cost: Cost) -> u64 {
        self.reserve(state, now, cost).next_free_micros.saturating_sub(now)
    }

    /// Takes `cost` if the wait is at most `timeout`, and returns the wait: Guava's `tryAcquire`.
    ///
    /// Only the existing debt counts, never the cost, and the timeout is inclusive.
    pub fn try_acquire(&self, state: &mut SmoothState, now: u64, cost: Cost, timeout: u64) -> Option<u64> {
        let due = state.next_free_micros.saturating_sub(timeout) <= now;
        due.then(|| self.acquire(state, now, cost))
    }

    /// Returns the price of taking `cost` at `now`, which the next request pays.
    pub fn price(&self, state: &SmoothState, now: u64, cost: Cost) -> SmoothPrice {
        self.price_of(self.settled(*state, now).stored, cost).0
    }

    /// Returns `state` at `now`, with the idle time turned into stored permits: Guava's `resync`.
    ///
    /// ```
    /// use diana_core::SmoothBursty;
    ///
    /// let limiter = SmoothBursty::new(5.0)?;
    /// let guava = limiter.in_micros();
    /// assert_eq!(guava.settled(guava.fresh(0), 500_000).stored_permits(), 2.5);
    /// # Ok::<(), diana_core::InvalidSmooth>(())
    /// ```
    pub fn settled(&self, state: SmoothState, now: u64) -> SmoothState {
        let now = now.min(END);
        if now <= state.next_free_micros {
            return state;
        }
        let idle = now - state.next_free_micros;
        SmoothState { stored: self.stored_after(state.stored, idle), next_free_micros: now }
    }

    /// Migrates a state from `old`: Guava's `setRate`.
    ///
    /// Updates it to `now` under `old`, keeps the debt in time, and keeps the store's proportion of its maximum.
    pub fn set_rate(&self, state: &mut SmoothState, old: &Self, now: u64) {
        *state = old.settled(*state, now);
        state.stored = if old.max_permits == f64::INFINITY {
            self.after_unlimited
        } else if old.max_permits == 0.0 {
            self.initial_permits
        } else {
            let scaled = state.stored * self.max_permits / old.max_permits;
            // Guava lets the product overflow, and an infinite store is never used up. Otherwise its last bit is kept,
            // even if it is above the maximum: the next idle microsecond clamps it.
            if scaled.is_finite() || self.is_unlimited() { scaled } else { self.max_permits }
        };
    }

    fn stored_after(&self, stored: f64, idle: u64) -> f64 {
        java_min(self.max_permits, stored + idle as f64 / self.cool_down_interval)
    }

    /// Takes `cost`; returns the updated state from which it was taken.
    fn reserve(&self, state: &mut SmoothState, now: u64, cost: Cost) -> SmoothState {
        let before = self.settled(*state, now);
        *state = self.spent(before, cost);
        before
    }

    /// Returns an updated state minus `cost`.
    fn spent(&self, before: SmoothState, cost: Cost) -> SmoothState {
        let (price, from_store) = self.price_of(before.stored, cost);
        SmoothState {
            stored: before.stored - from_store,
            next_free_micros: before.next_free_micros.saturating_add(price.micros()).min(END),
        }
    }

    /// Returns the price of `cost`, and how many permits of it come from the store.
    fn price_of(&self, stored: f64, cost: Cost) -> (SmoothPrice, f64) {
        let required = cost.get() as f64;
        let from_store = java_min(required, stored);
        let fresh = whole_micros((required - from_store) * self.stable_interval);
        let (sloped, flat) = self.curve.map_or((0, 0), |curve| curve.price(stored, from_store, self.stable_interval));
        (SmoothPrice { sloped, flat, fresh }, from_store)
    }

    /// Returns `true` if no request ever waits, so that the store does not matter (and may be NaN, as in Guava).
    fn is_unlimited(&self) -> bool {
        self.max_permits == f64::INFINITY
    }
}

impl PriceCurve {
    /// Returns the price of taking `taken` from the top of `stored`: the sloped and the flat part of the area under the curve.
    fn price(&self, stored: f64, taken: f64, stable_interval: f64) -> (u64, u64) {
        let interval_at = |above: f64| stable_interval + above * self.slope;
        let above = stored - self.threshold;
        if above > 0.0 {
            let sloped = java_min(above, taken);
            let length = interval_at(above) + interval_at(above - sloped);
            (whole_micros(sloped * length / 2.0), whole_micros(stable_interval * (taken - sloped)))
        } else {
            (0, whole_micros(stable_interval * taken))
        }
    }
}

/// Returns Java's `Math.min`: NaN if either is. Rust's `min` prefers the number.
fn java_min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

/// Converts like Java's `(long)`, but never to a negative number: no request moves `next_free` back.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "truncation is intended")]
fn whole_micros(micros: f64) -> u64 {
    (micros as u64).min(END)
}
