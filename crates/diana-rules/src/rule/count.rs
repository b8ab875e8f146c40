//! `count`: a rule that counts by the status of the response.
//!
//! Without `refund`, only responses with one of the statuses are charged: failed logins, scans for missing pages. With
//! `refund: true`, each request is charged, and refunded if its response has one of the statuses.

use super::Rule;
use super::option::{Combination, RuleOption};
use crate::json_schema::{flag, object, one_or_more, requiring};
use diana_core::{Properties, Restores};
use diana_document::map_reader::MapReader;
use diana_document::{Node, Problem, scalar};
use serde_json::json;
use std::fmt;
use std::ops::RangeInclusive;

pub(super) const OPTIONS: &[RuleOption] = &[RuleOption {
    describe: |rule| {
        let count = rule.count?;
        Some(match count.then {
            OnStatus::Charge => format!("only responses with {} are counted", count.statuses),
            OnStatus::Refund => format!("responses with {} are refunded", count.statuses),
        })
    },
    check,
    ..RuleOption::new(
        "count",
        |_| schema(),
        |node, rule, reader| rule.count = CountByStatus::read(node, reader.problems),
    )
}];

/// The fields of `count`.
const FIELDS: [&str; 2] = ["status", "refund"];
/// The statuses of final responses.
const FINAL: RangeInclusive<u16> = 200..=599;
const EXPECTED: &str = "expected a status from 200 to 599 such as 401, a class such as 4xx, or a range such as 500-504";

/// How a rule counts by the status of the response (`count`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CountByStatus {
    /// The statuses that are meant.
    pub statuses: StatusSet,
    /// What happens if the response has one of them.
    pub then: OnStatus,
}

/// What happens if the response has one of the statuses of `count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStatus {
    /// The request is charged then. Before, it is only denied if its cost would exceed the limit.
    #[default]
    Charge,
    /// The request is refunded, which was charged like any other.
    Refund,
}

/// A set of statuses from 200 to 599.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusSet([u64; 7]);

impl StatusSet {
    /// Returns `true` if it has the status.
    pub fn contains(&self, status: u16) -> bool {
        FINAL.contains(&status) && self.0[word(status)] & bit(status) != 0
    }

    fn insert(&mut self, status: u16) {
        self.0[word(status)] |= bit(status);
    }

    /// Returns the statuses as ranges, in ascending order.
    fn ranges(&self) -> Vec<RangeInclusive<u16>> {
        let mut ranges = Vec::<RangeInclusive<u16>>::new();
        for status in FINAL.filter(|status| self.contains(*status)) {
            match ranges.last_mut() {
                // Classes are shown by themselves.
                Some(last) if *last.end() + 1 == status && status % 100 != 0 => *last = *last.start()..=status,
                _ => ranges.push(status..=status),
            }
        }
        ranges
    }
}

fn word(status: u16) -> usize {
    usize::from(status - FINAL.start()) / 64
}

fn bit(status: u16) -> u64 {
    1 << ((status - FINAL.start()) % 64)
}

impl fmt::Display for StatusSet {
    /// Formats it as `401, 403 or 5xx`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.ranges();
        for (index, range) in ranges.iter().enumerate() {
            f.write_str(match index {
                0 => "",
                _ if index + 1 == ranges.len() => " or ",
                _ => ", ",
            })?;
            match (*range.start(), *range.end()) {
                (first, last) if first == last => write!(f, "{first}")?,
                (first, last) if first % 100 == 0 && last % 100 == 99 => write!(f, "{}xx", first / 100)?,
                (first, last) => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl CountByStatus {
    /// Returns `true` if a response with this status is charged, or refunded.
    pub fn is_about(&self, status: u16) -> bool {
        self.statuses.contains(status)
    }

    /// Reads `{status: [401, 4xx], refund: true}`.
    fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`count`", FIELDS, problems)?;
        let statuses = fields.require("status", problems).and_then(|node| statuses(node, problems));
        let refund = fields.take("refund").and_then(|node| scalar::flag(node, "`refund`", problems));
        fields.finish(problems);
        let then = if refund == Some(true) { OnStatus::Refund } else { OnStatus::Charge };
        Some(Self { statuses: statuses?, then })
    }
}

/// Reads statuses; `None` if one is invalid.
fn statuses(node: &Node, problems: &mut Vec<Problem>) -> Option<StatusSet> {
    let before = problems.len();
    let mut all = StatusSet::default();
    for node in scalar::at_least_one(node, "`status` of `count`", problems) {
        let Some(range) = node.text().and_then(range) else {
            problems.push(scalar::invalid(node, "status").expected(EXPECTED));
            continue;
        };
        if range.is_empty() {
            let (first, last) = (range.start(), range.end());
            let problem = Problem::new(node.span, format!("the range `{first}-{last}` is empty"));
            problems.push(problem.expected(format!("expected `{last}-{first}`")));
            continue;
        }
        if range.clone().all(|status| all.contains(status)) {
            let text = node.text().unwrap_or_default();
            problems.push(Problem::new(node.span, format!("`{text}` is listed twice")).expected("remove it"));
        }
        range.for_each(|status| all.insert(status));
    }
    (problems.len() == before).then_some(all)
}

/// Reads `401`, `4xx` or `500-504`. The range may be empty.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    if let Some(class) = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX")) {
        let first = status(&format!("{class}00"))?;
        return Some(first..=first + 99);
    }
    match text.split_once('-') {
        Some((first, last)) => Some(status(first.trim())?..=status(last.trim())?),
        None => status(text).map(|status| status..=status),
    }
}

fn status(text: &str) -> Option<u16> {
    let is_number = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten().filter(|status| FINAL.contains(status))
}

/// Reports fields that cannot be used together with `count`.
fn check(rule: &Rule, fields: &mut Combination<'_>) {
    if !fields.has(&["count"]) {
        return;
    }
    if !fields.has(&["limit", "every", "total"]) {
        fields.report("count", "`count` needs a `limit`", "remove `count`, or add a `limit`");
    }
    if fields.has(&["wait"]) {
        let what = "`wait` cannot be combined with `count`: what is counted is known only after the response";
        fields.report("wait", what, "remove one of the two");
    }
    let any_limit =
        |is_meant: fn(&Properties<'_>) -> bool| rule.all_limits().any(|limit| is_meant(&limit.configured.properties()));
    if fields.has(&["concurrent"]) || any_limit(|limit| matches!(limit.restores, Restores::WhenReleased { .. })) {
        let what = "`concurrent` cannot be combined with `count`: a permit is held until the response is sent";
        let at = if fields.has(&["concurrent"]) { "concurrent" } else { "overrides" };
        fields.report(at, what, "use another rule for `concurrent`");
    }
    if any_limit(|limit| limit.delays) {
        let what = "a leaky bucket cannot be combined with `count`: it delays requests";
        fields.report("count", what, "use another algorithm");
    }
    let is_refunded = rule.count.is_some_and(|count| count.then == OnStatus::Refund);
    if is_refunded && any_limit(|limit| matches!(limit.restores, Restores::AfterInterval(_))) {
        let what = "`every` cannot be combined with `refund: true`: an interval is not refunded";
        fields.report("count", what, "use `limit`, or remove `refund`");
    }
    if rule.matches.call.is_some() {
        fields.report("count", "`count` is not supported for calls: they have no status", "remove `count`");
    }
}

fn schema() -> serde_json::Value {
    let map = object("the responses that are counted", &FIELDS, |field| {
        if field == "refund" {
            return flag("whether each request is charged, and refunded if its response has one of the statuses");
        }
        let status = json!({"anyOf": [
            {"type": "integer", "minimum": 200, "maximum": 599},
            {"type": "string", "pattern": r"^[2-5]([0-9]{2}|xx|XX)$|^[2-5][0-9]{2} *- *[2-5][0-9]{2}$|\$\{"},
        ]});
        one_or_more(status, "statuses, classes or ranges of responses", &["401", "4xx", "500-504"])
    });
    requiring(map, &["status"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[&str]) -> StatusSet {
        let mut all = StatusSet::default();
        texts.iter().flat_map(|text| range(text).unwrap()).for_each(|status| all.insert(status));
        all
    }

    #[test]
    fn a_set_has_its_statuses_and_no_others() {
        for (texts, has, has_not) in [
            (&["401", "403"][..], &[401, 403][..], &[400, 402, 404, 200, 599][..]),
            (&["4xx"], &[400, 463, 464, 499], &[399, 500]),
            (&["500-504", "2XX"], &[500, 504, 200, 299], &[505, 300, 499]),
            (&["599"], &[599], &[598, 600, 199, 100, 0, u16::MAX]),
        ] {
            let set = set(texts);
            assert!(has.iter().all(|status| set.contains(*status)), "{texts:?}");
            assert!(!has_not.iter().any(|status| set.contains(*status)), "{texts:?}");
        }
    }

    #[test]
    fn a_set_is_shown_as_classes_ranges_and_statuses() {
        for (texts, shown) in [
            (&["401"][..], "401"),
            (&["403", "401"], "401 or 403"),
            (&["5xx", "401", "403"], "401, 403 or 5xx"),
            (&["4xx", "5xx"], "4xx or 5xx"),
            (&["500-504"], "500-504"),
            (&["500-550", "551-599"], "5xx"),
            (&["399-401"], "399 or 400-401"),
        ] {
            assert_eq!(set(texts).to_string(), shown);
        }
    }
}
