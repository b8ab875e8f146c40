//! The number of permits that one request takes.

use std::fmt;

/// The largest count that a limit, a burst or a cost may have: 2⁵³.
///
/// Far above any real limit, and small enough that products with a time never overflow 128 bits and that a Lua number
/// (a double) represents it exactly.
pub const MAX_PERMITS: u64 = 1 << 53;

/// The number of permits that a request takes, at most [`MAX_PERMITS`].
///
/// A request takes at least one permit; [`Cost::ZERO`] is for peeks only. A cost above a limit's capacity is valid, and
/// that limit denies it permanently.
///
/// ```
/// use diana_core::Cost;
///
/// assert_eq!(Cost::new(5)?.get(), 5);
/// let error = Cost::new(0).unwrap_err().to_string();
/// assert_eq!(error, "invalid cost 0: a request takes at least 1 permit; use peek to read without taking");
/// # Ok::<(), diana_core::InvalidCost>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// One permit: the default cost of a request.
    pub const ONE: Self = Self(1);
    /// Nothing, for peeks: denied only if a limit is exceeded, which means that more is in use than it allows, because
    /// of a charge. A limit that is used up is not exceeded.
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, MaxWait, Quota, Timestamp, TokenBucket};
    ///
    /// let (bucket, now) = (TokenBucket::new(Quota::per_second(2)?), Timestamp::EPOCH);
    /// let mut state = bucket.fresh(now);
    /// bucket.charge(&mut state, now, Cost::new(2)?);
    /// assert!(!bucket.peek(&state, now, Cost::ONE, MaxWait::NONE).is_granted());
    /// assert!(bucket.peek(&state, now, Cost::ZERO, MaxWait::NONE).is_granted());
    /// bucket.charge(&mut state, now, Cost::ONE);
    /// assert!(!bucket.peek(&state, now, Cost::ZERO, MaxWait::NONE).is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const ZERO: Self = Self(0);
    /// The largest cost.
    pub const MAX: Self = Self(MAX_PERMITS);

    /// Creates a cost of `permits`, which must be in `1..=MAX_PERMITS`.
    pub const fn new(permits: u64) -> Result<Self, InvalidCost> {
        match permits {
            1..=MAX_PERMITS => Ok(Self(permits)),
            _ => Err(InvalidCost(permits)),
        }
    }

    /// Returns the number of permits.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cost({})", self.0)
    }
}

impl TryFrom<u64> for Cost {
    type Error = InvalidCost;

    fn try_from(permits: u64) -> Result<Self, InvalidCost> {
        Self::new(permits)
    }
}

impl From<std::num::NonZeroU32> for Cost {
    fn from(permits: std::num::NonZeroU32) -> Self {
        Self(u64::from(permits.get()))
    }
}

/// An invalid number of permits for a request. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCost(u64);

impl fmt::Display for InvalidCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("invalid cost 0: a request takes at least 1 permit; use peek to read without taking"),
            n => write!(f, "invalid cost {n}: a request takes at most {MAX_PERMITS} permits"),
        }
    }
}

impl std::error::Error for InvalidCost {}
