//! Permits that were taken for a waiting caller, and are refunded if it stops waiting.

use super::SharedLimiter;
use diana_core::{Answer, Decision, Outcome, Retry};

/// A decision whose permits are refunded on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    limiter: SharedLimiter,
    key: Vec<u8>,
    decision: Option<Decision>,
}

impl Reservation {
    pub(super) fn new(limiter: &SharedLimiter, key: &[u8], decision: Decision) -> Self {
        Self { limiter: limiter.clone(), key: key.to_vec(), decision: Some(decision) }
    }

    pub(super) fn decision(&self) -> &Decision {
        static NONE: std::sync::LazyLock<Decision> = std::sync::LazyLock::new(|| Decision::new([]));
        self.decision.as_ref().unwrap_or(&NONE)
    }

    /// Returns the decision to the caller; its permits are not refunded.
    pub(super) fn into_decision(mut self) -> Decision {
        self.decision.take().unwrap_or_else(|| Decision::new([]))
    }

    /// Converts it to a denial: other callers are queued before this one, so a grant must not be used.
    pub(super) fn denied(self) -> Self {
        let denied = |answer: &Answer| answer.with_outcome(Outcome::Denied { retry: Retry::WhenReleased });
        let decision = Decision::new(self.decision().answers().iter().map(denied));
        Self::new(&self.limiter, &self.key, decision)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(decision) = self.decision.take().filter(Decision::is_granted) {
            refund(&self.limiter, &self.key, &decision);
        }
    }
}

/// Refunds in the background, for `Drop` implementations, which can't wait for Redis. Later queries of this process are
/// answered as if the refund were done.
pub(super) fn refund(limiter: &SharedLimiter, key: &[u8], decision: &Decision) {
    let refund = limiter.start_refund(key, decision);
    limiter.store.runtime().spawn(async move {
        if let Err(error) = refund.await {
            tracing::debug!(%error, "permits could not be refunded; time refills them");
        }
    });
}
