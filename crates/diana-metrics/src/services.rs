//! The counts of the services for other gateways, and their metrics.

use crate::counter::{Counter, Gauge, counts};
use crate::histogram::Histogram;
use crate::{Buckets, Kind, Outcome, Reading, Totals};
use std::sync::Arc;

type Metric = crate::Metric<ServiceTotals>;

counts! {
    /// The counts of one service on one thread.
    ServiceShard

    /// The sums over all threads.
    ServiceTotals

    {
        /// Open connections.
        connections: Gauge => u64,
        /// Accepted connections.
        accepted: Counter => u64,
        /// Rejected connections: too many are open, or the handshake failed.
        rejected: Counter => u64,
        /// Requests that were allowed.
        allowed: Counter => u64,
        /// Requests that were denied.
        denied: Counter => u64,
        /// Requests that got an error: they were invalid, or the shared store was unreachable.
        failed: Counter => u64,
        /// The durations of answers: of each call or check, or of each batch of commands of the Redis protocol.
        answer_seconds: Histogram => Buckets,
    }
}

impl ServiceTotals {
    /// The metrics of each service.
    pub const METRICS: &[Metric] = &[
        Metric::with_readings(
            "diana_service_requests_total",
            Kind::Counter,
            "Requests of other gateways, by service and outcome.",
            |of| Reading::numbers([("allowed", of.allowed), ("denied", of.denied), ("failed", of.failed)]),
        )
        .by("outcome"),
        Metric::gauge("diana_service_connections", "Open connections of each service.", |of| of.connections),
        Metric::counter("diana_service_connections_accepted_total", "Accepted connections of each service.", |of| {
            of.accepted
        }),
        Metric::counter("diana_service_connections_rejected_total", "Rejected connections of each service.", |of| {
            of.rejected
        }),
        Metric::histogram(
            "diana_service_answer_seconds",
            "How long answers of each service took: a call, a check, or a batch of commands of the Redis protocol.",
            |of| &of.answer_seconds,
        ),
    ];
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

/// The counts of one service, by thread.
#[derive(Clone, Debug)]
pub struct ServiceMetrics {
    /// The name of the service in the rule file.
    pub name: &'static str,
    shards: Arc<[ServiceShard]>,
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
    /// metrics.shard(0).allowed.increment();
    /// metrics.shard(1).allowed.increment();
    /// assert_eq!(metrics.totals().allowed, 2);
    /// ```
    pub fn totals(&self) -> ServiceTotals {
        let mut totals = ServiceTotals::default();
        self.shards.iter().for_each(|shard| totals.add(shard));
        totals
    }
}

impl ServiceShard {
    /// Counts an accepted connection. [`connection_closed`](Self::connection_closed) must follow.
    pub fn connection_opened(&self) {
        self.accepted.increment();
        self.connections.increment();
    }

    /// Counts the end of an accepted connection.
    pub fn connection_closed(&self) {
        self.connections.decrement();
    }

    /// Counts the requests of a batch.
    pub fn batch(&self, allowed: u64, denied: u64, failed: u64) {
        for (count, number) in [(&self.allowed, allowed), (&self.denied, denied), (&self.failed, failed)] {
            if number > 0 {
                count.add(number);
            }
        }
    }
}
