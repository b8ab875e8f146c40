//! The counts of the services for other gateways.

use crate::histogram::Histogram;
use crate::{Buckets, Outcome, Totals};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The counts of one service, by thread.
#[derive(Clone, Debug)]
pub struct ServiceMetrics {
    /// The name of the service in the rule file.
    pub name: &'static str,
    shards: Arc<[ServiceShard]>,
}

/// The counts of one service on one thread, on its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ServiceShard {
    accepted: AtomicU64,
    closed: AtomicU64,
    rejected: AtomicU64,
    allowed: AtomicU64,
    denied: AtomicU64,
    failed: AtomicU64,
    answers: Histogram,
}

/// The sums over all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceTotals {
    /// Open connections.
    pub connections: u64,
    /// Accepted connections.
    pub accepted: u64,
    /// Rejected connections: too many are open, or the handshake failed.
    pub rejected: u64,
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests that got an error: they were invalid, or the shared store was unreachable.
    pub failed: u64,
    /// How long answers took: of each call or check, or of each batch of commands of the Redis protocol.
    pub answer_seconds: Buckets,
}

impl From<&Totals> for ServiceTotals {
    /// Returns the counts of a gateway that answers checks.
    fn from(totals: &Totals) -> Self {
        Self {
            connections: totals.connections,
            accepted: totals.connections_accepted,
            rejected: totals.connections_rejected,
            allowed: totals.requests(Outcome::Answered),
            denied: totals.requests(Outcome::Denied),
            failed: totals.requests(Outcome::Rejected),
            answer_seconds: totals.decision_seconds.clone(),
        }
    }
}

impl ServiceMetrics {
    /// Creates the counts of a service with this number of threads, all zero.
    pub fn new(name: &'static str, threads: usize) -> Self {
        Self { name, shards: (0..threads.max(1)).map(|_| ServiceShard::default()).collect() }
    }

    /// Returns the counts of one thread. A thread without its own shares another's, which is only slower.
    pub fn shard(&self, thread: usize) -> &ServiceShard {
        &self.shards[thread % self.shards.len()]
    }

    /// Returns the sums.
    ///
    /// ```
    /// use diana_metrics::ServiceMetrics;
    ///
    /// let metrics = ServiceMetrics::new("resp", 2);
    /// metrics.shard(0).allowed();
    /// metrics.shard(1).allowed();
    /// assert_eq!(metrics.totals().allowed, 2);
    /// ```
    pub fn totals(&self) -> ServiceTotals {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut sum = ServiceTotals::default();
        for shard in &*self.shards {
            sum.connections += of(&shard.accepted).saturating_sub(of(&shard.closed));
            sum.accepted += of(&shard.accepted);
            sum.rejected += of(&shard.rejected);
            sum.allowed += of(&shard.allowed);
            sum.denied += of(&shard.denied);
            sum.failed += of(&shard.failed);
            sum.answer_seconds.add(&shard.answers);
        }
        sum
    }
}

impl ServiceShard {
    /// Counts an accepted connection.
    pub fn connection_opened(&self) {
        add(&self.accepted);
    }

    /// Counts an accepted connection that is closed.
    pub fn connection_closed(&self) {
        add(&self.closed);
    }

    /// Counts a rejected connection.
    pub fn connection_rejected(&self) {
        add(&self.rejected);
    }

    /// Counts an allowed request.
    pub fn allowed(&self) {
        add(&self.allowed);
    }

    /// Counts a denied request.
    pub fn denied(&self) {
        add(&self.denied);
    }

    /// Counts a request that got an error.
    pub fn failed(&self) {
        add(&self.failed);
    }

    /// Counts how long an answer took.
    pub fn answered(&self, took: Duration) {
        self.answers.add(took);
    }

    /// Counts the requests of a batch.
    pub fn batch(&self, allowed: u64, denied: u64, failed: u64) {
        for (count, number) in [(&self.allowed, allowed), (&self.denied, denied), (&self.failed, failed)] {
            if number > 0 {
                count.fetch_add(number, Ordering::Relaxed);
            }
        }
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
