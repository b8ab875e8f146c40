//! The heaviest keys of each rule.

use super::AdminState;
use super::parameters::Parameters;
use super::response::{HandlerResult, Problem, json};
use super::status::formatted;
use axum::extract::State;
use axum::http::StatusCode;
use diana::ruleset::{CompiledRule, KeyOutcome, TopKey, TopKeys, Window};
use diana_rules::key::KeySpec;
use diana_rules::rule::Mode;
use serde::Serialize;
use std::sync::Arc;

/// The number of keys of each list, if the request has no `limit`.
const KEYS: usize = 10;
/// The maximum number of keys of each list.
const MAX_KEYS: usize = 100;
/// The maximum number of rules, if the request names none.
const MAX_RULES: usize = 256;

#[derive(Debug, Serialize)]
struct Top {
    window: &'static str,
    /// Whether keys are not recorded (`top_keys: off`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    off: bool,
    rules: Vec<Rule>,
}

#[derive(Debug, Serialize)]
struct Rule {
    rule: String,
    by: String,
    shadow: bool,
    denied: List,
    delayed: List,
    allowed: List,
}

#[derive(Debug, Serialize)]
pub(super) struct List {
    total: u64,
    /// A count is wrong by at most this. The counts of allowed requests are estimates from a sample besides.
    max_error: u64,
    keys: Vec<KeyCount>,
}

#[derive(Debug, Serialize)]
struct KeyCount {
    /// The values of the key, as `/peek` takes them; `null` if it can't.
    key: Option<Vec<String>>,
    text: String,
    count: u64,
    /// The time at which it was first counted in the window, to ten seconds.
    since: String,
}

pub(super) async fn top(State(state): State<Arc<AdminState>>, parameters: Parameters) -> HandlerResult {
    parameters.reject_unknown(&["rule", "window", "limit", "find"])?;
    let window = window(&parameters)?;
    let limit = match parameters.number("limit")? {
        Some(limit) => usize::try_from(limit).unwrap_or(MAX_KEYS).min(MAX_KEYS),
        None => KEYS,
    };
    let find = parameters.optional("find")?.unwrap_or_default().to_lowercase();
    let rules = state.engine.rules();
    let name = parameters.optional("rule")?;
    if let Some(name) = name.filter(|name| rules.named(name).is_none()) {
        return Err(Problem::new(StatusCode::NOT_FOUND, format!("unknown rule `{name}`")));
    }
    let now = state.engine.now();
    let asked = rules.rules().iter().filter(|rule| name.is_none_or(|name| rule.rule().name == name));
    let list = |rule: &CompiledRule, outcome| {
        let max_keys = if find.is_empty() { limit } else { usize::MAX };
        List::of(rule, &rule.top_keys(outcome, window, max_keys, now), &find, limit)
    };
    let lists_by_rule = asked.map(|rule| Rule {
        rule: rule.rule().name.clone(),
        by: rule.rule().by.to_string(),
        shadow: rule.rule().mode == Mode::Shadow,
        denied: list(rule, KeyOutcome::Denied),
        delayed: list(rule, KeyOutcome::Delayed),
        allowed: list(rule, KeyOutcome::Allowed),
    });
    let is_wanted = |rule: &Rule| {
        let lists = [&rule.denied, &rule.delayed, &rule.allowed];
        name.is_some() || lists.iter().any(|list| if find.is_empty() { list.total > 0 } else { !list.keys.is_empty() })
    };
    let off = !rules.has_top_keys();
    let mut listed = if off { Vec::new() } else { lists_by_rule.filter(is_wanted).collect::<Vec<_>>() };
    // Sorted by the heaviest key that was listed, or by all of them.
    let weight = |list: &List| if find.is_empty() { list.total } else { list.keys.iter().map(|key| key.count).sum() };
    listed.sort_by_key(|rule| std::cmp::Reverse((weight(&rule.denied), weight(&rule.delayed), weight(&rule.allowed))));
    listed.truncate(MAX_RULES);
    json(Top { window: name_of(window), off, rules: listed })
}

pub(super) fn window(parameters: &Parameters) -> Result<Window, Problem> {
    match parameters.optional("window")? {
        None | Some("minute") => Ok(Window::Minute),
        Some("hour") => Ok(Window::Hour),
        Some(other) => Err(Problem::bad(format!("invalid window `{other}`: expected `minute` or `hour`"))),
    }
}

fn name_of(window: Window) -> &'static str {
    match window {
        Window::Hour => "hour",
        _ => "minute",
    }
}

/// Returns a key as it is shown.
pub(super) fn text_of(by: &KeySpec, top: &TopKey) -> String {
    match &*top.key {
        [] if by.is_everyone() => "everyone".to_owned(),
        [] => "(no key)".to_owned(),
        cut if top.is_cut => format!("{}…", String::from_utf8_lossy(cut)),
        key => by.shown(key),
    }
}

impl List {
    fn of(rule: &CompiledRule, top: &TopKeys, find: &str, limit: usize) -> Self {
        let by = &rule.rule().by;
        let keys = top.keys.iter().map(|top| {
            let key = if top.is_cut { None } else { by.values(&top.key) };
            KeyCount { key, text: text_of(by, top), count: top.count, since: formatted(top.since) }
        });
        let keys = keys.filter(|key| find.is_empty() || key.text.to_lowercase().contains(find)).take(limit);
        Self { total: top.total, max_error: top.max_error, keys: keys.collect() }
    }
}
