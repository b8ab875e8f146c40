//! What happens to a request over the limit: `wait` and `queue`, `over`, `shadow`, and how a denial is answered and logged
//! (`status`, `answer`, `log`).

use super::option::RuleOption;
use super::{Missing, Rule};
use crate::json_schema::{flag, object, reference, reference_with, word};
use crate::log_level::{LOG, LogLevel};
use crate::response::CustomResponse;
use crate::upstream_url::Upstream;
use diana_core::words::duration;
use diana_core::{Properties, Restores};
use diana_document::map_reader::MapReader;
use diana_document::{Node, Problem, Value, scalar};
use serde_json::json;

/// The fields of `over`, if it is a map: one of them; the second is the word of older files.
const OVER: [&str; 2] = ["reroute", "divert"];
/// What Envoy responds to a request that its rate limit service denies, unless its `rate_limited_status` is set.
const ENVOY_STATUS: u16 = 429;

pub(super) const OPTIONS: &[RuleOption] = &[
    RuleOption {
        check: |rule, fields| {
            if rule.wait.is_some() && !fields.has_limit() {
                fields.report("wait", "`wait` needs a `limit`", "remove `wait`, or add a `limit`");
            }
        },
        ..RuleOption::new(
            "wait",
            |_| {
                let what = "the maximum time that a request over the limit waits before it is denied";
                reference_with("duration", what, &["2s"])
            },
            |node, rule, reader| rule.wait = scalar::duration(node, "`wait`", reader.problems),
        )
    },
    RuleOption {
        check: |rule, fields| {
            if rule.queue.is_none() || rule.wait.is_some() || fields.has(&["wait"]) {
                return;
            }
            let leaks = rule.limits.iter().any(|limit| {
                let Properties { restores, delays, .. } = limit.configured.properties();
                delays && matches!(restores, Restores::Continuously(_))
            });
            if leaks {
                let what = "`queue` needs `wait`: the queue of a leaky bucket is its `burst`";
                fields.report("queue", what, "replace `queue` with `burst`");
            } else {
                fields.report("queue", "`queue` needs `wait`", "add `wait: 2s`");
            }
        },
        ..RuleOption::new(
            "queue",
            |_| reference("count", "the maximum number of waiting requests"),
            |node, rule, reader| rule.queue = scalar::count(node, "`queue`", 1, reader.problems),
        )
    },
    RuleOption::new(
        "over",
        |_| over_schema(),
        |node, rule, reader| {
            rule.over = read_over(node, reader.problems).unwrap_or_default();
        },
    ),
    RuleOption {
        with_charges: true,
        ..RuleOption::new(
            "shadow",
            |_| flag("whether the rule only counts and reports, and denies no request"),
            |node, rule, reader| {
                let is_shadow = scalar::flag(node, "`shadow`", reader.problems) == Some(true);
                rule.mode = if is_shadow { Mode::Shadow } else { Mode::Enforced };
            },
        )
        .without_effect_on_decisions(|rule| rule.mode = Mode::Enforced)
    },
    RuleOption {
        with_charges: true,
        ..RuleOption::new(
            "log",
            |_| word("the level at which its denials are logged; delays are logged one level lower", &LOG),
            |node, rule, reader| rule.log = LogLevel::read(node, reader.problems).unwrap_or(reader.defaults.log),
        )
        .without_effect_on_decisions(|rule| rule.log = LogLevel::default())
    },
    RuleOption::new(
        "status",
        |_| reference("status", "the status of a denied request"),
        |node, rule, reader| {
            rule.status = read_status(node, reader.problems).unwrap_or(reader.defaults.status);
        },
    )
    .without_effect_on_decisions(|rule| rule.status = 0),
    RuleOption::new(
        "answer",
        |_| reference("answer", "the custom response body of a denied request"),
        |node, rule, reader| {
            let answer = CustomResponse::read(node, reader.problems);
            rule.answer = answer.or_else(|| reader.defaults.answer.cloned());
        },
    )
    .without_effect_on_decisions(|rule| rule.answer = None),
];

/// The handling of a request that is over the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverLimit {
    /// The request is denied.
    #[default]
    Deny,
    /// The request is sent to another upstream.
    Reroute(Upstream),
}

/// Whether a rule denies requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The rule denies requests.
    #[default]
    Enforced,
    /// The rule only counts, and reports the requests that it would have denied.
    Shadow,
}

/// Reads the status of a denied request.
pub(crate) fn read_status(node: &Node, problems: &mut Vec<Problem>) -> Option<u16> {
    let digits = node.text().filter(|text| text.len() == 3);
    let status = digits.and_then(|text| text.parse::<u16>().ok()).filter(|status| (400..=599).contains(status));
    if status.is_none() {
        problems
            .push(scalar::invalid(node, "status").expected("expected a status from 400 to 599, such as 429 or 503"));
    }
    status
}

fn read_over(node: &Node, problems: &mut Vec<Problem>) -> Option<OverLimit> {
    if matches!(node.value, Value::Map(_)) {
        let mut fields = MapReader::of(node, "`over`", OVER, problems)?;
        let [new, old] = OVER;
        let word = if fields.peek(old).is_some() { old } else { new };
        if word == old
            && let Some(entry) = fields.take_entry(new)
        {
            let problem = Problem::new(entry.span, format!("`{new}` and `{old}` are the same field"));
            problems.push(problem.expected("remove one of them"));
        }
        let url = fields.require(word, problems);
        let url = url.and_then(|node| Upstream::parse_node(node, &format!("`{word}`"), problems));
        fields.finish(problems);
        return url.map(OverLimit::Reroute);
    }
    match scalar::word(node, "`over`", &["deny", "reroute"], problems)? {
        0 => Some(OverLimit::Deny),
        _ => {
            problems.push(
                Problem::new(node.span, "missing upstream of `reroute`")
                    .expected("expected {reroute: http://127.0.0.1:3001}"),
            );
            None
        }
    }
}

/// Describes what happens to a request over the limit.
pub(crate) fn describe(rule: &Rule) -> String {
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

fn over_schema() -> serde_json::Value {
    let mut reroute =
        object("another upstream for requests over the limit", &OVER, |_| reference("url", "the upstream"));
    reroute["oneOf"] = OVER.iter().map(|word| json!({"required": [word]})).collect();
    json!({
        "description": "the handling of a request over the limit",
        "anyOf": [{"enum": ["deny"]}, {"$ref": "#/$defs/variable"}, reroute],
    })
}
