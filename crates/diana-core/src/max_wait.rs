//! The maximum time that a request waits.

use crate::time::saturating_nanos;
use std::time::Duration;

/// The maximum time that a request waits for its permits.
///
/// With this value one function covers every way to ask: `NONE` is a check, a duration is `acquire_timeout`, `FOREVER`
/// is `acquire`. The bound is inclusive: a wait of exactly the maximum is granted.
///
/// ```
/// use diana_core::MaxWait;
/// use std::time::Duration;
///
/// assert!(MaxWait::NONE < MaxWait::up_to(Duration::from_millis(5)));
/// assert!(MaxWait::up_to(Duration::MAX) <= MaxWait::FOREVER);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaxWait {
    nanos: u64,
}

impl MaxWait {
    /// A request is granted immediately or denied.
    pub const NONE: Self = Self { nanos: 0 };
    /// The wait has no bound (584 years at most).
    pub const FOREVER: Self = Self { nanos: u64::MAX };

    /// Waits at most `wait`.
    pub fn up_to(wait: Duration) -> Self {
        Self { nanos: saturating_nanos(wait) }
    }

    /// Returns the longest accepted wait, in nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.nanos
    }

    /// Returns the longest accepted wait.
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.nanos)
    }
}
