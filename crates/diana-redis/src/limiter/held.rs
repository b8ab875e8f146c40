//! Permits in use, which go back when their holder is done.

use super::reserved::give_back;
use super::{AcquireError, SharedLimiter};
use diana_core::Decision;

/// Permits that are given back when this is dropped; if the process dies instead, when their time limit ends
/// ([`Options::permits_for`](crate::Options::permits_for)).
#[derive(Debug)]
#[must_use = "dropped, it gives the permits back"]
pub struct Held {
    limiter: SharedLimiter,
    key: Vec<u8>,
    decision: Option<Decision>,
}

/// Why nothing is held.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotHeld {
    /// There were not enough permits in time. Nothing was taken.
    #[error("`{limit}` has no permit left")]
    Denied {
        /// The limit's name.
        limit: String,
        /// When it would be granted, and where the key stands.
        decision: Box<Decision>,
    },
    /// It could not be asked for.
    #[error(transparent)]
    Failed(#[from] AcquireError),
}

impl Held {
    pub(super) fn new(limiter: &SharedLimiter, key: &[u8], decision: Decision) -> Self {
        Self { limiter: limiter.clone(), key: key.to_vec(), decision: Some(decision) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(decision) = self.decision.take() {
            give_back(self.limiter.clone(), std::mem::take(&mut self.key), decision);
        }
    }
}
