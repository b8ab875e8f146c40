//! The responses of the admin API, as far as this program shows them.
//!
//! Missing fields are empty, and unknown ones are ignored: the server may be older or newer than this program.

use diana_metrics::Metric;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The fields that a struct does not name, among them the metrics.
pub(crate) type Fields = BTreeMap<String, Value>;

/// Returns the metrics that are shown, each with its name.
pub(crate) fn shown<T>(metrics: &[Metric<T>], fields: &Fields) -> impl Iterator<Item = (String, u64)> {
    let shown = metrics.iter().filter(|metric| metric.is_shown).filter_map(|metric| metric.field);
    shown.map(|field| (field.replace('_', " "), fields.get(field).and_then(Value::as_u64).unwrap_or_default()))
}

/// `/status`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) phase: String,
    pub(crate) started: String,
    pub(crate) requests: BTreeMap<String, u64>,
    #[serde(flatten)]
    pub(crate) fields: Fields,
    pub(crate) keys: u64,
    pub(crate) key_bytes: u64,
    pub(crate) rules: u64,
    pub(crate) source: Option<Source>,
    pub(crate) settings: Settings,
    pub(crate) store: Option<SharedStore>,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) degraded: Vec<Degraded>,
    pub(crate) certificates: Vec<Certificate>,
}

/// The fields of the rule file that were changed since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    pub(crate) applied: Vec<String>,
    pub(crate) waiting: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Source {
    pub(crate) active: String,
    pub(crate) name: String,
    pub(crate) since: String,
    pub(crate) connected: Option<bool>,
    pub(crate) failing: Vec<SourceError>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SourceError {
    pub(crate) origin: String,
    pub(crate) what: String,
    pub(crate) when: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SharedStore {
    pub(crate) up: bool,
    pub(crate) down_since: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) instances: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Upstream {
    pub(crate) address: String,
    pub(crate) healthy: bool,
    pub(crate) check: Option<UpstreamCheck>,
    #[serde(flatten)]
    pub(crate) fields: Fields,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

/// The active checks of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct UpstreamCheck {
    pub(crate) passing: bool,
    pub(crate) error: Option<String>,
}

/// A part that does not work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Degraded {
    pub(crate) part: String,
    pub(crate) since: Option<String>,
    pub(crate) reason: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Certificate {
    pub(crate) listener: String,
    pub(crate) names: Vec<String>,
    pub(crate) not_after: String,
}

impl Status {
    /// Returns what does not work. A server without `degraded` reports it in `store` and `source`.
    pub(crate) fn degraded(&self) -> Vec<Degraded> {
        if !self.degraded.is_empty() {
            return self.degraded.clone();
        }
        let mut degraded = Vec::new();
        if let Some(store) = self.store.as_ref().filter(|store| !store.up) {
            let (since, reason) = (store.down_since.clone(), store.reason.clone());
            degraded.push(Degraded { part: "redis".to_owned(), since, reason });
        }
        for error in self.source.iter().flat_map(|source| &source.failing) {
            let part = if error.origin == "local" { "rule_file" } else { "config_server" };
            let (since, reason) = (Some(error.when.clone()), Some(error.what.clone()));
            degraded.push(Degraded { part: part.to_owned(), since, reason });
        }
        degraded
    }
}

impl Degraded {
    /// Describes it: `Redis unreachable since 2026-11-18T10:00:00Z: connection refused`.
    pub(crate) fn describe(&self) -> String {
        let what = match &*self.part {
            "redis" => "Redis unreachable",
            "config_server" => "config server failing",
            "rule_file" => "rule file invalid",
            other => other,
        };
        let since = self.since.iter().map(|since| format!(" since {since}")).collect::<String>();
        let reason = self.reason.iter().map(|reason| format!(": {reason}")).collect::<String>();
        format!("{what}{since}{reason}")
    }
}

/// `/rules`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct RuleList {
    pub(crate) rules: Vec<RuleSummary>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct RuleSummary {
    pub(crate) name: String,
    pub(crate) by: String,
    pub(crate) limit: String,
    pub(crate) shadow: bool,
    pub(crate) counts: RuleCounts,
}

/// The outcomes of a rule since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RuleCounts {
    pub(crate) allowed: u64,
    pub(crate) delayed: u64,
    pub(crate) denied: u64,
    pub(crate) shadow_denied: u64,
}

/// `/top`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Top {
    pub(crate) window: String,
    /// `top_keys: off` in the rule file.
    pub(crate) off: bool,
    pub(crate) rules: Vec<TopRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct TopRule {
    pub(crate) rule: String,
    pub(crate) by: String,
    pub(crate) shadow: bool,
    pub(crate) denied: TopKeys,
    pub(crate) delayed: TopKeys,
    pub(crate) allowed: TopKeys,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct TopKeys {
    pub(crate) total: u64,
    pub(crate) keys: Vec<TopKey>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct TopKey {
    /// The parts for `/peek`, `/reset` and `/refund`, if the key can be named there.
    pub(crate) key: Option<Vec<String>>,
    pub(crate) text: String,
    pub(crate) count: u64,
    /// The time at which it was first counted in the window; empty if an older server does not say.
    pub(crate) since: String,
}

/// `/history`: counts per step, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct History {
    pub(crate) step: u64,
    pub(crate) allowed: Vec<u64>,
    pub(crate) denied: Vec<u64>,
    pub(crate) delayed: Vec<u64>,
    pub(crate) shadow_denied: Vec<u64>,
    /// The latency of all requests, without a rule.
    pub(crate) latency: Option<Latency>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Latency {
    pub(crate) request: Percentiles,
}

/// Milliseconds per step; `None` without requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Percentiles {
    pub(crate) p50: Vec<Option<f64>>,
    pub(crate) p99: Vec<Option<f64>>,
}

/// `/peek`, `/reset` and `/refund`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct KeyStatus {
    pub(crate) rule: String,
    pub(crate) key: Vec<String>,
    pub(crate) counted: String,
    pub(crate) listed: Option<String>,
    pub(crate) limits: Vec<KeyLimit>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct KeyLimit {
    pub(crate) name: String,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Seconds until the limit resets.
    pub(crate) reset: f64,
    #[serde(rename = "grants")]
    pub(crate) allowed: bool,
    pub(crate) retry_after: Option<f64>,
}

/// `/what-if`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct WhatIf {
    pub(crate) rule: String,
    pub(crate) limit: String,
    pub(crate) now: String,
    pub(crate) window: String,
    pub(crate) denied: u64,
    pub(crate) would_deny: u64,
    pub(crate) keys: Vec<WhatIfKey>,
    pub(crate) note: String,
    pub(crate) shadow_rule: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct WhatIfKey {
    pub(crate) text: String,
    pub(crate) denied: u64,
    pub(crate) would_deny: u64,
}

/// `/audit`: the newest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Audit {
    pub(crate) dropped: u64,
    pub(crate) entries: Vec<AuditEntry>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct AuditEntry {
    pub(crate) when: String,
    pub(crate) action: String,
    pub(crate) source: String,
    pub(crate) who: Option<String>,
    pub(crate) client: Option<String>,
    pub(crate) rule: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) cost: Option<u64>,
    pub(crate) before: Vec<KeyLimit>,
    pub(crate) after: Vec<KeyLimit>,
    pub(crate) rules: u64,
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<AuditedRule>,
    pub(crate) more: u64,
    pub(crate) tokens: AuditedTokens,
    pub(crate) error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct AuditedRule {
    pub(crate) rule: String,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// The names of changed tokens, with their roles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct AuditedTokens {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
}

/// `/reload`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Reloaded {
    pub(crate) ok: bool,
    pub(crate) rules: u64,
    pub(crate) source: Option<Source>,
    pub(crate) settings: Settings,
}
