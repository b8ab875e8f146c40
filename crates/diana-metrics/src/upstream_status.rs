//! What operators see of an upstream.

use crate::UpstreamTotals;
use diana_core::Timestamp;

/// The status of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Its address, as in the rule file.
    pub address: String,
    /// The matches of the routes that use it; `/` for requests without a route, `reroute` if only rules name it.
    pub routes: Vec<String>,
    /// Until when it gets no requests, after failures in a row; `None` if it is healthy.
    pub ejected_until: Option<Timestamp>,
    /// How often it was ejected.
    pub ejections: u64,
    /// The result of its checks; `None` if it has none.
    pub check: Option<CheckStatus>,
    /// Its weight in the first of its routes.
    pub weight: u32,
    /// Its requests, failures and connections.
    pub totals: UpstreamTotals,
}

/// The checks of an upstream so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckStatus {
    /// Whether it gets requests, as far as its checks are concerned.
    pub passing: bool,
    /// How many checks have passed.
    pub passed: u64,
    /// How many checks have failed.
    pub failed: u64,
    /// Why the last check failed; `None` if it passed.
    pub error: Option<String>,
}

impl UpstreamStatus {
    /// Returns `true` if it gets requests: it is not ejected, and passes its checks.
    pub fn is_healthy(&self) -> bool {
        self.ejected_until.is_none() && self.check.as_ref().is_none_or(|check| check.passing)
    }
}

impl CheckStatus {
    /// Adds other checks of the same upstream: it passes if all pass.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            passing: self.passing && other.passing,
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            error: self.error.or(other.error),
        }
    }
}
