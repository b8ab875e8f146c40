//! `GET /rule` and `GET /changes`.

use super::RuleLog;
use crate::AdminState;
use crate::parameters::Parameters;
use crate::response::{HandlerResult, Problem, json};
use crate::rule_change::{Change, Changed};
use crate::rules;
use crate::status::formatted;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use std::sync::Arc;

#[derive(Debug, Serialize)]
struct OneRule {
    #[serde(flatten)]
    rule: rules::Rule,
    #[serde(flatten)]
    written: WrittenRule,
}

/// A rule as it is written.
#[derive(Debug, Default, Serialize)]
struct WrittenRule {
    /// The rule's text, without the values of variables.
    yaml: Option<String>,
    source: Option<String>,
    /// The time at which it became active as it is.
    since: Option<String>,
}

#[derive(Debug, Serialize)]
struct ReportedChange {
    when: String,
    source: String,
    /// Whether the program was started with these rules.
    start: bool,
    /// The number of active rules afterwards.
    rules: usize,
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<Changed>,
    /// The number of rules that are not listed.
    more: usize,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) async fn rule(State(state): State<Arc<AdminState>>, parameters: Parameters) -> HandlerResult {
    parameters.reject_unknown(&["name"])?;
    let name = parameters.required("name")?;
    let active = state.engine.rules();
    let Some(rule) = active.named(name) else {
        return Err(Problem::new(StatusCode::NOT_FOUND, format!("unknown rule `{name}`")));
    };
    json(OneRule { rule: rules::described(rule), written: state.rule_log.written(name) })
}

pub(crate) async fn changes(State(state): State<Arc<AdminState>>, parameters: Parameters) -> HandlerResult {
    parameters.reject_unknown(&[])?;
    let changes = state.rule_log.state.lock().changes.iter().cloned().collect::<Vec<_>>();
    json(changes.into_iter().map(ReportedChange::from).collect::<Vec<_>>())
}

impl RuleLog {
    /// Returns the text of an active rule, without the values of variables.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.written(name).yaml
    }

    fn written(&self, name: &str) -> WrittenRule {
        let state = self.state.lock();
        let Some(active) = &state.active else { return WrittenRule::default() };
        let rule = active.file.rules.iter().find(|rule| rule.name == name);
        WrittenRule {
            yaml: rule.map(|rule| active.document.item_text(rule.span)),
            source: Some(state.source.clone()),
            since: state.since.get(name).map(|since| formatted(*since)),
        }
    }
}

impl From<Change> for ReportedChange {
    fn from(change: Change) -> Self {
        let Change { when, source, is_start, rules, added, removed, changed, more, error } = change;
        let (when, ok) = (formatted(when), error.is_none());
        Self { when, source, start: is_start, rules, added, removed, changed, more, ok, error }
    }
}
