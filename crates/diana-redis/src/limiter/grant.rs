//! Permits of a shared limit that were acquired.

use super::gone;
use diana_core::{AcquireError, Decision, Grant, Status};
use std::time::Duration;

/// Permits of a shared limit that were acquired and can be used now. [`refund`](crate::SharedLimiter::refund) needs it.
#[derive(Clone, Debug)]
pub struct SharedGrant {
    grant: Grant,
    /// What the store needs for a refund.
    decision: Decision,
}

impl SharedGrant {
    /// Returns the grant of a decision over one limit, or its denial as an error.
    pub(super) fn new(decision: Decision) -> Result<Self, AcquireError> {
        // A store answers each ask, so there is always one.
        let Some(answer) = decision.answers().first() else { return Err(gone().into()) };
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
