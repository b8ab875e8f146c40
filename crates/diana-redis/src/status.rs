//! How the link to Redis is, for people to look at.

use diana_core::Timestamp;

/// How the link to Redis is, and what it has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStatus {
    /// Whether Redis answers.
    pub health: Health,
    /// Commands that were sent for requests.
    pub commands: u64,
    /// Requests that waited for Redis. Each waits once at most, and none while Redis is known to be away.
    pub waits: u64,
    /// Requests that were answered without asking, because a refusal was remembered.
    pub saved_by_deny_cache: u64,
    /// Requests that were answered without asking, from a lease.
    pub saved_by_leases: u64,
    /// Requests that travelled with another one.
    pub saved_by_batching: u64,
    /// Permits that this instance holds on lease.
    pub leased: u64,
    /// Instances that were last seen alive, this one included.
    pub instances: u64,
    /// Limits of which others have a newer [configuration](diana_core::Store::configure), which counts here too.
    pub adopted: u64,
}

/// Whether Redis answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It does.
    Healthy,
    /// It, or a part of a cluster, does not.
    Degraded {
        /// Since when.
        since: Timestamp,
        /// What the connection said.
        reason: String,
    },
}
