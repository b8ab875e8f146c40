//! GCRA: the arithmetic that the token bucket and the leaky bucket share.
//!
//! # How it works
//! A rate of `permits` per `period` means that one permit is refilled every `interval = period / permits`. All usage so
//! far is stored as one time at which everything will be refilled, `tat` (the theoretical arrival time):
//!
//! ```text
//!         now               tat          now + capacity
//!  ────────┼─────────────────┼────────────────┼──────▶ time
//!          │◀──── used ─────▶│◀─ remaining ──▶│
//! ```
//!
//! A request of cost `c` occupies the segment `[start, mark)` of the axis, where `start = max(tat, now)` and
//! `mark = start + c × interval`; `tat` advances to `mark`. The segments never overlap, and every guarantee follows
//! from that: the usage within a span lies within the span plus the capacity.
//!
//! # Exactness
//! The interval need not be a whole number of nanoseconds (3/s is 333,333,333⅓ ns), so the axis is counted in *ticks*
//! of `1 / scale` nanoseconds, with `interval / scale = period / permits` in lowest terms. Then every segment is a
//! whole number of ticks, and nothing drifts. 128 bits are always enough; if the interval is whole nanoseconds, a tick
//! is a nanosecond and 64 bits are enough, so that one atomic word is the whole state.
//!
//! # The last timestamp
//! The last [`Timestamp`] is in the year 2554. A request that would have to wait longer is denied permanently. If the
//! capacity is at most half of the time until then, as in everything that fits one word, the axis itself ends there: no
//! segment extends past it, and a debt that would is clamped. So both widths give the same answers up to the last
//! nanosecond.

use crate::answer::LazyStatus;
use crate::{Cost, MaxWait, Outcome, Quota, Receipt, Refund, Status, Timestamp};
use std::fmt::Debug;
use std::time::Duration;

/// A number of ticks: one word, or two.
pub(crate) trait Ticks: Copy + Debug + Default + Ord + Send + Sync + 'static {
    const ZERO: Self;
    /// Returns a time in ticks of `1 / scale` nanoseconds, if it fits.
    fn from_time(now: Timestamp, scale: u64) -> Option<Self>;
    /// Ticks of `1 / scale` nanoseconds as nanoseconds, rounded up; saturates.
    fn nanos(self, scale: u64) -> u64 {
        u64::narrow(self.wide_nanos(scale))
    }
    /// Ticks of `1 / scale` nanoseconds as nanoseconds, rounded up.
    fn wide_nanos(self, scale: u64) -> u128;
    /// Returns `count × interval`, if it fits.
    fn product(count: u64, interval: u64) -> Option<Self>;
    fn checked_add(self, other: Self) -> Option<Self>;
    fn saturating_add(self, other: Self) -> Self;
    fn saturating_sub(self, other: Self) -> Self;
    fn wide(self) -> u128;
    /// Converts `wide`; saturates.
    fn narrow(wide: u128) -> Self;
    /// Returns the quotient by `divisor`, rounded down.
    fn div_floor(self, divisor: u64) -> Self;
}

/// One word always counts whole nanoseconds, so its scale is 1 and is ignored.
impl Ticks for u64 {
    const ZERO: Self = 0;
    #[inline(always)]
    fn from_time(now: Timestamp, _scale: u64) -> Option<Self> {
        Some(now.as_nanos())
    }
    #[inline(always)]
    fn nanos(self, _scale: u64) -> u64 {
        self
    }
    #[inline(always)]
    fn wide_nanos(self, _scale: u64) -> u128 {
        u128::from(self)
    }
    #[inline(always)]
    fn product(count: u64, interval: u64) -> Option<Self> {
        count.checked_mul(interval)
    }
    #[inline(always)]
    fn checked_add(self, other: Self) -> Option<Self> {
        u64::checked_add(self, other)
    }
    #[inline(always)]
    fn saturating_add(self, other: Self) -> Self {
        u64::saturating_add(self, other)
    }
    #[inline(always)]
    fn saturating_sub(self, other: Self) -> Self {
        u64::saturating_sub(self, other)
    }
    #[inline(always)]
    fn wide(self) -> u128 {
        u128::from(self)
    }
    #[inline(always)]
    fn narrow(wide: u128) -> Self {
        u64::try_from(wide).unwrap_or(u64::MAX)
    }
    #[inline(always)]
    fn div_floor(self, divisor: u64) -> Self {
        self / divisor
    }
}

impl Ticks for u128 {
    const ZERO: Self = 0;
    #[inline(always)]
    fn from_time(now: Timestamp, scale: u64) -> Option<Self> {
        Self::product(now.as_nanos(), scale)
    }
    #[inline(always)]
    fn wide_nanos(self, scale: u64) -> u128 {
        // Whole nanoseconds are the common case, and need no 128-bit division.
        if scale == 1 { self } else { self.div_ceil(u128::from(scale)) }
    }
    #[inline(always)]
    fn product(count: u64, interval: u64) -> Option<Self> {
        Some(u128::from(count) * u128::from(interval))
    }
    #[inline(always)]
    fn checked_add(self, other: Self) -> Option<Self> {
        u128::checked_add(self, other)
    }
    #[inline(always)]
    fn saturating_add(self, other: Self) -> Self {
        u128::saturating_add(self, other)
    }
    #[inline(always)]
    fn saturating_sub(self, other: Self) -> Self {
        u128::saturating_sub(self, other)
    }
    #[inline(always)]
    fn wide(self) -> u128 {
        self
    }
    #[inline(always)]
    fn narrow(wide: u128) -> Self {
        wide
    }
    #[inline(always)]
    fn div_floor(self, divisor: u64) -> Self {
        self / u128::from(divisor)
    }
}

/// A 128-bit time in two words, so that a table's entry is 24 bytes and not 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WideTicks([u64; 2]);

impl WideTicks {
    /// Returns the halves, the higher one first.
    pub(crate) fn words(self) -> [u64; 2] {
        self.0
    }

    /// Creates the time from its [halves](Self::words).
    pub(crate) fn from_words(words: [u64; 2]) -> Self {
        Self(words)
    }

    #[inline(always)]
    pub(crate) fn get(self) -> u128 {
        (u128::from(self.0[0]) << 64) | u128::from(self.0[1])
    }

    /// Works on the time as one number.
    #[inline]
    pub(crate) fn update<R>(&mut self, work: impl FnOnce(&mut u128) -> R) -> R {
        let mut ticks = self.get();
        let result = work(&mut ticks);
        *self = ticks.into();
        result
    }
}

impl From<u128> for WideTicks {
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the two halves of a u128")]
    fn from(ticks: u128) -> Self {
        Self([(ticks >> 64) as u64, ticks as u64])
    }
}

/// The parameters of GCRA: how long a permit takes to refill, and how far ahead usage may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gcra<T> {
    /// Ticks per permit.
    interval: u64,
    /// Ticks per nanosecond.
    scale: u64,
    /// Permits that can be in use at once.
    limit: u64,
    /// The `limit` in ticks.
    capacity: T,
}

/// When a request that fits may proceed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Departure<T> {
    /// It proceeds as soon as its segment ends within the capacity; it may reserve a later segment (token bucket).
    Fits,
    /// It proceeds when its segment starts, or `grace` ticks earlier; over the capacity it is denied (leaky bucket).
    Queued { grace: T },
}

impl Gcra<u64> {
    /// Returns the parameters for `interval` whole nanoseconds per permit; the capacity is known to fit.
    #[inline(always)]
    pub(crate) fn whole(interval: u64, limit: u64) -> Self {
        Self { interval, scale: 1, limit, capacity: interval.wrapping_mul(limit) }
    }
}

impl<T: Ticks> Gcra<T> {
    /// Returns the parameters of `quota` with a capacity of `limit` permits, if they fit the number type.
    pub(crate) fn new(quota: &Quota, limit: u64) -> Option<Self> {
        let (interval, scale) = quota.interval();
        let capacity = T::product(limit, interval)?;
        Some(Self { interval, scale, limit, capacity })
    }

    pub(crate) fn interval(&self) -> u64 {
        self.interval
    }

    #[inline(always)]
    pub(crate) fn scale(&self) -> u64 {
        self.scale
    }

    #[inline(always)]
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns `permits` as ticks; saturates.
    pub(crate) fn ticks_of(&self, permits: u64) -> T {
        T::product(permits, self.interval).unwrap_or_else(|| T::narrow(u128::MAX))
    }

    /// Takes `cost` from `tat`, waiting at most `max_wait`.
    #[inline(always)]
    pub(crate) fn take(
        &self,
        tat: &mut T,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
        departure: Departure<T>,
    ) -> Outcome {
        let Some(price) = T::product(cost.get(), self.interval) else { return Outcome::never() };
        if price > self.capacity {
            return Outcome::never();
        }
        let Some(time) = self.time(now) else { return Outcome::never() };
        let start = (*tat).max(time);
        // No clock reaches a time past the end, so a retry would not help.
        let Some(mark) = start.checked_add(price).filter(|mark| *mark <= self.end()) else { return Outcome::never() };
        let ahead = mark.saturating_sub(time);
        let over_capacity = ahead.saturating_sub(self.capacity);
        let (wait, blocked) = match departure {
            Departure::Fits => (over_capacity, T::ZERO),
            // Nothing need not wait.
            Departure::Queued { .. } if price == T::ZERO => (T::ZERO, over_capacity),
            Departure::Queued { grace } => (start.saturating_sub(time).saturating_sub(grace), over_capacity),
        };
        let max_wait = T::from_time(Timestamp::from_nanos(max_wait.as_nanos()), self.scale);
        let max_wait = max_wait.unwrap_or_else(|| T::narrow(u128::MAX));
        let too_early = wait.saturating_sub(max_wait).max(blocked);
        if too_early > T::ZERO {
            return Outcome::denied_until(u128::from(now.as_nanos()) + too_early.wide_nanos(self.scale), now);
        }
        *tat = mark;
        let receipt = Receipt::new(cost, now).with_mark(mark.wide());
        // Most requests don't wait, and a duration takes a division.
        let wait = if wait == T::ZERO { Duration::ZERO } else { self.duration(wait) };
        Outcome::Granted { wait, receipt }
    }

    /// Advances `tat` by `cost` unconditionally.
    pub(crate) fn charge(&self, tat: &mut T, now: Timestamp, cost: Cost) {
        let time = self.time(now).unwrap_or_else(|| T::narrow(u128::MAX));
        *tat = (*tat).max(time).saturating_add(self.ticks_of(cost.get())).min(self.end());
    }

    /// Refunds the part of the receipt's own segment that is still in the future; the rest has been refilled.
    ///
    /// While there is a pending reservation, only the last segment can be refunded: moving the others forward would put
    /// new requests before a reservation.
    ///
    /// Otherwise the later segments move forward, and their receipts do not reflect that. So a refund may restore
    /// permits that have also been refilled, but never more than the receipt took: in every span, the usage is at most
    /// the guarantee plus the refunds within the span. (To never count those twice, a refund would have to be void one
    /// price after the request proceeded, however large the debt; then an overestimated cost could not be corrected.)
    pub(crate) fn refund(&self, tat: &mut T, now: Timestamp, receipt: &Receipt, departure: Departure<T>) -> Refund {
        let Some(time) = self.time(now) else { return Refund::Void };
        let (mark, price) = (T::narrow(receipt.mark()), self.ticks_of(receipt.cost().get()));
        let max_ahead = match departure {
            Departure::Fits => self.capacity,
            // The last request waits if its segment starts later than `grace` from now, and it has at least one permit.
            Departure::Queued { grace } => grace.saturating_add(self.ticks_of(1)),
        };
        let has_reservations = (*tat).saturating_sub(time) > max_ahead;
        // No segment is later than `tat`. A later mark is from before another refund or a change of the limit.
        let remaining = mark.min(*tat).saturating_sub(time).min(price);
        if remaining == T::ZERO || (has_reservations && *tat != mark) {
            return Refund::Void;
        }
        *tat = (*tat).saturating_sub(remaining);
        Refund::Returned
    }

    /// Returns the number of permits that fit now, and the time until everything is refilled.
    #[inline(always)]
    pub(crate) fn status(&self, tat: T, now: Timestamp) -> Status {
        let used = self.ahead(tat, now);
        let remaining = u64::narrow(self.capacity.saturating_sub(used).div_floor(self.interval).wide());
        Status { limit: self.limit, remaining, reset: self.duration(used) }
    }

    /// Returns the [`status`](Self::status), computed when it is read.
    #[inline(always)]
    pub(crate) fn lazy_status(&self, tat: T, now: Timestamp) -> LazyStatus {
        let used = self.ahead(tat, now).wide();
        LazyStatus::of_bucket(self.limit, self.interval, used, self.scale)
            .unwrap_or_else(|| LazyStatus::known(self.status(tat, now)))
    }

    /// Returns `true` if everything is refilled.
    #[inline(always)]
    pub(crate) fn is_clear(&self, tat: T, now: Timestamp) -> bool {
        self.ahead(tat, now) == T::ZERO
    }

    /// Returns how far ahead of now usage may run, in ticks.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> T {
        self.capacity
    }

    /// Migrates `tat` from `old`: the same number of permits in use (rounded up), at most the new capacity.
    pub(crate) fn rescale(&self, tat: &mut T, old: &Self, now: Timestamp) {
        let (Some(time), used) = (self.time(now), old.ahead(*tat, now).wide()) else { return };
        let (from, to) = (u128::from(old.interval), u128::from(self.interval));
        let (permits, rest) = (used / from, used % from);
        // Clamped first, so that the product below stays within 128 bits.
        let permits = permits.min(u128::from(self.limit));
        let used = permits.saturating_mul(to).saturating_add((rest * to).div_ceil(from));
        *tat = time.saturating_add(T::narrow(used).min(self.capacity)).min(self.end());
    }

    #[inline(always)]
    fn ahead(&self, tat: T, now: Timestamp) -> T {
        self.time(now).map_or(T::ZERO, |time| tat.saturating_sub(time))
    }

    #[inline(always)]
    fn time(&self, now: Timestamp) -> Option<T> {
        T::from_time(now, self.scale)
    }

    /// Returns the end of the axis: the last timestamp, unless the capacity alone takes half of the time until then.
    #[inline(always)]
    fn end(&self) -> T {
        match (self.time(Timestamp::MAX), self.time(Timestamp::from_nanos(u64::MAX / 2))) {
            (Some(last), Some(half)) if self.capacity <= half => last,
            _ => T::narrow(u128::MAX),
        }
    }

    /// Ticks as a duration, rounded up, so that a wait of it is long enough.
    #[inline(always)]
    fn duration(&self, ticks: T) -> Duration {
        Duration::from_nanos(ticks.nanos(self.scale))
    }
}
