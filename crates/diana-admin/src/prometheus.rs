//! All metrics, for Prometheus.
//!
//! Labels have few values, independent of what clients send: outcomes, origins, and at most [`LABELLED`] rules.

mod text;

use super::rules::Counts;
use super::{AdminState, Phase};
use axum::extract::State;
use axum::http::{HeaderName, header};
use diana::Timestamp;
use diana::redis::{Health, LinkStatus, RedisStore};
use diana_config::{Origin, SourceStatus};
use diana_metrics::{Outcome, Totals};
use diana_rules::RuleSet;
use std::sync::Arc;
use text::{Kind, Text};

/// The maximum number of rules with samples of their own; the others are counted together.
const LABELLED: usize = 1_000;
/// The label of the rules that are counted together.
const OTHERS: &str = "other";

pub(super) async fn metrics(State(state): State<Arc<AdminState>>) -> ([(HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, Text::CONTENT_TYPE)], page(&state).to_string())
}

fn page(state: &AdminState) -> Text {
    let mut text = Text::default();
    program(&mut text, state);
    traffic(&mut text, &state.metrics.totals());
    rules(&mut text, &state.engine.rules());
    if let Some(report) = &state.sources {
        source(&mut text, &report());
    }
    let keys = state.engine.local();
    text.one("diana_keys", Kind::Gauge, "Keys counted in this process.", keys.len());
    text.one("diana_keys_bytes", Kind::Gauge, "Memory of the keys of this process in bytes.", keys.memory_used());
    if let Some(shared) = state.engine.shared::<RedisStore>() {
        store(&mut text, &shared.link());
    }
    if let Some(drops) = &state.access_log {
        let help = "Access log lines dropped because the reader was too slow.";
        text.one("diana_access_log_dropped_total", Kind::Counter, help, drops.count());
    }
    if let Some(drops) = &state.program_log {
        let help = "Lines of the program's own log dropped because the reader was too slow.";
        text.one("diana_log_dropped_total", Kind::Counter, help, drops.count());
    }
    text
}

fn program(text: &mut Text, state: &AdminState) {
    text.family("diana_build_info", Kind::Gauge, "The version of the program; always 1.");
    text.sample("diana_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let started = seconds(state.metrics.started());
    text.one("diana_start_time_seconds", Kind::Gauge, "When the program started, in Unix time.", started);
    let is_ready = u8::from(state.readiness.phase() == Phase::Ready);
    text.one("diana_ready", Kind::Gauge, "Whether the program accepts requests.", is_ready);
}

fn traffic(text: &mut Text, totals: &Totals) {
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
    text.family("diana_upstream_seconds", Kind::Histogram, "Response times of the upstreams.");
    text.buckets("diana_upstream_seconds", &[], &totals.upstream_seconds);
    let help = "Upstream failures: unreachable, no valid response in time, or an aborted response.";
    text.one("diana_upstream_failures_total", Kind::Counter, help, totals.upstream_failures);
    text.one("diana_connections", Kind::Gauge, "Open client connections.", totals.connections);
    let help = "Accepted client connections.";
    text.one("diana_connections_accepted_total", Kind::Counter, help, totals.connections_accepted);
    let help = "Rejected client connections.";
    text.one("diana_connections_refused_total", Kind::Counter, help, totals.connections_rejected);
    let help = "Bytes received from clients.";
    text.one("diana_received_bytes_total", Kind::Counter, help, totals.bytes_in);
    text.one("diana_sent_bytes_total", Kind::Counter, "Bytes sent to clients.", totals.bytes_out);
}

fn rules(text: &mut Text, rules: &RuleSet) {
    text.one("diana_rules", Kind::Gauge, "Active rules.", rules.rules().len());
    let is_too_many = rules.rules().len() > LABELLED;
    let mut labelled = Vec::new();
    let mut others = Counts::default();
    for (index, rule) in rules.rules().iter().enumerate() {
        let (name, counts) = (&*rule.rule().name, Counts::of(rule));
        // While there are such rules, no rule may have their label as its name.
        if is_too_many && (index >= LABELLED || name == OTHERS) {
            others.add(&counts);
        } else {
            labelled.push((name, counts));
        }
    }
    if is_too_many {
        labelled.push((OTHERS, others));
    }
    text.family("diana_decisions_total", Kind::Counter, "Decisions of each rule by outcome.");
    for (rule, counts) in &labelled {
        for (outcome, count) in counts.decisions() {
            text.sample("diana_decisions_total", &[("rule", rule), ("outcome", outcome)], count);
        }
    }
    let help = "Failed expressions of each rule.";
    text.family("diana_expression_failures_total", Kind::Counter, help);
    for (rule, counts) in &labelled {
        text.sample("diana_expression_failures_total", &[("rule", rule)], counts.failures);
    }
}

fn source(text: &mut Text, status: &SourceStatus) {
    text.family("diana_rules_source", Kind::Gauge, "1 for the source of the active rules.");
    for (origin, name) in [(Origin::Local, "local"), (Origin::Remote, "remote"), (Origin::LastGood, "last_good")] {
        text.sample("diana_rules_source", &[("origin", name)], u8::from(status.active == origin));
    }
    if status.has_remote {
        let help = "Whether the config server answered the last request.";
        text.one("diana_rules_remote_up", Kind::Gauge, help, u8::from(status.connected));
    }
    let help = "Whether loading rules currently fails; the rules loaded before stay active.";
    text.one("diana_rules_failing", Kind::Gauge, help, u8::from(!status.failing.is_empty()));
    let help = "When rules were last loaded, in Unix time.";
    text.one("diana_rules_loaded_time_seconds", Kind::Gauge, help, seconds(status.since));
    text.one("diana_rules_loads_total", Kind::Counter, "Successful loads of rules.", status.loads);
    let help = "Failed loads of rules: unreachable source, or invalid rules.";
    text.one("diana_rules_errors_total", Kind::Counter, help, status.errors);
}

fn store(text: &mut Text, link: &LinkStatus) {
    let is_up = u8::from(link.health == Health::Healthy);
    text.one("diana_store_up", Kind::Gauge, "Whether the shared store responds.", is_up);
    let help = "Instances that share the store.";
    text.one("diana_store_instances", Kind::Gauge, help, link.instances);
    let help = "Commands sent to the store for requests.";
    text.one("diana_store_commands_total", Kind::Counter, help, link.commands);
    text.one("diana_store_waits_total", Kind::Counter, "Requests that waited for the store.", link.waits);
    text.family("diana_store_saved_total", Kind::Counter, "Requests decided without their own round trip, by cause.");
    let saved = [
        ("refusals", link.saved_by_deny_cache),
        ("leases", link.saved_by_leases),
        ("batching", link.saved_by_batching),
    ];
    for (by, count) in saved {
        text.sample("diana_store_saved_total", &[("by", by)], count);
    }
    text.one("diana_store_leased", Kind::Gauge, "Permits leased by this instance.", link.leased);
    let help = "Limits whose newer configuration was adopted from another instance.";
    text.one("diana_store_adopted_limits", Kind::Gauge, help, link.adopted);
}

/// Returns a point in time as Unix seconds, as Prometheus expects it.
#[allow(clippy::cast_precision_loss, reason = "to the microsecond it is exact")]
fn seconds(at: Timestamp) -> f64 {
    at.as_micros() as f64 / 1e6
}
