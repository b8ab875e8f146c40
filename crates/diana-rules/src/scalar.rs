//! Parses single values, and reports the expected type if they are invalid.

use crate::document::node::{Node, Value};
use crate::map_reader::{all, nearest};
use crate::problem::Problem;
use diana_core::InvalidQuota;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Reads a text, or a number as it is written.
pub(crate) fn text<'a>(node: &'a Node, what: &str, problems: &mut Vec<Problem>) -> Option<&'a str> {
    let text = node.text();
    if text.is_none() {
        problems.push(Problem::new(node.span, format!("{what} is a text, but this is {}", node.value.kind())));
    }
    text
}

/// Parses an integer of at least `least`. Underscores may group its digits.
pub(crate) fn count(node: &Node, what: &str, least: u64, problems: &mut Vec<Problem>) -> Option<u64> {
    within(node, what, least..=diana_core::MAX_PERMITS, problems)
}

/// Parses an integer in `range`. Underscores may group its digits.
pub(crate) fn within(node: &Node, what: &str, range: RangeInclusive<u64>, problems: &mut Vec<Problem>) -> Option<u64> {
    let digits = node.text().map(|text| text.replace('_', ""));
    let number = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number = number.and_then(|digits| digits.parse().ok());
    let number = number.filter(|number| range.contains(number));
    if number.is_none() {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        problems.push(wrong(node, what).expected(expected));
    }
    number
}

/// Parses a number that is not negative.
pub(crate) fn real(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<f64> {
    let number = node.text().and_then(|text| text.parse::<f64>().ok());
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    if number.is_none() {
        problems.push(wrong(node, what).expected("a number such as 3 or 2.5"));
    }
    number
}

/// Parses a duration such as `200ms`.
pub(crate) fn duration(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<Duration> {
    let parsed = node.text().ok_or_else(|| "a time such as 200ms, 10s or 5min".to_owned());
    match parsed.and_then(|text| diana_core::parse_duration(text).map_err(wrong_quota)) {
        Ok(duration) => Some(duration),
        Err(expected) => {
            problems.push(wrong(node, what).expected(expected));
            None
        }
    }
}

/// Formats a duration as in a file: `7500ms`.
pub(crate) fn time(time: Duration) -> String {
    const UNITS: [(u128, &str); 6] = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let nanos = time.as_nanos();
    let (unit, name) = UNITS.iter().find(|(unit, _)| nanos.is_multiple_of(*unit)).unwrap_or(&UNITS[5]);
    format!("{}{name}", nanos / unit)
}

/// Parses a text with `parse`; reports its error.
pub(crate) fn parsed<T>(
    node: &Node,
    what: &str,
    parse: impl Fn(&str) -> Result<T, String>,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let text = text(node, what, problems)?;
    parse(text).map_err(|expected| problems.push(wrong(node, what).expected(expected))).ok()
}

/// Parses `true` or `false`. Accepts a text too, since variables are texts.
pub(crate) fn flag(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<bool> {
    match &node.value {
        Value::Bool(value) => Some(*value),
        Value::Text(text) if text == "true" || text == "false" => Some(text == "true"),
        _ => {
            problems.push(wrong(node, what).expected("true or false"));
            None
        }
    }
}

/// Parses one of several words; returns its index.
pub(crate) fn word(node: &Node, what: &str, words: &[&str], problems: &mut Vec<Problem>) -> Option<usize> {
    let text = node.text().unwrap_or_default();
    let place = words.iter().position(|word| *word == text);
    if place.is_none() {
        let meant = nearest(text, words).map(|meant| format!("did you mean `{meant}`?"));
        problems.push(wrong(node, what).expected(meant.unwrap_or_else(|| format!("expected one of {}", all(words)))));
    }
    place
}

/// Returns the problem with a rate or a duration, without the text itself, which is displayed anyway.
pub(crate) fn wrong_quota(error: InvalidQuota) -> String {
    match error {
        InvalidQuota::Text { problem, .. } => problem,
        other => other.to_string(),
    }
}

pub(crate) fn wrong(node: &Node, what: &str) -> Problem {
    match node.text() {
        Some(text) => Problem::new(node.span, format!("{what} can't be `{text}`")),
        None => Problem::new(node.span, format!("{what} can't be {}", node.value.kind())),
    }
}
