//! `POST /reload`: reads the sources of the rules and the certificates again, as SIGHUP does.

use super::AdminState;
use super::auth::Caller;
use super::parameters::Parameters;
use super::response::{HandlerResult, Problem, json};
use super::settings::SettingsStatus;
use super::status::{Source, source};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;

/// Reads the sources of the rules and the certificates again; done when documents were applied or rejected.
pub type Reload = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

#[derive(Debug, Serialize)]
struct Reloaded {
    /// Whether all sources work and their documents are valid.
    ok: bool,
    /// The number of active rules.
    rules: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<SettingsStatus>,
}

pub(super) async fn reload(
    State(state): State<Arc<AdminState>>,
    Extension(caller): Extension<Caller>,
    parameters: Parameters,
) -> HandlerResult {
    parameters.reject_unknown(&[])?;
    let Some(reload) = &state.reload else {
        return Err(Problem::new(StatusCode::CONFLICT, "the rules have no source that can be read again"));
    };
    state.audit.reload_requested(caller.actor());
    reload().await;
    let source = state.sources.as_ref().map(|report| source(report()));
    let ok = source.as_ref().is_none_or(|source| source.failing.is_empty());
    let settings = state.settings.as_ref().map(|report| report());
    json(Reloaded { ok, rules: state.engine.rules().rules().len(), source, settings })
}
