//! Descriptions of rules in plain English.
//!
//! They are made from the parsed rule, not from its text, so that they show the actual behavior.

#[cfg(test)]
mod bounds;
mod limit;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod units;

use crate::rule::{CostOf, CountedIn, HeldUntil, KeyList, Missing, Mode, OnStatus, OverLimit, Rule};
pub use diana_core::words::{duration, period};
use std::fmt;
pub use table::table;
pub(crate) use units::bytes;

/// The description of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleDescription {
    /// The keys that it counts: `each account`, `everyone together`.
    pub key: String,
    /// The requests that it matches: `GET /search/**`.
    pub matches: String,
    /// The limit: `100 a second, up to 200 at once: at most 300 in any second`.
    pub limit: String,
    /// The handling of requests over the limit: `denied with 429`.
    pub over_limit: String,
    /// Other settings: listed keys, overrides, the cost of a request.
    pub notes: Vec<String>,
}

/// Describes a rule.
///
/// ```
/// use diana_rules::{Document, Registry, RuleFile, describe};
///
/// let document = Document::new("diana.yaml", "rules: [{name: a, by: ip/24, limit: {rate: 100/s, burst: 200}, status: 429}]");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// assert_eq!(
///     describe::rule(&file.rules[0]).to_string(),
///     "each /24 network or IPv6 /64, all requests: 100 a second, up to 200 at once: at most 300 in any second; over the limit: denied with 429",
/// );
/// # Ok::<(), diana_rules::Problems>(())
/// ```
pub fn rule(rule: &Rule) -> RuleDescription {
    RuleDescription {
        key: rule.by.describe(),
        matches: rule.matches.to_string(),
        limit: limit::of_rule(rule),
        over_limit: over_limit(rule),
        notes: notes(rule),
    }
}

impl fmt::Display for RuleDescription {
    /// One sentence, followed by the notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, matches, limit, over_limit, notes } = self;
        write!(f, "{key}, {matches}: {limit}; over the limit: {over_limit}")?;
        notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

fn over_limit(rule: &Rule) -> String {
    if rule.mode == Mode::Shadow {
        return "only reported (shadow)".to_owned();
    }
    let denies = !rule.limits.is_empty() || rule.adaptive || rule.load.is_some() || !rule.deny.is_empty();
    let denies = denies || rule.missing == Missing::Deny;
    let end = match &rule.over {
        _ if !denies => return "throttled".to_owned(),
        OverLimit::Deny if rule.matches.is_for_envoy() => format!("denied with {ENVOY_STATUS}"),
        OverLimit::Deny => {
            let response = if rule.answer.is_some() { " and a custom response" } else { "" };
            format!("denied with {}{response}", rule.status)
        }
        OverLimit::Reroute(upstream) => format!("rerouted to {upstream}"),
    };
    match (rule.wait, rule.queue) {
        (None, _) => end,
        (Some(wait), None) => format!("waits at most {}, then {end}", duration(wait)),
        (Some(wait), Some(queue)) => format!("queued (at most {queue}), waits at most {}, then {end}", duration(wait)),
    }
}

fn notes(rule: &Rule) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(settings) = rule.limits.iter().find_map(limit::without_edge) {
        notes.push(format!("{settings} never allows more than the limit across an edge"));
    }
    if let Some(count) = &rule.count {
        notes.push(match count.then {
            OnStatus::Charge => format!("only responses with {} are counted", count.statuses),
            OnStatus::Refund => format!("responses with {} are refunded", count.statuses),
        });
    }
    match &rule.cost {
        CostOf::Request => {}
        CostOf::Fixed(cost) if cost.get() == 1 => {}
        CostOf::Fixed(cost) => notes.push(format!("each request costs {}", cost.get())),
        CostOf::Expression(expression) => {
            let minimum = match rule.cost_min {
                0 => ", not counted if that is 0".to_owned(),
                1 => String::new(),
                minimum => format!(", at least {minimum}"),
            };
            let failed = match rule.cost_default {
                Some(cost) => format!("{} if that fails", cost.get()),
                None => "denied with 400 if that fails".to_owned(),
            };
            notes.push(format!("the cost of a request is `{expression}`{minimum}; {failed}"));
        }
    }
    if let Some(memory) = rule.memory {
        notes.push(format!("at most {} of memory for its keys", bytes(u64::try_from(memory).unwrap_or(u64::MAX))));
    }
    if rule.held_until == HeldUntil::UpstreamDone {
        notes.push("a permit is held until the upstream has responded, even if the client disconnects".to_owned());
    }
    let list = |list: &KeyList| some(list.written().iter().cloned(), ", ");
    if !rule.allow.is_empty() {
        notes.push(format!("not counted: {}", list(&rule.allow)));
    }
    if !rule.deny.is_empty() {
        notes.push(format!("always denied: {}", list(&rule.deny)));
    }
    if !rule.overrides.is_empty() {
        let each = rule.overrides.iter().map(|own| {
            // An IPv6 address is counted by its /64 network.
            let key =
                rule.by.network_of(&own.written).map_or_else(|| own.written.clone(), |network| network.to_string());
            format!("{key} has {}", limit::all(&own.limits))
        });
        notes.push(some(each, "; "));
    }
    let paths = &rule.matches.paths;
    let is_in_path = |name: &str| !paths.is_empty() && paths.iter().all(|path| path.has_parameter(name));
    if let Some(missing) = rule.by.may_be_missing(is_in_path) {
        notes.push(match rule.missing {
            Missing::Skip => format!("requests without {missing} are not limited by this rule"),
            Missing::Deny => match rule.missing_status {
                Some(status) if !rule.matches.is_for_envoy() => {
                    format!("requests without {missing} are denied with {status}")
                }
                _ => format!("requests without {missing} are denied"),
            },
            Missing::Shared => format!("requests without {missing} are counted together"),
        });
    }
    if rule.counted_in == CountedIn::Shared && !rule.limits.is_empty() {
        notes.push("counted for all instances together".to_owned());
    }
    notes
}

/// What Envoy responds to a request that its rate limit service denies, unless its `rate_limited_status` is set.
const ENVOY_STATUS: u16 = 429;

/// The maximum number of list entries to show.
const MAX_SHOWN: usize = 5;

/// Joins the first few values and the number of the remaining ones.
fn some(values: impl ExactSizeIterator<Item = String>, between: &str) -> String {
    let more = values.len().saturating_sub(MAX_SHOWN);
    let mut text = values.take(MAX_SHOWN).collect::<Vec<_>>().join(between);
    if more > 0 {
        text.push_str(&format!("{between}and {more} more"));
    }
    text
}

/// Joins values: `a`, `a and b`, `a, b and c`.
pub fn and(values: &[impl fmt::Display]) -> String {
    let texts = values.iter().map(ToString::to_string).collect::<Vec<_>>();
    match &*texts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
