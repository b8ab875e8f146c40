//! What one limit answers: the outcome, where the key stands, and the receipt for what was taken.

use crate::{Cost, Timestamp};
use std::time::Duration;

/// What became of one ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not go on"]
pub enum Outcome {
    /// The permits are taken. The request may go on after `wait`, which is zero unless the asker had [`MaxWait`](crate::Patience).
    Granted {
        /// How long the request must wait before it goes on.
        wait: Duration,
        /// What was taken, to give it back.
        receipt: Receipt,
    },
    /// Nothing was taken.
    Denied {
        /// Whether, and when, the same ask would be granted.
        retry: Retry,
    },
}

/// Whether, and when, an ask that was denied would be granted, if nobody else asks in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Exactly this much later; one nanosecond earlier would be too early.
    After(Duration),
    /// When somebody gives permits back; no clock can tell when that is.
    WhenReturned,
    /// Never: waiting does not help, because the cost is above the capacity or the total is used up.
    Never,
}

/// Where a key stands: what headers, dashboards and explanations show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The capacity: the most that can be granted at once from a fresh state.
    pub limit: u64,
    /// How much could be granted right now.
    pub remaining: u64,
    /// How long until the limit gives back: a window's end, the moment at which a sliding window's oldest use leaves it,
    /// or the moment at which a bucket is full again. Zero when nothing is in use, or when no clock can tell.
    pub reset: Duration,
}

/// An outcome together with where the key stands after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not go on"]
pub struct Answer {
    /// Granted or denied.
    pub outcome: Outcome,
    /// Where the key stands now; what a grant took is already gone from it.
    pub status: Status,
}

/// What a grant took, so that it can be given back.
///
/// A refund is void once its window has passed, since time has given the permits back already. A reservation (a grant
/// with a wait) is given back only while it is the last one: those behind it keep the times that they were promised.
///
/// A receipt is a note, not a coin: nobody counts how often it is handed in. Give it back once, to the limit and key that
/// granted it; twice, or elsewhere, it gives back what others have in use, up to its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    cost: Cost,
    at: Timestamp,
    // Two words rather than a u128, whose alignment of 16 would widen every answer.
    mark: [u64; 2],
}

/// What became of a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refund {
    /// The permits, or those that time had not given back already, can be used again.
    Returned,
    /// The receipt's window has passed, or others were promised times behind it. Nothing changed.
    Void,
}

impl Outcome {
    /// A grant without a wait.
    #[inline]
    pub const fn granted(receipt: Receipt) -> Self {
        Self::Granted { wait: Duration::ZERO, receipt }
    }

    /// A denial that waiting will not mend.
    #[inline]
    pub const fn never() -> Self {
        Self::Denied { retry: Retry::Never }
    }

    /// A denial until `nanos` nanoseconds from now.
    #[inline]
    pub const fn denied_for(nanos: u64) -> Self {
        Self::Denied { retry: Retry::After(Duration::from_nanos(nanos)) }
    }

    /// A denial until `moment`, a time after `now` in nanoseconds. For good if no clock will ever show that moment.
    #[inline]
    pub(crate) fn denied_until(moment: u128, now: Timestamp) -> Self {
        u64::try_from(moment).map_or(Self::never(), |moment| Self::denied_for(moment.saturating_sub(now.as_nanos())))
    }

    /// Whether the permits were taken.
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

    /// What a granted request took; `None` if it was denied.
    pub const fn receipt(&self) -> Option<Receipt> {
        match self {
            Self::Granted { receipt, .. } => Some(*receipt),
            Self::Denied { .. } => None,
        }
    }
}

impl Answer {
    /// Whether the permits were taken.
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

    /// What a granted request took; `None` if it was denied.
    pub const fn receipt(&self) -> Option<Receipt> {
        self.outcome.receipt()
    }
}

impl Retry {
    /// The later of two, where "never" is the latest and an unknown time is later than any known one.
    pub fn later(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::WhenReturned, _) | (_, Self::WhenReturned) => Self::WhenReturned,
            (Self::After(a), Self::After(b)) => Self::After(a.max(b)),
        }
    }
}

impl Receipt {
    /// A receipt for `cost` permits granted at `at`.
    #[inline]
    pub const fn new(cost: Cost, at: Timestamp) -> Self {
        Self { cost, at, mark: [0, 0] }
    }

    /// The same receipt with what its algorithm needs to find the grant again: a window, a position, a moment.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the two halves of a u128")]
    pub const fn with_mark(mut self, mark: u128) -> Self {
        self.mark = [(mark >> 64) as u64, mark as u64];
        self
    }

    /// How much was taken.
    #[inline]
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// When it was taken.
    #[inline]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// What the algorithm wrote with [`with_mark`](Self::with_mark).
    #[inline]
    #[allow(clippy::cast_lossless, reason = "`From` is not const")]
    pub const fn mark(&self) -> u128 {
        ((self.mark[0] as u128) << 64) | self.mark[1] as u128
    }
}
