//! Held permits, which are released on drop.

use super::SharedLimiter;
use super::reservation::refund;
use diana_core::{Clock, Cost, Decision, Store, SystemClock};
use tokio::task::JoinHandle;

/// Permits that are released when this guard is dropped; if the process crashes instead, when they expire
/// ([`Options::permits_for`](crate::Options::permits_for)). Until then they are extended periodically.
#[derive(Debug)]
#[must_use = "dropped, it gives the permits back"]
pub struct SharedPermit {
    limiter: SharedLimiter,
    key: Vec<u8>,
    decision: Option<Decision>,
    extending: JoinHandle<()>,
}

impl SharedPermit {
    pub(super) fn new(limiter: &SharedLimiter, key: &[u8], decision: Decision) -> Self {
        let extending = limiter.store.runtime().spawn(extend(limiter.clone(), key.to_vec(), decision.clone()));
        Self { limiter: limiter.clone(), key: key.to_vec(), decision: Some(decision), extending }
    }
}

/// Extends the permits, three times within their expiry time.
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
            refund(&self.limiter, &self.key, &decision);
        }
    }
}
