//! The active rules, in words, with their counts.

use super::AdminState;
use super::parameters::Parameters;
use super::response::{HandlerResult, Problem, json, wants_text};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use diana::ruleset::{CompiledRule, RuleCounts};
use diana_rules::describe;
use diana_rules::rule::{CountedIn, Mode};
use serde::Serialize;
use std::sync::Arc;

#[derive(Debug, Serialize)]
struct Rules {
    /// The number of active rules.
    total: usize,
    /// The number of rules that `find` selects.
    found: usize,
    rules: Vec<Rule>,
}

/// A rule in words, with its counts.
#[derive(Debug, Serialize)]
pub(super) struct Rule {
    name: String,
    by: String,
    who: String,
    what: String,
    limit: String,
    beyond: String,
    notes: Vec<String>,
    shadow: bool,
    shared: bool,
    counts: Counts,
}

/// The outcomes of the requests that a rule matched.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Counts {
    allowed: u64,
    delayed: u64,
    denied: u64,
    rerouted: u64,
    shadow_denied: u64,
    failures: u64,
}

impl Counts {
    pub(super) fn of(rule: &CompiledRule) -> Self {
        let RuleCounts { allowed, delayed, denied, rerouted, shadow_denied, failures, .. } = rule.counted();
        // The names of the API are older.
        Self { allowed, delayed, denied, rerouted, shadow_denied, failures }
    }
}

pub(super) async fn rules(
    State(state): State<Arc<AdminState>>,
    headers: HeaderMap,
    parameters: Parameters,
) -> HandlerResult {
    parameters.reject_unknown(&["find", "limit", "offset", "sort"])?;
    let find = parameters.optional("find")?.unwrap_or_default().to_lowercase();
    let bound = |name| Ok(parameters.number(name)?.map(|number| usize::try_from(number).unwrap_or(usize::MAX)));
    let (limit, offset) = (bound("limit")?.unwrap_or(usize::MAX), bound("offset")?.unwrap_or(0));
    let active = state.engine.rules();
    let is_selected = |rule: &&CompiledRule| find.is_empty() || contains(rule, &find);
    let mut selected = active.rules().iter().filter(is_selected).collect::<Vec<_>>();
    match parameters.optional("sort")? {
        None | Some("file") => {}
        Some("denied") => {
            let ranks = state.history.ranks();
            // Stable: rules without requests in the last hour stay in the order of the file.
            selected.sort_by_key(|rule| ranks.get(&*rule.rule().name).copied().unwrap_or(usize::MAX));
        }
        Some(other) => return Err(Problem::bad(format!("invalid `sort` `{other}`: expected file or denied"))),
    }
    let page = selected.iter().skip(offset).take(limit);
    if wants_text(&headers) {
        let lines = page.map(|rule| format!("{}: {}\n", rule.rule().name, describe::rule(rule.rule())));
        return Ok(lines.collect::<String>().into_response());
    }
    let rules = page.map(|rule| described(rule)).collect();
    json(Rules { total: active.rules().len(), found: selected.len(), rules })
}

/// Returns whether a rule has a text in its name, its `match` or its `by`.
fn contains(rule: &CompiledRule, text: &str) -> bool {
    let rule = rule.rule();
    rule.name.to_lowercase().contains(text)
        || rule.matches.to_string().to_lowercase().contains(text)
        || rule.by.to_string().to_lowercase().contains(text)
}

pub(super) fn described(compiled: &CompiledRule) -> Rule {
    let rule = compiled.rule();
    let words = describe::rule(rule);
    Rule {
        name: rule.name.clone(),
        by: rule.by.to_string(),
        who: words.key,
        what: words.matches,
        limit: words.limit,
        beyond: words.over_limit,
        notes: words.notes,
        shadow: rule.mode == Mode::Shadow,
        shared: rule.counted_in == CountedIn::Shared && !rule.limits.is_empty(),
        counts: Counts::of(compiled),
    }
}
