//! How long a request is ready to wait.

use crate::time::saturating_nanos;
use std::time::Duration;

/// How long the asker is ready to wait for its permits.
///
/// One value makes one function do for every way to ask: none is a check, a while is `try_acquire` with a time-out, for
/// ever is `acquire`. The boundary is inclusive: a wait of exactly the maximum wait is granted.
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
    /// Now or not at all.
    pub const NONE: Self = Self { nanos: 0 };
    /// As long as it takes (584 years at most).
    pub const FOREVER: Self = Self { nanos: u64::MAX };

    /// At most `wait`.
    pub fn up_to(wait: Duration) -> Self {
        Self { nanos: saturating_nanos(wait) }
    }

    /// The longest wait that is accepted, in nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.nanos
    }

    /// The longest wait that is accepted.
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.nanos)
    }
}
