//! Errors for invalid windows: the value, the problem, and a fix.

use super::MAX_BUCKETS;
use crate::InvalidQuota;
use std::time::Duration;

/// An invalid window. Nothing was charged.
///
/// ```
/// use diana_core::{Quota, SlidingWindow};
///
/// let error = SlidingWindow::new(Quota::per_minute(5)?).with_buckets(0).unwrap_err();
/// assert_eq!(error.to_string(), "buckets 0: must be a whole number from 1 to 131072");
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidWindow {
    /// The limit is invalid.
    #[error(transparent)]
    Quota(#[from] InvalidQuota),
    /// A sliding log without windows.
    #[error("windows: a sliding log needs at least one, as in `5/min`")]
    NoWindows,
    /// No buckets, or more than [`MAX_BUCKETS`].
    #[error("buckets {0}: must be a whole number from 1 to {MAX_BUCKETS}")]
    Buckets(u64),
    /// A precision of zero.
    #[error("precision 0: must be at least 1ns, as in `1s`")]
    NoPrecision,
    /// A precision so fine that the window would have more than [`MAX_BUCKETS`] buckets.
    #[error(
        "precision {precision:?}: makes {buckets} buckets of a window of {window:?}, more than {MAX_BUCKETS}; \
         {least:?} would do"
    )]
    TooPrecise {
        /// The invalid precision.
        precision: Duration,
        /// The window to divide.
        window: Duration,
        /// The resulting number of buckets.
        buckets: u64,
        /// The finest precision that this window can have.
        least: Duration,
    },
    /// An unknown time zone.
    #[error("time zone `{0}`: is not known; an IANA name such as `Europe/Berlin` or `UTC` would do")]
    TimeZone(String),
}
