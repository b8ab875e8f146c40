//! All metrics, for Prometheus: those of gateway, services and upstreams, which `diana_metrics` lists; and those of the
//! rules, the store and other parts.
//!
//! Labels have few values, independent of what clients send: outcomes, origins, and a bounded number of rules and
//! upstreams.

mod program_and_sources;
mod rules;
mod text;

use super::{AdminState, degraded};
use axum::extract::State;
use axum::http::{HeaderName, header};
use diana::Timestamp;
use diana::redis::RedisStore;
use diana_metrics::{Kind, ServiceTotals, Totals, UpstreamStatus};
use std::sync::Arc;
use text::{Text, labelled};

/// The maximum number of upstreams with samples of their own.
const MAX_UPSTREAMS: usize = 200;

pub(super) async fn metrics(State(state): State<Arc<AdminState>>) -> ([(HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, Text::CONTENT_TYPE)], page(&state).to_string())
}

fn page(state: &AdminState) -> Text {
    let mut text = Text::default();
    program_and_sources::program(&mut text, state);
    text.metrics(Totals::METRICS, "", &[("", vec![&state.metrics.totals()])]);
    let upstreams = (state.upstreams)();
    text.metrics(
        UpstreamStatus::METRICS,
        "upstream",
        &labelled(&upstreams, MAX_UPSTREAMS, |upstream| &upstream.address),
    );
    let services = (state.services)();
    let services = services.iter().map(|(name, totals)| (*name, vec![totals])).collect::<Vec<_>>();
    text.metrics(ServiceTotals::METRICS, "service", &services);
    rules::rules(&mut text, &state.engine);
    let sources = state.sources.as_ref().map(|report| report());
    if let Some(status) = &sources {
        program_and_sources::source(&mut text, status);
    }
    if let Some(report) = &state.settings {
        let help = "Fields of the rule file that were changed and wait for a restart.";
        text.single("diana_settings_waiting", Kind::Gauge, help, report().waiting.len());
    }
    let link = state.engine.shared::<RedisStore>().map(RedisStore::link);
    if let Some(link) = &link {
        program_and_sources::store(&mut text, link);
    }
    let snapshot = state.snapshot.as_ref().map(|report| report());
    if let Some(status) = &snapshot {
        program_and_sources::snapshot(&mut text, status);
    }
    program_and_sources::degraded(&mut text, &degraded::parts(link.as_ref(), sources.as_ref(), snapshot.as_ref()));
    program_and_sources::certificates(&mut text, &(state.certificates)());
    if let Some(drops) = &state.access_log {
        let help = "Access log lines dropped because the reader was too slow.";
        text.single("diana_access_log_dropped_total", Kind::Counter, help, drops.count());
    }
    if let Some(drops) = &state.program_log {
        let help = "Lines of the program's own log dropped because the reader was too slow.";
        text.single("diana_log_dropped_total", Kind::Counter, help, drops.count());
    }
    text
}

/// Returns a point in time as Unix seconds, as Prometheus expects it.
#[allow(clippy::cast_precision_loss, reason = "to the microsecond it is exact")]
fn seconds(at: Timestamp) -> f64 {
    at.as_micros() as f64 / 1e6
}
