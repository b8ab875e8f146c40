//! The sums over all workers.

use crate::{Buckets, Outcome, Shard};
use std::sync::atomic::{AtomicU64, Ordering};

/// The sums over all workers, at about one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Durations of whole requests by outcome, in the order of [`Outcome::ALL`].
    pub request_seconds: [Buckets; Outcome::COUNT],
    /// Durations of the decisions of the rules.
    pub decision_seconds: Buckets,
    /// How long the rules made requests wait; only requests that waited.
    pub wait_seconds: Buckets,
    /// Response times of the upstreams.
    pub upstream_seconds: Buckets,
    /// The number of upstream failures.
    pub upstream_failures: u64,
    /// Bytes received from clients.
    pub bytes_in: u64,
    /// Bytes sent to clients.
    pub bytes_out: u64,
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections rejected.
    pub connections_rejected: u64,
    /// Connections open.
    pub connections: u64,
    /// Connections queued, since too many are open.
    pub connections_queued: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, shard: &Shard) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for (sum, requests) in self.request_seconds.iter_mut().zip(&shard.requests) {
            sum.add(requests);
        }
        self.decision_seconds.add(&shard.decisions);
        self.wait_seconds.add(&shard.waits);
        self.upstream_seconds.add(&shard.upstream);
        self.upstream_failures += read(&shard.upstream_failures);
        self.bytes_in += read(&shard.bytes_in);
        self.bytes_out += read(&shard.bytes_out);
        // Reads `closed` first: otherwise a connection closed in between would be subtracted without having been added.
        let closed = read(&shard.closed);
        let accepted = read(&shard.accepted);
        self.connections_accepted += accepted;
        self.connections += accepted.saturating_sub(closed);
        self.connections_rejected += read(&shard.rejected);
        let dequeued = read(&shard.dequeued);
        self.connections_queued += read(&shard.queued).saturating_sub(dequeued);
    }

    /// Returns the number of requests with this outcome.
    pub fn requests(&self, outcome: Outcome) -> u64 {
        self.request_seconds[outcome.index()].count()
    }
}
