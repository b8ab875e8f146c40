//! Requests, connections and bytes: of the gateway, and of the services for other gateways.

use super::text::{Kind, Text};
use diana_metrics::{Outcome, ServiceTotals, Totals};

/// Writes the requests, connections and bytes of the gateway.
pub(super) fn traffic(text: &mut Text, totals: &Totals) {
    text.family("diana_requests_total", Kind::Counter, "Requests by outcome.");
    for outcome in Outcome::ALL {
        text.sample("diana_requests_total", &[("outcome", outcome.name())], totals.requests(outcome));
    }
    text.family("diana_request_seconds", Kind::Histogram, "Durations of whole requests by outcome.");
    for (outcome, buckets) in Outcome::ALL.into_iter().zip(&totals.request_seconds) {
        text.buckets("diana_request_seconds", &[("outcome", outcome.name())], buckets);
    }
    text.family(
        "diana_decision_seconds",
        Kind::Histogram,
        "Durations of the decisions of the rules, without imposed waits.",
    );
    text.buckets("diana_decision_seconds", &[], &totals.decision_seconds);
    text.family("diana_wait_seconds", Kind::Histogram, "How long the rules made requests of the gateway wait.");
    text.buckets("diana_wait_seconds", &[], &totals.wait_seconds);
    text.family("diana_upstream_seconds", Kind::Histogram, "Response times of the upstreams.");
    text.buckets("diana_upstream_seconds", &[], &totals.upstream_seconds);
    let help = "Upstream failures: unreachable, no valid response in time, or an aborted response.";
    text.one("diana_upstream_failures_total", Kind::Counter, help, totals.upstream_failures);
    text.one("diana_connections", Kind::Gauge, "Open client connections.", totals.connections);
    let help = "Client connections that wait for another one to be closed.";
    text.one("diana_connections_queued", Kind::Gauge, help, totals.connections_queued);
    let help = "Accepted client connections.";
    text.one("diana_connections_accepted_total", Kind::Counter, help, totals.connections_accepted);
    let help = "Rejected client connections.";
    text.one("diana_connections_rejected_total", Kind::Counter, help, totals.connections_rejected);
    let help = "Bytes received from clients.";
    text.one("diana_received_bytes_total", Kind::Counter, help, totals.bytes_in);
    text.one("diana_sent_bytes_total", Kind::Counter, "Bytes sent to clients.", totals.bytes_out);
}

/// Writes the requests and connections of the services for other gateways.
pub(super) fn services(text: &mut Text, services: &[(&'static str, ServiceTotals)]) {
    if services.is_empty() {
        return;
    }
    text.family("diana_service_requests_total", Kind::Counter, "Requests of other gateways, by service and outcome.");
    for (service, totals) in services {
        for (outcome, count) in [("allowed", totals.allowed), ("denied", totals.denied), ("failed", totals.failed)] {
            text.sample("diana_service_requests_total", &[("service", service), ("outcome", outcome)], count);
        }
    }
    text.family("diana_service_connections", Kind::Gauge, "Open connections of each service.");
    for (service, totals) in services {
        text.sample("diana_service_connections", &[("service", service)], totals.connections);
    }
    text.family("diana_service_connections_accepted_total", Kind::Counter, "Accepted connections of each service.");
    for (service, totals) in services {
        text.sample("diana_service_connections_accepted_total", &[("service", service)], totals.accepted);
    }
    text.family("diana_service_connections_rejected_total", Kind::Counter, "Rejected connections of each service.");
    for (service, totals) in services {
        text.sample("diana_service_connections_rejected_total", &[("service", service)], totals.rejected);
    }
    let help = "How long answers of each service took: a call, a check, or a batch of commands of the Redis protocol.";
    text.family("diana_service_answer_seconds", Kind::Histogram, help);
    for (service, totals) in services {
        text.buckets("diana_service_answer_seconds", &[("service", service)], &totals.answer_seconds);
    }
}
