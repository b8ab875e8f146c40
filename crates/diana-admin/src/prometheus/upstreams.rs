//! The requests, failures, response times, connections, ejections, checks and retries of each upstream.
//!
//! At most [`LABELLED`] upstreams have samples of their own; the others are counted together.

use super::text::{Kind, Text};
use diana_metrics::UpstreamTotals;
use diana_metrics::{CheckStatus, UpstreamStatus};

/// The maximum number of upstreams with samples of their own.
const LABELLED: usize = 200;
/// The label of the upstreams that are counted together.
const OTHERS: &str = "other";

/// What is exported of an upstream, or of several together.
#[derive(Debug, Default)]
struct UpstreamSample {
    totals: UpstreamTotals,
    ejected: u64,
    ejections: u64,
    /// The checks of the upstreams that have any.
    checks: Vec<CheckStatus>,
    weight: u64,
}

/// Writes the samples of all upstreams.
pub(super) fn upstreams(text: &mut Text, upstreams: &[UpstreamStatus]) {
    if upstreams.is_empty() {
        return;
    }
    let sample = |upstream: &UpstreamStatus| UpstreamSample {
        totals: upstream.totals.clone(),
        ejected: u64::from(upstream.ejected_until.is_some()),
        ejections: upstream.ejections,
        checks: upstream.check.iter().cloned().collect(),
        weight: u64::from(upstream.weight),
    };
    let (labelled, others) = upstreams.split_at(upstreams.len().min(LABELLED));
    let mut samples: Vec<_> = labelled.iter().map(|upstream| (&*upstream.address, sample(upstream))).collect();
    if !others.is_empty() {
        let mut sum = UpstreamSample::default();
        for other in others.iter().map(sample) {
            sum.totals.add_totals(&other.totals);
            sum.ejected += other.ejected;
            sum.ejections += other.ejections;
            sum.checks.extend(other.checks);
            sum.weight += other.weight;
        }
        samples.push((OTHERS, sum));
    }
    let mut each = |name, kind, help, value: fn(&UpstreamSample) -> u64| {
        text.family(name, kind, help);
        for (upstream, sample) in &samples {
            text.sample(name, &[("upstream", upstream)], value(sample));
        }
    };
    let help = "Requests sent to each upstream, also those that another upstream answered then.";
    each("diana_upstream_requests_total", Kind::Counter, help, |sample| sample.totals.requests());
    let help = "Failed requests of each upstream: unreachable, no valid response in time, or an aborted response.";
    each("diana_upstream_request_failures_total", Kind::Counter, help, |sample| sample.totals.failures());
    let help = "Open connections to each upstream.";
    each("diana_upstream_connections", Kind::Gauge, help, |sample| sample.totals.connections);
    let help = "Whether each upstream is ejected: it gets no requests after failures in a row.";
    each("diana_upstream_ejected", Kind::Gauge, help, |sample| sample.ejected);
    let help = "How often each upstream was ejected.";
    each("diana_upstream_ejections_total", Kind::Counter, help, |sample| sample.ejections);
    let help = "Requests in flight at each upstream.";
    each("diana_upstream_in_flight", Kind::Gauge, help, |sample| sample.totals.in_flight);
    let help = "The weight of each upstream, in the first of its routes.";
    each("diana_upstream_weight", Kind::Gauge, help, |sample| sample.weight);
    let help = "Requests that each upstream failed and that were sent to another one, as `retries` allows.";
    each("diana_upstream_retries_total", Kind::Counter, help, |sample| sample.totals.retries);
    let help = "Requests that each upstream failed and that were not retried, as the retry budget was used up.";
    each("diana_upstream_retries_denied_total", Kind::Counter, help, |sample| sample.totals.retries_denied);
    checks(text, &samples);
    let help = "Time to the head of the response of each upstream.";
    text.family("diana_upstream_response_seconds", Kind::Histogram, help);
    for (upstream, sample) in &samples {
        let name = "diana_upstream_response_seconds";
        text.buckets(name, &[("upstream", upstream)], &sample.totals.response_seconds);
    }
}

/// Writes the samples of the upstreams that are checked.
fn checks(text: &mut Text, samples: &[(&str, UpstreamSample)]) {
    let checked: Vec<_> = samples.iter().filter(|(_, sample)| !sample.checks.is_empty()).collect();
    if checked.is_empty() {
        return;
    }
    let name = "diana_upstream_healthy";
    text.family(name, Kind::Gauge, "Whether each upstream passes its active checks.");
    for (upstream, sample) in &checked {
        let is_passing = sample.checks.iter().all(|check| check.passing);
        text.sample(name, &[("upstream", upstream)], u64::from(is_passing));
    }
    let name = "diana_upstream_checks_total";
    text.family(name, Kind::Counter, "Active checks of each upstream, by their result.");
    for (upstream, sample) in &checked {
        let sum = |count: fn(&CheckStatus) -> u64| sample.checks.iter().map(count).sum::<u64>();
        text.sample(name, &[("upstream", upstream), ("result", "passed")], sum(|check| check.passed));
        text.sample(name, &[("upstream", upstream), ("result", "failed")], sum(|check| check.failed));
    }
}
