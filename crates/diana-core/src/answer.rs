//! The answer of one limit: the outcome, the status of the key, and the receipt of a grant.

use crate::{Cost, Timestamp};
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

/// An outcome with the status of the key after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not proceed"]
pub struct Answer {
    /// Granted or denied.
    pub outcome: Outcome,
    /// The status of the key now; granted permits are already subtracted.
    pub status: Status,
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

    /// How long a granted request must wait; `None` if it was denied.
    pub const fn wait(&self) -> Option<Duration> {
        match self {
            Self::Granted { wait, .. } => Some(*wait),
            Self::Denied { .. } => None,
        }
    }

    /// When a denied request would be granted; `None` if it was granted.
    pub const fn retry(&self) -> Option<Retry> {
        match self {
            Self::Granted { .. } => None,
            Self::Denied { retry } => Some(*retry),
        }
    }

    /// The receipt of a granted request; `None` if it was denied.
    pub const fn receipt(&self) -> Option<Receipt> {
        match self {
            Self::Granted { receipt, .. } => Some(*receipt),
            Self::Denied { .. } => None,
        }
    }
}

impl Answer {
    /// Returns `true` if the permits were taken.
    #[inline]
    pub const fn is_granted(&self) -> bool {
        self.outcome.is_granted()
    }

    /// How long a granted request must wait; `None` if it was denied.
    pub const fn wait(&self) -> Option<Duration> {
        self.outcome.wait()
    }

    /// When a denied request would be granted; `None` if it was granted.
    pub const fn retry(&self) -> Option<Retry> {
        self.outcome.retry()
    }

    /// The receipt of a granted request; `None` if it was denied.
    pub const fn receipt(&self) -> Option<Receipt> {
        self.outcome.receipt()
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

    /// The number of permits taken.
    #[inline]
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// The time of the grant.
    #[inline]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// The data that the algorithm attached with [`with_mark`](Self::with_mark).
    #[inline]
    #[allow(clippy::cast_lossless, reason = "`From` is not const")]
    pub const fn mark(&self) -> u128 {
        ((self.mark[0] as u128) << 64) | self.mark[1] as u128
    }
}
