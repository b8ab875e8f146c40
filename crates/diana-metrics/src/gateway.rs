//! The counts of the gateway, and its metrics.

use crate::counter::{Counter, Gauge, counts};
use crate::histogram::Histogram;
use crate::{Buckets, Metric, Outcome, Value};
use std::time::Duration;

counts! {
    /// The counts of one worker.
    Shard

    /// The sums over all workers, at about one point in time.
    Totals

    {
        /// Durations of whole requests by outcome, in the order of [`Outcome::ALL`]; their number follows from it.
        request_seconds: [Histogram; Outcome::COUNT] => [Buckets; Outcome::COUNT],
        /// Durations of the decisions of the rules; delays imposed by the rules are not included.
        decision_seconds: Histogram => Buckets,
        /// How long the rules made requests wait, in a queue or for a reserved time; only requests that waited.
        wait_seconds: Histogram => Buckets,
        /// Response times of the upstreams: from the request to the head of the response.
        upstream_seconds: Histogram => Buckets,
        /// Upstream failures: unreachable, no valid response in time, or a response that was aborted.
        upstream_failures: Counter => u64,
        /// Open connections.
        connections: Gauge => u64,
        /// Connections queued, since too many are open.
        connections_queued: Gauge => u64,
        /// Accepted connections.
        connections_accepted: Counter => u64,
        /// Rejected connections: too many are open, or the handshake failed.
        connections_rejected: Counter => u64,
        /// Bytes received from clients.
        bytes_in: Counter => u64,
        /// Bytes sent to clients.
        bytes_out: Counter => u64,
    }
}

impl Totals {
    /// The metrics of the gateway.
    pub const METRICS: &[Metric<Self>] = &[
        Metric::in_status(
            "diana_requests_total",
            "requests",
            "Requests by outcome.",
            Value::CounterBy("outcome", |of| Outcome::ALL.map(|outcome| (outcome.name(), of.requests(outcome))).into()),
        ),
        Metric::new(
            "diana_request_seconds",
            "Durations of whole requests by outcome.",
            Value::HistogramBy("outcome", |of| {
                Outcome::ALL.map(Outcome::name).into_iter().zip(&of.request_seconds).collect()
            }),
        ),
        Metric::new(
            "diana_decision_seconds",
            "Durations of the decisions of the rules, without imposed waits.",
            Value::Histogram(|of| &of.decision_seconds),
        ),
        Metric::new(
            "diana_wait_seconds",
            "How long the rules made requests of the gateway wait.",
            Value::Histogram(|of| &of.wait_seconds),
        ),
        Metric::new(
            "diana_upstream_seconds",
            "Response times of the upstreams.",
            Value::Histogram(|of| &of.upstream_seconds),
        ),
        Metric::in_status(
            "diana_upstream_failures_total",
            "upstream_failures",
            "Upstream failures: unreachable, no valid response in time, or an aborted response.",
            Value::Counter(|of| of.upstream_failures),
        ),
        Metric::in_status(
            "diana_connections",
            "connections",
            "Open client connections.",
            Value::Gauge(|of| of.connections),
        ),
        Metric::new(
            "diana_connections_queued",
            "Client connections that wait for another one to be closed.",
            Value::Gauge(|of| of.connections_queued),
        ),
        Metric::new(
            "diana_connections_accepted_total",
            "Accepted client connections.",
            Value::Counter(|of| of.connections_accepted),
        ),
        Metric::new(
            "diana_connections_rejected_total",
            "Rejected client connections.",
            Value::Counter(|of| of.connections_rejected),
        ),
        Metric::in_status(
            "diana_received_bytes_total",
            "bytes_in",
            "Bytes received from clients.",
            Value::Counter(|of| of.bytes_in),
        ),
        Metric::in_status(
            "diana_sent_bytes_total",
            "bytes_out",
            "Bytes sent to clients.",
            Value::Counter(|of| of.bytes_out),
        ),
    ];

    /// Returns the number of requests with this outcome.
    pub fn requests(&self, outcome: Outcome) -> u64 {
        self.request_seconds[outcome.index()].count()
    }
}

impl Shard {
    /// Counts an accepted connection. [`connection_closed`](Self::connection_closed) must follow.
    #[inline]
    pub fn connection_opened(&self) {
        self.connections_accepted.increment();
        self.connections.increment();
    }

    /// Counts the end of an accepted connection.
    #[inline]
    pub fn connection_closed(&self) {
        self.connections.decrement();
    }

    /// Counts a finished request, with the time since its head was read.
    #[inline]
    pub fn request(&self, outcome: Outcome, took: Duration) {
        self.request_seconds[outcome.index()].observe(took);
    }
}
