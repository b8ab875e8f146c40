//! What all workers have counted.

use super::{Buckets, Outcome, Shard};
use std::sync::atomic::{AtomicU64, Ordering};

/// What all workers have counted, at about one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Whole requests by what became of them, in the order of [`Outcome::ALL`].
    pub request_seconds: [Buckets; Outcome::COUNT],
    /// How long the rules took.
    pub decision_seconds: Buckets,
    /// How long upstreams took to answer.
    pub upstream_seconds: Buckets,
    /// How often an upstream failed.
    pub upstream_failures: u64,
    /// Bytes that came from clients.
    pub bytes_in: u64,
    /// Bytes that went to clients.
    pub bytes_out: u64,
    /// Connections that were accepted.
    pub connections_accepted: u64,
    /// Connections that were turned away.
    pub connections_refused: u64,
    /// Connections that are open.
    pub connections: u64,
}

impl Totals {
    pub(super) fn add(&mut self, shard: &Shard) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for (sum, requests) in self.request_seconds.iter_mut().zip(&shard.requests) {
            sum.add(requests);
        }
        self.decision_seconds.add(&shard.decisions);
        self.upstream_seconds.add(&shard.upstream);
        self.upstream_failures += read(&shard.upstream_failures);
        self.bytes_in += read(&shard.bytes_in);
        self.bytes_out += read(&shard.bytes_out);
        // Closed first: one that is closed in between must not be closed before it was accepted.
        let closed = read(&shard.closed);
        let accepted = read(&shard.accepted);
        self.connections_accepted += accepted;
        self.connections += accepted.saturating_sub(closed);
        self.connections_refused += read(&shard.turned_away);
    }

    /// How many requests had this outcome.
    pub fn requests(&self, outcome: Outcome) -> u64 {
        self.request_seconds[outcome.index()].count()
    }
}
