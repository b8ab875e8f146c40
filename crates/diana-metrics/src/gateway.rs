//! The counts of the gateway, and its metrics.

use crate::counter::{Counter, Gauge, counts};
use crate::histogram::Histogram;
use crate::{Buckets, Kind, Outcome, Reading};
use std::time::Duration;

type Metric = crate::Metric<Totals>;

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
        /// The time that the rules made requests wait, in a queue or for a reserved time; only requests that waited.
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
    /// The metrics of the gateway, in their order on the page.
    pub const METRICS: &[Metric] = &[
        Metric::with_readings("diana_requests_total", Kind::Counter, "Requests by outcome.", |of| {
            Reading::numbers(Outcome::ALL.map(|outcome| (outcome.name(), of.requests(outcome))))
        })
        .by("outcome")
        .in_status("requests"),
        Metric::with_readings(
            "diana_request_seconds",
            Kind::Histogram,
            "Durations of whole requests by outcome.",
            |of| {
                Outcome::ALL
                    .map(|outcome| (outcome.name(), Reading::Durations(of.request_seconds[outcome.index()].clone())))
                    .into()
            },
        )
        .by("outcome"),
        Metric::histogram(
            "diana_decision_seconds",
            "Durations of the decisions of the rules, without imposed waits.",
            |of| &of.decision_seconds,
        ),
        Metric::histogram("diana_wait_seconds", "How long the rules made requests of the gateway wait.", |of| {
            &of.wait_seconds
        }),
        Metric::histogram("diana_upstream_seconds", "Response times of the upstreams.", |of| &of.upstream_seconds),
        Metric::counter(
            "diana_upstream_failures_total",
            "Upstream failures: unreachable, no valid response in time, or an aborted response.",
            |of| of.upstream_failures,
        )
        .in_status("upstream_failures"),
        Metric::gauge("diana_connections", "Open client connections.", |of| of.connections).shown("connections"),
        Metric::gauge("diana_connections_queued", "Client connections that wait for another one to be closed.", |of| {
            of.connections_queued
        }),
        Metric::counter("diana_connections_accepted_total", "Accepted client connections.", |of| {
            of.connections_accepted
        }),
        Metric::counter("diana_connections_rejected_total", "Rejected client connections.", |of| {
            of.connections_rejected
        }),
        Metric::counter("diana_received_bytes_total", "Bytes received from clients.", |of| of.bytes_in)
            .in_status("bytes_in"),
        Metric::counter("diana_sent_bytes_total", "Bytes sent to clients.", |of| of.bytes_out).in_status("bytes_out"),
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
