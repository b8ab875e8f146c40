//! The program's status: for orchestrators, load balancers and the page.

use super::AdminState;
use super::response::{HandlerResult, json};
use axum::extract::State;
use diana::Timestamp;
use diana::redis::{Health, LinkStatus, RedisStore};
use diana_config::SourceStatus;
use diana_gateway::access_log::LogTime;
use diana_metrics::Outcome;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Serialize)]
struct Status {
    version: &'static str,
    phase: &'static str,
    started: String,
    requests: BTreeMap<&'static str, u64>,
    upstream_failures: u64,
    bytes_in: u64,
    bytes_out: u64,
    connections: u64,
    keys: usize,
    key_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    access_log_dropped: Option<u64>,
    rules: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<Store>,
}

/// A source of the rules.
#[derive(Debug, Serialize)]
struct Source {
    in_force: String,
    name: String,
    version: String,
    since: String,
    loads: u64,
    errors: u64,
    /// Whether the config server responds, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    connected: Option<bool>,
    /// The current errors.
    failing: Vec<SourceError>,
    /// The last error, which may be resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<SourceError>,
}

#[derive(Debug, Serialize)]
struct SourceError {
    origin: String,
    what: String,
    when: String,
}

/// The status of the shared store.
#[derive(Debug, Serialize)]
struct Store {
    up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    down_since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    instances: u64,
    commands: u64,
    #[serde(rename = "saved_by_refusals")]
    saved_by_deny_cache: u64,
    saved_by_leases: u64,
    saved_by_batching: u64,
    leased: u64,
}

pub(super) async fn status(State(state): State<Arc<AdminState>>) -> HandlerResult {
    let totals = state.metrics.totals();
    json(Status {
        version: env!("CARGO_PKG_VERSION"),
        phase: state.readiness.phase().name(),
        started: formatted(state.metrics.started()),
        requests: Outcome::ALL.into_iter().map(|outcome| (outcome.name(), totals.requests(outcome))).collect(),
        upstream_failures: totals.upstream_failures,
        bytes_in: totals.bytes_in,
        bytes_out: totals.bytes_out,
        connections: totals.connections,
        keys: state.engine.local().len(),
        key_bytes: state.engine.local().memory_used(),
        access_log_dropped: state.access_log.as_ref().map(diana_metrics::DroppedLines::count),
        rules: state.engine.rules().rules().len(),
        source: state.sources.as_ref().map(|report| source(report())),
        store: state.engine.shared::<RedisStore>().map(|store| self::store(store.link())),
    })
}

fn source(status: SourceStatus) -> Source {
    let reported = |error: diana_config::SourceError| SourceError {
        origin: error.origin.to_string(),
        what: error.what,
        when: formatted(error.when),
    };
    Source {
        in_force: status.active.to_string(),
        name: status.name,
        version: status.version,
        since: formatted(status.since),
        loads: status.loads,
        errors: status.errors,
        connected: status.has_remote.then_some(status.connected),
        failing: status.failing.into_iter().map(reported).collect(),
        last_error: status.last_error.map(reported),
    }
}

fn store(link: LinkStatus) -> Store {
    let (up, down_since, reason) = match link.health {
        Health::Healthy => (true, None, None),
        Health::Degraded { since, reason } => (false, Some(formatted(since)), Some(reason)),
        // Variants that this version does not know.
        other => (false, None, Some(format!("{other:?}"))),
    };
    Store {
        up,
        down_since,
        reason,
        instances: link.instances,
        commands: link.commands,
        saved_by_deny_cache: link.saved_by_deny_cache,
        saved_by_leases: link.saved_by_leases,
        saved_by_batching: link.saved_by_batching,
        leased: link.leased,
    }
}

fn formatted(at: Timestamp) -> String {
    format!("{}Z", LogTime::default().iso(at))
}
