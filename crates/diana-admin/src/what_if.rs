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

use super::AdminState;
use super::parameters::Parameters;
use super::response::{HandlerResult, Problem, json};
use super::top;
use axum::extract::State;
use axum::http::StatusCode;
use diana::{LeakyBucket, Quota, TokenBucket};
use diana_rules::limit::LimitRule;
use diana_rules::rule::Mode;
use diana_rules::ruleset::{KeyOutcome, TopKey, Window};
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
    /// The limit that is asked about, and the current one.
    limit: &'a str,
    now: &'a str,
    window: &'static str,
    /// The denials of the keys below, and how many of their requests the other limit would have denied.
    denied: u64,
    would_deny: u64,
    keys: Vec<Key>,
    note: &'static str,
    /// The rule with the other limit as a shadow rule, which counts exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow_rule: Option<String>,
}

#[derive(Debug, Serialize)]
struct Key {
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
    parameters.only(&["rule", "limit", "window"])?;
    let (name, limit) = (parameters.required("rule")?, parameters.required("limit")?);
    let window = top::window(&parameters)?;
    let rules = state.engine.rules();
    let unknown = || Problem::new(StatusCode::NOT_FOUND, format!("unknown rule `{name}`"));
    let rule = rules.named(name).ok_or_else(unknown)?;
    let other =
        limit.parse::<Quota>().map_err(|invalid| Problem::bad(format!("invalid limit `{limit}`: {invalid}")))?;
    let [current] = &*rule.rule().limits else {
        return Err(Problem::bad(format!("`{name}` has no limit, or several: expected a rule with one rate")));
    };
    let quota = quota_of(current).ok_or_else(|| {
        let what = format!("the limit of `{name}` is a {}", current.algorithm);
        Problem::bad(format!("{what}: expected a token or leaky bucket, whose rate decides"))
    })?;
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
    let own = |counts: &Counts| rule.has_override(&counts.top.key);
    let seconds = if window == Window::Hour { 3_600.0 } else { 60.0 };
    let is_lower = other.rate() < quota.rate() || other.rate() <= quota.rate() && other.burst() < quota.burst();
    let keys = counts.into_values().filter(|counts| !own(counts)).map(|counts| {
        let Counts { top, denied, allowed } = counts;
        let requests = allowed + denied;
        let allowed = match denied {
            // A key that is not limited is not limited by a higher rate either.
            0 if !is_lower => requests,
            0 => allowed_in(seconds, other),
            _ if allowed < quota.burst() => scaled(allowed, other.rate() / quota.rate()),
            _ => allowed_in(scaled_time(allowed - quota.burst(), quota), other),
        };
        Key {
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
    let old = [format!("limit: {now}"), format!("rate: {now}")].into_iter().find(|old| text.contains(old.as_str()))?;
    let field = old.split(':').next()?;
    let text = text.trim().strip_prefix("- ").unwrap_or(text.trim());
    let named = text.replacen(&format!("name: {name}"), &format!("name: {name}-{suffix}"), 1);
    let text = Some(named).filter(|named| named != text)?.replacen(&old, &format!("{field}: {limit}"), 1);
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
    let bucket = limit.configured.algorithm::<TokenBucket>().map(TokenBucket::quota);
    bucket.or_else(|| limit.configured.algorithm::<LeakyBucket>().map(LeakyBucket::quota))
}

/// Returns how many requests a limit allows in this time, from a full bucket.
fn allowed_in(seconds: f64, quota: Quota) -> u64 {
    quota.burst().saturating_add(scaled(1, quota.rate() * seconds))
}

/// Returns in how many seconds a limit allows this many requests, beside its burst.
#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn scaled_time(allowed: u64, quota: Quota) -> f64 {
    allowed as f64 / quota.rate()
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
    }

    #[test]
    fn a_limit_allows_its_burst_and_its_rate() {
        let quota = |text: &str| text.parse::<Quota>().unwrap();
        // 57 of 143 requests in 9.4 s.
        let seconds = scaled_time(57 - 10, quota("5/s burst 10"));
        let allowed =
            ["5/s burst 10", "10/s burst 20", "5/s burst 1000", "1/s"].map(|text| allowed_in(seconds, quota(text)));
        assert_eq!(allowed, [57, 114, 1_047, 10]);
        assert_eq!((scaled(0, f64::INFINITY), scaled(u64::MAX, f64::MAX)), (0, u64::MAX));
    }
}
