//! The result of waiting for permits: a grant, or an error that cannot be overlooked.

use crate::{Answer, InvalidCost, Outcome, Receipt, Retry, Status, StoreError};
use std::time::Duration;

/// Permits that were acquired and can be used now.
///
/// ```
/// use diana_core::{Limiter, ManualClock, Quota};
/// use std::time::Duration;
///
/// let limiter = Limiter::new("2/s burst 1".parse::<Quota>()?).with_clock(ManualClock::new());
/// limiter.blocking_acquire(1)?;
/// let grant = limiter.blocking_acquire(1)?;
/// assert_eq!(grant.waited, Duration::from_millis(500));
/// limiter.refund(&grant.receipt);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// How long the request waited.
    pub waited: Duration,
    /// The permits that were taken, for a refund.
    pub receipt: Receipt,
    /// The status of the key when the permits were taken; they are already subtracted.
    pub status: Status,
}

/// Why no permits were acquired. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The limit denied the request: its maximum wait is too short, waiting does not help, or too many requests wait.
    #[error("denied{}, {}", describe_limit(limit.as_deref()), describe_retry(*retry))]
    Denied {
        /// Whether and when the same request would be granted.
        retry: Retry,
        /// The status of the key.
        status: Status,
        /// The name of the limit that denied, if it has one: in a [`LimitSet`](crate::LimitSet).
        limit: Option<Box<str>>,
    },
    /// The number of permits is invalid.
    #[error(transparent)]
    Cost(#[from] InvalidCost),
    /// The shared store could not decide. Limiters of one process never return this.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AcquireError {
    /// Returns the name of the limit that denied, in a [`LimitSet`](crate::LimitSet).
    pub fn limit(&self) -> Option<&str> {
        match self {
            Self::Denied { limit, .. } => limit.as_deref(),
            Self::Cost(_) | Self::Store(_) => None,
        }
    }

    /// Returns when a denied request would be granted; `None` if the error is not a denial.
    pub const fn retry(&self) -> Option<Retry> {
        match self {
            Self::Denied { retry, .. } => Some(*retry),
            Self::Cost(_) | Self::Store(_) => None,
        }
    }
}

impl Answer {
    /// Returns the grant, or the denial as an error: for `?`.
    ///
    /// ```
    /// use diana_core::{AcquireError, Limiter, ManualClock, Quota};
    ///
    /// fn send(limiter: &Limiter) -> Result<(), AcquireError> {
    ///     limiter.check().into_result()?;
    ///     // send it
    ///     Ok(())
    /// }
    ///
    /// let limiter = Limiter::new(Quota::per_hour(1)?).with_clock(ManualClock::new());
    /// assert!(send(&limiter).is_ok());
    /// assert_eq!(send(&limiter).unwrap_err().to_string(), "denied, retry after 3600s");
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub fn into_result(self) -> Result<Grant, AcquireError> {
        match self.outcome {
            Outcome::Granted { wait, receipt } => Ok(Grant { waited: wait, receipt, status: self.status() }),
            Outcome::Denied { retry } => Err(AcquireError::Denied { retry, status: self.status(), limit: None }),
        }
    }
}

fn describe_limit(limit: Option<&str>) -> String {
    limit.map_or_else(String::new, |name| format!(" by `{name}`"))
}

fn describe_retry(retry: Retry) -> String {
    match retry {
        Retry::After(wait) => format!("retry after {wait:?}"),
        Retry::WhenReleased => "retry when permits are released".to_owned(),
        Retry::Never => "retrying does not help".to_owned(),
    }
}
