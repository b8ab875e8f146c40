//! The answer of one limit: the outcome, the status of the key, and the receipt of a grant.

use crate::{Cost, Timestamp};
use std::fmt;
use std::time::Duration;

/// The result of one ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not proceed"]
pub enum Outcome {
    /// The permits are taken. The request may proceed after `wait`, which is zero unless it has a
    /// [`MaxWait`](crate::MaxWait).
    Granted {
        /// How long the request must wait before it proceeds.
        wait: Duration,
        /// The permits that were taken, for a refund.
        receipt: Receipt,
    },
    /// Nothing was taken.
    Denied {
        /// Whether and when the same ask would be granted.
        retry: Retry,
    },
}

/// Whether and when a denied ask would be granted, if there are no other asks in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Exactly this much later; one nanosecond earlier would be too early.
    After(Duration),
    /// When permits are released, at an unknown time.
    WhenReleased,
    /// Never: the cost is above the capacity, or the total is used up.
    Never,
}

/// The status of a key, as shown in headers, dashboards and explanations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The capacity: the most that can be granted at once from a fresh state.
    pub limit: u64,
    /// The permits that could be granted now.
    pub remaining: u64,
    /// The time until permits are restored: until the window ends, until the oldest use leaves a sliding window, or
    /// until a bucket is full. Zero if nothing is in use, or if the time is unknown.
    pub reset: Duration,
}

impl Status {
    /// Returns how much of the limit is in use: what a counter that counts up would show.
    pub const fn used(&self) -> u64 {
        self.limit.saturating_sub(self.remaining)
    }
}

/// An outcome with the status of the key after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not proceed"]
pub struct Answer {
    /// Granted or denied.
    pub outcome: Outcome,
    status: LazyStatus,
}

/// A status, or the usage of a bucket from which it is computed when it is read: that takes divisions, and most statuses
/// are never read.
///
/// It is as large as a status. An enum of both would not be.
#[derive(Clone, Copy)]
pub(crate) struct LazyStatus {
    limit: u64,
    /// The permits that remain, or a bucket's ticks per permit.
    remaining_or_interval: u64,
    /// The whole seconds until it resets, or a bucket's usage in ticks.
    reset_or_used: u64,
    reset_nanos: u32,
    /// A bucket's ticks per nanosecond; 0 if this is a known status.
    scale: u32,
}

/// The record of a grant, for a refund.
///
/// A refund is void once its window has passed, since time has restored the permits already. A reservation (a grant
/// with a wait) can be refunded only while it is the last one: later reservations keep their times.
///
/// Receipts are not checked for reuse. Refund a receipt once, to the limit and key that granted it; a second refund, or
/// one to another limit or key, releases permits that other requests use, up to its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    cost: Cost,
    at: Timestamp,
    // Two words rather than a u128, whose alignment of 16 would enlarge every answer.
    mark: [u64; 2],
}

/// The result of a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refund {
    /// The permits, or those that time had not restored yet, can be used again.
    Returned,
    /// The receipt's window has passed, or there are later reservations. Nothing changed.
    Void,
}

impl Outcome {
    /// Creates a grant without a wait.
    #[inline]
    pub const fn granted(receipt: Receipt) -> Self {
        Self::Granted { wait: Duration::ZERO, receipt }
    }

    /// Creates a permanent denial.
    #[inline]
    pub const fn never() -> Self {
        Self::Denied { retry: Retry::Never }
    }

    /// Creates a denial until `nanos` nanoseconds from now.
    #[inline]
    pub const fn denied_for(nanos: u64) -> Self {
        Self::Denied { retry: Retry::After(Duration::from_nanos(nanos)) }
    }

    /// Creates a denial until `time`, in nanoseconds after the epoch. Permanent if past the last `Timestamp`.
    #[inline]
    pub(crate) fn denied_until(time: u128, now: Timestamp) -> Self {
        u64::try_from(time).map_or(Self::never(), |time| Self::denied_for(time.saturating_sub(now.as_nanos())))
    }

    /// Returns `true` if the permits were taken.
    #[inline]
    pub const fn is_granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }

    /// Returns how long a granted request must wait; `None` if it was denied.
    pub const fn wait(&self) -> Option<Duration> {
        match self {
            Self::Granted { wait, .. } => Some(*wait),
            Self::Denied { .. } => None,
        }
    }

    /// Returns when a denied request would be granted; `None` if it was granted.
    pub const fn retry(&self) -> Option<Retry> {
        match self {
            Self::Granted { .. } => None,
            Self::Denied { retry } => Some(*retry),
        }
    }

    /// Returns the receipt of a granted request; `None` if it was denied.
    pub const fn receipt(&self) -> Option<Receipt> {
        match self {
            Self::Granted { receipt, .. } => Some(*receipt),
            Self::Denied { .. } => None,
        }
    }
}

impl Answer {
    /// Creates the answer of a limit whose key has this status now; granted permits are already subtracted.
    #[inline]
    pub const fn new(outcome: Outcome, status: Status) -> Self {
        Self { outcome, status: LazyStatus::known(status) }
    }

    #[inline(always)]
    pub(crate) const fn with_lazy_status(outcome: Outcome, status: LazyStatus) -> Self {
        Self { outcome, status }
    }

    /// Returns the status of the key; granted permits are already subtracted. It is computed by this call, so that requests for
    /// which it is not read don't pay for it.
    #[inline]
    pub fn status(&self) -> Status {
        self.status.get()
    }

    /// Returns the same answer with another status.
    pub fn with_status(self, status: Status) -> Self {
        Self::new(self.outcome, status)
    }

    /// Returns the same answer with another outcome.
    pub fn with_outcome(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }

    /// Returns `true` if the permits were taken.
    #[inline]
    pub const fn is_granted(&self) -> bool {
        self.outcome.is_granted()
    }

    /// Returns how long a granted request must wait; `None` if it was denied.
    pub const fn wait(&self) -> Option<Duration> {
        self.outcome.wait()
    }

    /// Returns when a denied request would be granted; `None` if it was granted.
    pub const fn retry(&self) -> Option<Retry> {
        self.outcome.retry()
    }

    /// Returns the receipt of a granted request; `None` if it was denied.
    pub const fn receipt(&self) -> Option<Receipt> {
        self.outcome.receipt()
    }
}

impl LazyStatus {
    #[inline(always)]
    pub(crate) const fn known(status: Status) -> Self {
        let Status { limit, remaining, reset } = status;
        let (reset_or_used, reset_nanos) = (reset.as_secs(), reset.subsec_nanos());
        Self { limit, remaining_or_interval: remaining, reset_or_used, reset_nanos, scale: 0 }
    }

    /// Returns the status of a bucket of `limit` permits of `interval` ticks each, of which `used` ticks are in use; a nanosecond
    /// has `scale` ticks. `None` if these numbers are too large to store.
    #[inline(always)]
    pub(crate) fn of_bucket(limit: u64, interval: u64, used: u128, scale: u64) -> Option<Self> {
        let (Ok(used), Ok(scale)) = (u64::try_from(used), u32::try_from(scale)) else { return None };
        Some(Self { limit, remaining_or_interval: interval, reset_or_used: used, reset_nanos: 0, scale })
    }

    #[inline]
    fn get(&self) -> Status {
        let Self { limit, remaining_or_interval, reset_or_used, reset_nanos, scale } = *self;
        if scale == 0 {
            let reset = Duration::new(reset_or_used, reset_nanos);
            return Status { limit, remaining: remaining_or_interval, reset };
        }
        let (interval, used) = (remaining_or_interval, reset_or_used);
        let remaining = match limit.checked_mul(interval) {
            Some(capacity) => capacity.saturating_sub(used).checked_div(interval),
            None => wide_remaining(limit, interval, used),
        };
        // Rounded up, so that a wait of it is long enough.
        let reset = if scale == 1 { used } else { used.div_ceil(u64::from(scale)) };
        Status { limit, remaining: remaining.unwrap_or(limit), reset: Duration::from_nanos(reset) }
    }
}

/// Returns the permits that remain, if the capacity in ticks needs more than 64 bits.
#[cold]
fn wide_remaining(limit: u64, interval: u64, used: u64) -> Option<u64> {
    let capacity = u128::from(limit) * u128::from(interval);
    u64::try_from(capacity.saturating_sub(u128::from(used)) / u128::from(interval)).ok()
}

impl PartialEq for LazyStatus {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for LazyStatus {}

impl fmt::Debug for LazyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Retry {
    /// Returns the later of two, where `Never` is the latest and an unknown time is later than any known one.
    pub fn later(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::WhenReleased, _) | (_, Self::WhenReleased) => Self::WhenReleased,
            (Self::After(a), Self::After(b)) => Self::After(a.max(b)),
        }
    }
}

impl Receipt {
    /// Creates a receipt for `cost` permits granted at `at`.
    #[inline]
    pub const fn new(cost: Cost, at: Timestamp) -> Self {
        Self { cost, at, mark: [0, 0] }
    }

    /// Attaches the data by which the algorithm finds the grant again: a window, a position, a time.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the two halves of a u128")]
    pub const fn with_mark(mut self, mark: u128) -> Self {
        self.mark = [(mark >> 64) as u64, mark as u64];
        self
    }

    /// Returns the number of permits taken.
    #[inline]
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the time of the grant.
    #[inline]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the data that the algorithm attached with [`with_mark`](Self::with_mark).
    #[inline]
    #[allow(clippy::cast_lossless, reason = "`From` is not const")]
    pub const fn mark(&self) -> u128 {
        ((self.mark[0] as u128) << 64) | self.mark[1] as u128
    }
}
