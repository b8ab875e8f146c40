//! An estimate of what another limit would deny, from the heaviest keys of a rule.
//!
//! A key that is limited was allowed its burst, and then what its rate allows for as long as it sent requests. So this time is
//! known, and with it what another burst and rate would have allowed. A key that is not limited may have sent all the time:
//!
//! ```text
//!  would deny = requests - new burst - new rate × time       at least 0
//!        time = (allowed - burst) ÷ rate                     of a key with denials
//!               the window                                   of a key without, at a lower limit
//! ```
//!
//! Of a rule with several limits, one is replaced: that with the same period, or the one that `index` names. All of them
//! apply, so a key was allowed the least that one of them allows, in the longest time that one of them needs for that.

use super::AdminState;
use super::parameters::Parameters;
use super::response::{HandlerResult, Problem, json};
use super::top;
use axum::extract::State;
use axum::http::StatusCode;
use diana::Quota;
use diana::algorithm::Restores;
use diana::ruleset::{KeyOutcome, TopKey, Window};
use diana_rules::limit::LimitRule;
use diana_rules::rule::Mode;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

const SHADOW: &str = "an estimate from the heaviest keys";
const LOWER: &str = "an estimate from the heaviest keys; the shadow rule counts exactly";
/// A shadow rule only sees requests that the other rules allow.
const HIGHER: &str = "an estimate from the heaviest keys; a shadow rule can't count it, since it only sees requests that the \
                      current limit allows";

#[derive(Debug, Serialize)]
struct WhatIf<'a> {
    rule: &'a str,
    /// The other limit, and the current one.
    limit: &'a str,
    now: &'a str,
    /// The number of the current limit among those of the rule, from 1.
    index: usize,
    window: &'static str,
    /// The denials of the keys below, and how many of their requests the other limit would have denied.
    denied: u64,
    would_deny: u64,
    keys: Vec<KeyEstimate>,
    note: &'static str,
    /// The rule with the other limit as a shadow rule, which counts exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow_rule: Option<String>,
}

#[derive(Debug, Serialize)]
struct KeyEstimate {
    text: String,
    requests: u64,
    denied: u64,
    would_deny: u64,
}

/// The requests of one key.
struct Counts {
    top: TopKey,
    denied: u64,
    allowed: u64,
}

pub(super) async fn what_if(State(state): State<Arc<AdminState>>, parameters: Parameters) -> HandlerResult {
    parameters.reject_unknown(&["rule", "limit", "window", "index"])?;
    let (name, limit) = (parameters.required("rule")?, parameters.required("limit")?);
    let window = top::window(&parameters)?;
    let rules = state.engine.rules();
    let unknown = || Problem::new(StatusCode::NOT_FOUND, format!("unknown rule `{name}`"));
    let rule = rules.named(name).ok_or_else(unknown)?;
    let other =
        limit.parse::<Quota>().map_err(|invalid| Problem::bad(format!("invalid limit `{limit}`: {invalid}")))?;
    let limits = &*rule.rule().limits;
    let quotas = limits.iter().map(|limit| {
        quota_of(limit).ok_or_else(|| {
            let what = format!("a limit of `{name}` is a {}", limit.algorithm);
            Problem::bad(format!("{what}: expected token or leaky buckets, whose rate decides"))
        })
    });
    let quotas = quotas.collect::<Result<Vec<_>, _>>()?;
    let index = replaced(name, limits, &quotas, other, parameters.number("index")?)?;
    let (current, quota) = limits
        .get(index)
        .zip(quotas.get(index).copied())
        .ok_or_else(|| Problem::bad(format!("`{name}` has no limit: expected a rule with a rate")))?;
    let mut others = quotas.clone();
    others.iter_mut().skip(index).take(1).for_each(|quota| *quota = other);
    let now = state.engine.now();
    let mut counts: HashMap<u64, Counts> = HashMap::new();
    for outcome in [KeyOutcome::Denied, KeyOutcome::Delayed, KeyOutcome::Allowed] {
        for top in rule.top_keys(outcome, window, usize::MAX, now).keys {
            let (hash, count) = (top.hash, top.count);
            let counts = counts.entry(hash).or_insert_with(|| Counts { top, denied: 0, allowed: 0 });
            *(if outcome == KeyOutcome::Denied { &mut counts.denied } else { &mut counts.allowed }) += count;
        }
    }
    // Keys with limits of their own do not change.
    let has_override = |counts: &Counts| rule.has_override(&counts.top.key);
    let seconds = if window == Window::Hour { 3_600.0 } else { 60.0 };
    let is_lower = other.rate() < quota.rate() || other.rate() <= quota.rate() && other.burst() < quota.burst();
    let keys = counts.into_values().filter(|counts| !has_override(counts)).map(|counts| {
        let Counts { top, denied, allowed } = counts;
        let requests = allowed + denied;
        let allowed = match denied {
            // A key that is not limited is not limited by a higher rate either.
            0 if !is_lower => requests,
            0 => allowed_in(seconds, &others),
            _ => match scaled_time(allowed, &quotas) {
                Some(seconds) => allowed_in(seconds, &others),
                None => scaled(allowed, lowest_rate(&others) / lowest_rate(&quotas)),
            },
        };
        KeyEstimate {
            text: top::text_of(&rule.rule().by, &top),
            requests,
            denied,
            would_deny: requests.saturating_sub(allowed),
        }
    });
    let mut keys = keys.filter(|key| key.denied > 0 || key.would_deny > 0).collect::<Vec<_>>();
    keys.sort_by(|one, other| {
        (other.denied, other.would_deny, &one.text).cmp(&(one.denied, one.would_deny, &other.text))
    });
    let text = if is_lower { state.rule_log.text(name) } else { None };
    json(WhatIf {
        rule: name,
        limit,
        now: &current.written,
        index: index + 1,
        window: if window == Window::Hour { "hour" } else { "minute" },
        denied: keys.iter().map(|key| key.denied).sum(),
        would_deny: keys.iter().map(|key| key.would_deny).sum(),
        keys,
        note: match rule.rule().mode {
            Mode::Shadow => SHADOW,
            _ if is_lower => LOWER,
            _ => HIGHER,
        },
        shadow_rule: text.and_then(|text| shadow_rule(&text, (name, &current.written), limit)),
    })
}

/// Returns a rule's text, with another name and limit, as a shadow rule; `None` if name and limit are not written as usual.
fn shadow_rule(text: &str, (name, now): (&str, &str), limit: &str) -> Option<String> {
    let suffix = limit.replace(|character: char| !character.is_ascii_alphanumeric(), "-");
    let before = ["limit: ", "rate: ", "[", ", ", "- "].into_iter().find(|before| {
        let rest = text.split_once(&format!("{before}{now}")).map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([',', ']', '}', '\n', '\r', ' ']))
    })?;
    let old = format!("{before}{now}");
    let text = text.trim().strip_prefix("- ").unwrap_or(text.trim());
    let named = text.replacen(&format!("name: {name}"), &format!("name: {name}-{suffix}"), 1);
    let text = Some(named).filter(|named| named != text)?.replacen(&old, &format!("{before}{limit}"), 1);
    // Indented as rules usually are, so that it can be added to the end of a file.
    match text.strip_suffix('}') {
        Some(flow) if text.starts_with('{') => Some(format!("  - {flow}, shadow: true}}\n")),
        _ => {
            let lines = text.lines().map(|line| format!("  {line}\n")).collect::<String>();
            Some(format!("  - {}    shadow: true\n", lines.trim_start()))
        }
    }
}

/// Returns the quota of a limit, if it is a rate.
fn quota_of(limit: &LimitRule) -> Option<Quota> {
    match limit.configured.properties().restores {
        Restores::Continuously(quota) => Some(quota),
        _ => None,
    }
}

/// Returns the index of the limit that another one would replace: the requested one, or the only one with its period.
fn replaced(
    name: &str,
    limits: &[LimitRule],
    quotas: &[Quota],
    other: Quota,
    index: Option<u64>,
) -> Result<usize, Problem> {
    let numbered = || {
        let limits = limits.iter().zip(1..).map(|(limit, number)| format!("{number} is {}", limit.written));
        limits.collect::<Vec<_>>().join(", ")
    };
    if let Some(index) = index {
        let index = usize::try_from(index).ok().and_then(|index| index.checked_sub(1));
        let out_of_range = || Problem::bad(format!("`{name}` has no limit of this index: {}", numbered()));
        return index.filter(|index| *index < limits.len()).ok_or_else(out_of_range);
    }
    if limits.len() < 2 {
        return Ok(0);
    }
    let mut similar = (0..).zip(quotas).filter(|(_, quota)| quota.period() == other.period()).map(|(index, _)| index);
    similar.next().filter(|_| similar.next().is_none()).ok_or_else(|| {
        Problem::bad(format!("`{name}` has several limits; choose the one to replace by its index: {}", numbered()))
    })
}

/// Returns how many requests limits that all apply allow in this time, from full buckets.
fn allowed_in(seconds: f64, quotas: &[Quota]) -> u64 {
    let allowed = quotas.iter().map(|quota| quota.burst().saturating_add(scaled(1, quota.rate() * seconds)));
    allowed.min().unwrap_or(u64::MAX)
}

/// Returns in how many seconds limits that all apply allow this many requests, beside their burst; `None` if it is less than
/// each burst.
#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn scaled_time(allowed: u64, quotas: &[Quota]) -> Option<f64> {
    let beside = |quota: &Quota| Some(allowed.checked_sub(quota.burst())? as f64 / quota.rate());
    quotas.iter().filter_map(beside).max_by(f64::total_cmp)
}

fn lowest_rate(quotas: &[Quota]) -> f64 {
    quotas.iter().map(Quota::rate).min_by(f64::total_cmp).unwrap_or(f64::INFINITY)
}

/// Returns a count times a factor.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate; casts of floats saturate"
)]
fn scaled(count: u64, factor: f64) -> u64 {
    (count as f64 * factor).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_rule_has_the_other_limit() {
        let rule = |text: &str| shadow_rule(text, ("login", "5/min"), "10/min");
        let flow = rule("{name: login, by: ip, limit: 5/min}").unwrap();
        assert_eq!(flow, "  - {name: login-10-min, by: ip, limit: 10/min, shadow: true}\n");
        let block = rule("- name: login\n  limit: {rate: 5/min, burst: 9}\n").unwrap();
        assert_eq!(block, "  - name: login-10-min\n    limit: {rate: 10/min, burst: 9}\n    shadow: true\n");
        assert_eq!(rule("{\"name\": \"login\", \"limit\": \"5/min\"}"), None);
        let several = rule("{name: login, limit: [5/s, 5/min, {rate: 5/minute, burst: 9}]}").unwrap();
        assert_eq!(
            several,
            "  - {name: login-10-min, limit: [5/s, 10/min, {rate: 5/minute, burst: 9}], shadow: true}\n"
        );
        let list = rule("- name: login\n  limit:\n    - 5/s\n    - 5/min\n").unwrap();
        assert_eq!(list, "  - name: login-10-min\n    limit:\n      - 5/s\n      - 10/min\n    shadow: true\n");
    }

    #[test]
    fn a_limit_allows_its_burst_and_its_rate() {
        let quota = |text: &str| text.parse::<Quota>().unwrap();
        // 57 of 143 requests in 9.4 s.
        let seconds = scaled_time(57, &[quota("5/s burst 10")]).unwrap();
        let allowed =
            ["5/s burst 10", "10/s burst 20", "5/s burst 1000", "1/s"].map(|text| allowed_in(seconds, &[quota(text)]));
        assert_eq!(allowed, [57, 114, 1_047, 10]);
        assert_eq!((scaled(0, f64::INFINITY), scaled(u64::MAX, f64::MAX)), (0, u64::MAX));
    }

    #[test]
    fn several_limits_allow_what_the_lowest_of_them_allows() {
        let quotas = |texts: [&str; 2]| texts.map(|text| text.parse::<Quota>().unwrap());
        let now = quotas(["5/s burst 10", "60/min burst 40"]);
        // The limit per minute needs 17 seconds for 57 requests, the other one less.
        let seconds = scaled_time(57, &now).unwrap();
        assert_eq!((seconds, allowed_in(seconds, &now)), (17.0, 57));
        assert_eq!(allowed_in(seconds, &quotas(["5/s burst 10", "120/min burst 40"])), 74);
        assert_eq!(allowed_in(seconds, &quotas(["10/s burst 20", "60/min burst 40"])), 57);
        assert_eq!(allowed_in(seconds, &quotas(["1/s burst 10", "60/min burst 40"])), 27);
        assert_eq!(scaled_time(9, &now), None);
    }
}
