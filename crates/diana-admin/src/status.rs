//! The program's status: for orchestrators, load balancers and the page.

use super::degraded::PartStatus;
use super::response::{HandlerResult, json};
use super::settings::SettingsStatus;
use super::{AdminState, degraded};
use axum::extract::State;
use diana::Timestamp;
use diana::redis::{Health, LinkStatus, RedisStore};
use diana_config::SourceStatus;
use diana_metrics::{Metric, Totals, UpstreamStatus};
use diana_net::LogTime;
use diana_net::tls::CertificateStatus;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The fields of some metrics: a number each, or an object with a number for each value of the label.
type Fields = BTreeMap<&'static str, Value>;

#[derive(Debug, Serialize)]
struct Status {
    version: &'static str,
    phase: &'static str,
    started: String,
    /// The metrics of the gateway.
    #[serde(flatten)]
    metrics: Fields,
    keys: usize,
    key_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    access_log_dropped: Option<u64>,
    rules: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<SettingsStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<Store>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<Snapshot>,
    upstreams: Vec<Upstream>,
    degraded: Vec<Degraded>,
    certificates: Vec<Certificate>,
}

/// An upstream, with its counts since the start.
#[derive(Debug, Serialize)]
struct Upstream {
    address: String,
    /// The routes that use it, separated by commas.
    route: String,
    healthy: bool,
    ejected_until: Option<String>,
    /// The upstream's active checks; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Check>,
    /// The upstream's metrics.
    #[serde(flatten)]
    metrics: Fields,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

/// The active checks of an upstream.
#[derive(Debug, Serialize)]
struct Check {
    passing: bool,
    passed: u64,
    failed: u64,
    /// The reason why the last check failed.
    error: Option<String>,
}

/// A part that does not work.
#[derive(Debug, Serialize)]
struct Degraded {
    part: &'static str,
    since: String,
    reason: String,
}

/// A certificate that is presented to clients.
#[derive(Debug, Serialize)]
struct Certificate {
    listener: &'static str,
    names: Vec<String>,
    not_after: String,
}

/// A source of the rules.
#[derive(Debug, Serialize)]
pub(super) struct Source {
    active: String,
    name: String,
    version: String,
    since: String,
    loads: u64,
    errors: u64,
    /// Whether the config server responds, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    connected: Option<bool>,
    /// The current errors.
    pub(super) failing: Vec<SourceError>,
    /// The last error, which may be resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<SourceError>,
}

#[derive(Debug, Serialize)]
pub(super) struct SourceError {
    origin: String,
    what: String,
    when: String,
}

/// The last write of `store.snapshot`.
#[derive(Debug, Serialize)]
struct Snapshot {
    saved: String,
    keys: usize,
    errors: u64,
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
    saved_by_deny_cache: u64,
    saved_by_leases: u64,
    saved_by_batching: u64,
    leased: u64,
}

pub(super) async fn status(State(state): State<Arc<AdminState>>) -> HandlerResult {
    let sources = state.sources.as_ref().map(|report| report());
    let link = state.engine.shared::<RedisStore>().map(RedisStore::link);
    let snapshot = state.snapshot.as_ref().map(|report| report());
    let parts = degraded::parts(link.as_ref(), sources.as_ref(), snapshot.as_ref());
    json(Status {
        version: env!("CARGO_PKG_VERSION"),
        phase: state.readiness.phase().name(),
        started: formatted(state.metrics.started()),
        metrics: fields(Totals::METRICS, &state.metrics.totals()),
        keys: state.engine.local().len(),
        key_bytes: state.engine.local().memory_used(),
        access_log_dropped: state.access_log.as_ref().map(diana_metrics::DroppedLines::count),
        rules: state.engine.rules().rules().len(),
        source: sources.map(source),
        settings: state.settings.as_ref().map(|report| report()),
        store: link.map(store),
        snapshot: snapshot.map(|status| Snapshot {
            saved: formatted(status.saved),
            keys: status.keys,
            errors: status.errors,
        }),
        upstreams: (state.upstreams)().into_iter().map(upstream).collect(),
        degraded: parts.into_iter().filter_map(degraded_part).collect(),
        certificates: (state.certificates)().into_iter().map(certificate).collect(),
    })
}

fn fields<T>(metrics: &[Metric<T>], subject: &T) -> Fields {
    let field = |metric: &Metric<T>| {
        let mut readings = metric.read(&[subject]).into_iter().map(|(label, reading)| (label, reading.number()));
        let value = match metric.label {
            Some(_) => readings.collect(),
            None => readings.next()?.1.into(),
        };
        Some((metric.field?, value))
    };
    metrics.iter().filter_map(field).collect()
}

pub(super) fn source(status: SourceStatus) -> Source {
    let reported = |error: diana_config::SourceError| SourceError {
        origin: error.origin.to_string(),
        what: error.what,
        when: formatted(error.when),
    };
    Source {
        active: status.active.to_string(),
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

fn upstream(status: UpstreamStatus) -> Upstream {
    let millis = |share| status.totals.response_seconds.quantile(share).map(|seconds| seconds * 1_000.0);
    let check = status.check.as_ref().map(|check| Check {
        passing: check.passing,
        passed: check.passed,
        failed: check.failed,
        error: check.error.clone(),
    });
    Upstream {
        route: status.routes.join(", "),
        healthy: status.is_healthy(),
        check,
        metrics: fields(UpstreamStatus::METRICS, &status),
        ejected_until: status.ejected_until.map(formatted),
        p50_ms: millis(0.5),
        p99_ms: millis(0.99),
        address: status.address,
    }
}

fn degraded_part(part: PartStatus) -> Option<Degraded> {
    let failure = part.failure?;
    Some(Degraded { part: part.name, since: formatted(failure.since), reason: failure.reason })
}

fn certificate((listener, status): (&'static str, CertificateStatus)) -> Certificate {
    Certificate { listener, names: status.names, not_after: formatted(status.not_after) }
}

pub(super) fn formatted(at: Timestamp) -> String {
    format!("{}Z", LogTime::default().iso(at))
}
