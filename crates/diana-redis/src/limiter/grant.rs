//! Permits of a shared limit that were acquired: used up, or held until they are released.

use super::reservation::refund;
use super::{SharedLimiter, runtime_ended};
use diana_core::{AcquireError, Clock, Cost, Decision, Grant, Status, Store, SystemClock};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Permits of a shared limit that were acquired and can be used now. [`refund`](crate::SharedLimiter::refund) needs it.
#[derive(Clone, Debug)]
pub struct SharedGrant {
    grant: Grant,
    /// The decision, which the store needs for a refund.
    decision: Decision,
}

impl SharedGrant {
    /// Returns the grant of a decision over one limit, or its denial as an error.
    pub(super) fn new(decision: Decision) -> Result<Self, AcquireError> {
        // A store answers each ask, so there is always one.
        let Some(answer) = decision.answers().first() else { return Err(runtime_ended().into()) };
        Ok(Self { grant: answer.into_result()?, decision })
    }

    /// Returns how long the request waited.
    pub fn waited(&self) -> Duration {
        self.grant.waited
    }

    /// Returns the status of the key when the permits were taken; they are already subtracted.
    pub fn status(&self) -> Status {
        self.grant.status
    }

    pub(super) fn decision(&self) -> &Decision {
        &self.decision
    }

    pub(super) fn into_decision(self) -> Decision {
        self.decision
    }
}

/// Permits that are released when this guard is dropped; if the process crashes instead, when they expire
/// ([`Options::permits_for`](crate::Options::permits_for)). Until then they are extended periodically.
#[derive(Debug)]
#[must_use = "permits are released when this guard is dropped"]
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
            tracing::debug!(%error, "held permits could not be extended; retrying");
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
