//! The status of the link to Redis, for operators.

use diana_core::Timestamp;
use std::time::Duration;

/// The status and the counters of the link to Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStatus {
    /// Whether Redis is reachable.
    pub health: Health,
    /// Commands that were sent for requests.
    pub commands: u64,
    /// Requests that waited for Redis. Each waits at most once, and none while Redis is known to be unreachable.
    pub waits: u64,
    /// Requests that were denied from the deny cache, without a round trip.
    pub saved_by_deny_cache: u64,
    /// Requests that were answered from a lease, without a round trip.
    pub saved_by_leases: u64,
    /// Requests that were sent in the same call as another one.
    pub saved_by_batching: u64,
    /// Permits that this instance has leased.
    pub leased: u64,
    /// Instances that were last seen alive, including this one.
    pub instances: u64,
    /// The drift between the clocks of Redis and of this process, as of the last heartbeat.
    pub clock_difference: Duration,
    /// Limits for which this process adopted a newer [configuration](diana_core::Store::configure) of other instances.
    pub adopted: u64,
}

/// Whether Redis is reachable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// Redis is reachable.
    Healthy,
    /// Redis, or a part of a cluster, is unreachable.
    Degraded {
        /// Since when.
        since: Timestamp,
        /// The connection error.
        reason: String,
    },
}
