//! Permits in use, which go back when their holder is done.

use super::reservation::give_back;
use super::{AcquireError, SharedLimiter};
use diana_core::{Clock, Cost, Decision, Store, SystemClock};
use tokio::task::JoinHandle;

/// Permits that are given back when this is dropped; if the process dies instead, when their time limit ends
/// ([`Options::permits_for`](crate::Options::permits_for)). Until then it is put off again and again.
#[derive(Debug)]
#[must_use = "dropped, it gives the permits back"]
pub struct SharedPermit {
    limiter: SharedLimiter,
    key: Vec<u8>,
    decision: Option<Decision>,
    extending: JoinHandle<()>,
}

/// Why nothing is held.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PermitError {
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

impl SharedPermit {
    pub(super) fn new(limiter: &SharedLimiter, key: &[u8], decision: Decision) -> Self {
        let extending = limiter.store.runtime().spawn(extend(limiter.clone(), key.to_vec(), decision.clone()));
        Self { limiter: limiter.clone(), key: key.to_vec(), decision: Some(decision), extending }
    }
}

/// Says thrice in the time limit that the permits are still held.
async fn extend(limiter: SharedLimiter, key: Vec<u8>, decision: Decision) {
    loop {
        tokio::time::sleep(limiter.store.permits_for() / 3).await;
        let asks = [limiter.ask(&key, Cost::ONE)];
        if let Err(error) = limiter.store.extend(&asks, &decision, SystemClock.now()).await {
            tracing::debug!(%error, "permits could not be held for longer; trying again");
        }
    }
}

impl Drop for SharedPermit {
    fn drop(&mut self) {
        self.extending.abort();
        if let Some(decision) = self.decision.take() {
            give_back(&self.limiter, &self.key, &decision);
        }
    }
}
