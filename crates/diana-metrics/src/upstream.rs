//! The counts of one upstream, its status, and its metrics.

use crate::counter::{Counter, Gauge, counts};
use crate::histogram::Histogram;
use crate::{Buckets, Kind, Reading};
use diana_core::Timestamp;
use std::sync::Arc;

type Metric = crate::Metric<UpstreamStatus>;

counts! {
    /// The counts of one upstream in one worker.
    UpstreamShard

    /// The sums of one upstream over all workers.
    UpstreamTotals

    {
        /// The time from a request to the head of its response.
        response_seconds: Histogram => Buckets,
        /// Requests without a response: the upstream was unreachable, or gave no valid response in time.
        unanswered: Counter => u64,
        /// Responses that the upstream aborted after their head.
        aborted: Counter => u64,
        /// Open connections.
        connections: Gauge => u64,
        /// Requests in flight.
        in_flight: Gauge => u64,
        /// Requests that it failed, and that were then sent to another upstream.
        retries: Counter => u64,
        /// Requests that it failed, and that were not retried as the retry budget was used up.
        retries_denied: Counter => u64,
    }
}

impl UpstreamTotals {
    /// Returns the number of requests that were sent to it, or that should have been sent.
    pub fn requests(&self) -> u64 {
        self.response_seconds.count() + self.unanswered
    }

    /// Returns the number of requests that it failed: without a response, or with an aborted one.
    pub fn failures(&self) -> u64 {
        self.unanswered + self.aborted
    }
}

/// An open connection to an upstream; dropping it counts the end of the connection.
#[derive(Debug)]
pub struct UpstreamConnection(Arc<UpstreamShard>);

impl UpstreamShard {
    /// Counts a connection, until the returned value is dropped.
    #[must_use]
    pub fn connection_opened(self: &Arc<Self>) -> UpstreamConnection {
        self.connections.increment();
        UpstreamConnection(Arc::clone(self))
    }
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        self.0.connections.decrement();
    }
}

/// The status of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// The upstream's address, as in the rule file.
    pub address: String,
    /// The matches of the routes that use it; `/` for requests without a route, `reroute` if only rules name it.
    pub routes: Vec<String>,
    /// The time until which it gets no requests, after failures in a row; `None` if it is healthy.
    pub ejected_until: Option<Timestamp>,
    /// The number of ejections.
    pub ejections: u64,
    /// The result of its checks; `None` without checks.
    pub check: Option<CheckStatus>,
    /// The upstream's weight in the first of its routes.
    pub weight: u32,
    /// The upstream's requests, failures and connections.
    pub totals: UpstreamTotals,
}

/// The checks of an upstream so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckStatus {
    /// Whether it gets requests, as far as its checks are concerned.
    pub passing: bool,
    /// The number of checks that passed.
    pub passed: u64,
    /// The number of checks that failed.
    pub failed: u64,
    /// The reason why the last check failed; `None` if it passed.
    pub error: Option<String>,
}

impl UpstreamStatus {
    /// The metrics of each upstream.
    pub const METRICS: &[Metric] = &[
        Metric::counter(
            "diana_upstream_requests_total",
            "Requests sent to each upstream, also those that another upstream answered then.",
            |of| of.totals.requests(),
        )
        .shown("requests"),
        Metric::counter(
            "diana_upstream_request_failures_total",
            "Failed requests of each upstream: unreachable, no valid response in time, or an aborted response.",
            |of| of.totals.failures(),
        )
        .shown("failures"),
        Metric::gauge("diana_upstream_connections", "Open connections to each upstream.", |of| of.totals.connections)
            .in_status("connections"),
        Metric::gauge(
            "diana_upstream_ejected",
            "Whether each upstream is ejected: it gets no requests after failures in a row.",
            |of| of.ejected_until.is_some().into(),
        ),
        Metric::counter("diana_upstream_ejections_total", "How often each upstream was ejected.", |of| of.ejections)
            .in_status("ejections"),
        Metric::gauge("diana_upstream_in_flight", "Requests in flight at each upstream.", |of| of.totals.in_flight)
            .in_status("in_flight"),
        Metric::gauge("diana_upstream_weight", "The weight of each upstream, in the first of its routes.", |of| {
            of.weight.into()
        })
        .in_status("weight"),
        Metric::counter(
            "diana_upstream_retries_total",
            "Requests that each upstream failed and that were sent to another one, as `retries` allows.",
            |of| of.totals.retries,
        )
        .in_status("retries"),
        Metric::counter(
            "diana_upstream_retries_denied_total",
            "Requests that each upstream failed and that were not retried, as the retry budget was used up.",
            |of| of.totals.retries_denied,
        )
        .in_status("retries_denied"),
        Metric::with_readings(
            "diana_upstream_healthy",
            Kind::Gauge,
            "Whether each upstream passes its active checks.",
            |of| of.check.iter().map(|check| ("", Reading::Flag(check.passing))).collect(),
        ),
        Metric::with_readings(
            "diana_upstream_checks_total",
            Kind::Counter,
            "Active checks of each upstream, by their result.",
            |of| {
                Reading::numbers(of.check.iter().flat_map(|check| [("passed", check.passed), ("failed", check.failed)]))
            },
        )
        .by("result"),
        Metric::histogram(
            "diana_upstream_response_seconds",
            "Time to the head of the response of each upstream.",
            |of| &of.totals.response_seconds,
        ),
    ];

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn totals(shard: &UpstreamShard) -> UpstreamTotals {
        let mut totals = UpstreamTotals::default();
        totals.add(shard);
        totals
    }

    #[test]
    fn an_aborted_response_is_one_request_and_one_failure() {
        let shard = UpstreamShard::default();
        shard.response_seconds.observe(Duration::from_millis(1));
        shard.aborted.increment();
        assert_eq!((totals(&shard).requests(), totals(&shard).failures()), (1, 1));
    }

    #[test]
    fn a_connection_is_counted_until_it_is_dropped() {
        let shard = Arc::new(UpstreamShard::default());
        let connections = [shard.connection_opened(), shard.connection_opened()];
        assert_eq!(totals(&shard).connections, 2);
        drop(connections);
        assert_eq!(totals(&shard).connections, 0);
    }
}
