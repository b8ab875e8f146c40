//! The result of a check.

use crate::denial::Denial;
use crate::permit::RequestPermit;

/// The result of a check.
#[derive(Debug)]
#[must_use = "a denied request must not go on"]
pub enum CheckResult {
    /// Granted.
    Allow(RequestPermit),
    /// Over a limit whose rule reroutes such requests: the permit has [the target](RequestPermit::reroute_to). The
    /// request was not charged and holds no permits.
    Reroute(RequestPermit),
    /// Denied.
    Deny(Denial),
}
