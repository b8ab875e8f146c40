//! Parses single values, and reports the expected type if they are invalid.
//!
//! `what` is the name of the value in problems: a field in backticks, `` `timeout` ``, or a noun, `limit`.

use crate::map_reader::{all, nearest};
use crate::node::{Node, Value};
use crate::problem::Problem;
use crate::secret::Secret;
use diana_core::InvalidQuota;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Reads a text, or a number as it is written.
pub fn text<'a>(node: &'a Node, what: &str, problems: &mut Vec<Problem>) -> Option<&'a str> {
    let text = node.text();
    if text.is_none() {
        problems
            .push(Problem::new(node.span, format!("invalid {what}: expected a string, found {}", node.value.kind())));
    }
    text
}

/// Parses an integer of at least `min`. Underscores may group its digits.
pub fn count(node: &Node, what: &str, min: u64, problems: &mut Vec<Problem>) -> Option<u64> {
    within(node, what, min..=diana_core::MAX_PERMITS, problems)
}

/// Parses an integer in `range`. Underscores may group its digits.
pub fn within(node: &Node, what: &str, range: RangeInclusive<u64>, problems: &mut Vec<Problem>) -> Option<u64> {
    let digits = node.text().map(|text| text.replace('_', ""));
    let number = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number = number.and_then(|digits| digits.parse().ok());
    let number = number.filter(|number| range.contains(number));
    if number.is_none() {
        let expected = format!("expected a whole number from {} to {}", range.start(), range.end());
        problems.push(invalid(node, what).expected(expected));
    }
    number
}

/// Parses a number that is not negative.
pub fn real(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<f64> {
    let number = node.text().and_then(|text| text.parse::<f64>().ok());
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    if number.is_none() {
        problems.push(invalid(node, what).expected("expected a number such as 3 or 2.5"));
    }
    number
}

/// Parses a duration such as `200ms`.
pub fn duration(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<Duration> {
    let parsed = node.text().ok_or_else(|| "expected a time such as 200ms, 10s or 5min".to_owned());
    match parsed.and_then(|text| diana_core::parse_duration(text).map_err(quota_problem)) {
        Ok(duration) => Some(duration),
        Err(expected) => {
            problems.push(invalid(node, what).expected(expected));
            None
        }
    }
}

/// Parses a duration that is not 0.
pub fn positive_duration(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<Duration> {
    let time = duration(node, what, problems)?;
    if time.is_zero() {
        problems.push(
            Problem::new(node.span, format!("{what} must be greater than 0")).expected("expected a time such as 20ms"),
        );
        return None;
    }
    Some(time)
}

/// Formats a duration as in a file: `7500ms`.
pub fn time(time: Duration) -> String {
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

/// Parses a text with `parse`; reports its error as what was expected.
pub fn parsed<T, E: fmt::Display>(
    node: &Node,
    what: &str,
    parse: impl Fn(&str) -> Result<T, E>,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let text = text(node, what, problems)?;
    parse(text).map_err(|expected| problems.push(invalid(node, what).expected(expected.to_string()))).ok()
}

/// Parses `true` or `false`. Accepts a text too, since variables are texts.
pub fn flag(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<bool> {
    match &node.value {
        Value::Bool(value) => Some(*value),
        Value::Text(text) if text == "true" || text == "false" => Some(text == "true"),
        _ => {
            problems.push(invalid(node, what).expected("expected true or false"));
            None
        }
    }
}

/// Parses one of several words; returns its index.
pub fn word(node: &Node, what: &str, words: &[&str], problems: &mut Vec<Problem>) -> Option<usize> {
    let text = node.text().unwrap_or_default();
    let index = words.iter().position(|word| *word == text);
    if index.is_none() {
        let meant = nearest(text, words).map(|meant| format!("did you mean `{meant}`?"));
        problems.push(invalid(node, what).expected(meant.unwrap_or_else(|| format!("expected one of {}", all(words)))));
    }
    index
}

/// Parses a bearer token, and removes the trailing newline of a token file. It is never shown.
pub fn token(node: &Node, problems: &mut Vec<Problem>) -> Option<Secret> {
    let token = text(node, "`token`", problems)?.trim();
    if token.is_empty() || token.contains(char::is_control) {
        let problem = Problem::new(node.span, "invalid `token`: it cannot be sent in a header");
        problems.push(problem.expected("expected a text on one line"));
        return None;
    }
    Some(Secret::new(token))
}

/// Parses the addresses of `listen`: one, or a list of at least one.
pub fn listen(node: &Node, problems: &mut Vec<Problem>) -> Vec<SocketAddr> {
    let read = |text: &str| {
        text.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:8080 or [::]:8080".to_owned())
    };
    let nodes = at_least_one(node, "`listen`", problems).into_iter();
    nodes.filter_map(|node| parsed(node, "`listen`", read, problems)).collect()
}

/// Returns the values of a list, or the single value. Reports an empty list.
pub fn at_least_one<'a>(node: &'a Node, what: &str, problems: &mut Vec<Problem>) -> Vec<&'a Node> {
    let nodes = one_or_more(node);
    if nodes.is_empty() {
        problems.push(Problem::new(node.span, format!("{what} is empty")).expected("expected at least one"));
    }
    nodes
}

/// Returns the values of a list, or the single value.
pub fn one_or_more(node: &Node) -> Vec<&Node> {
    match &node.value {
        Value::List(items) => items.iter().collect(),
        _ => vec![node],
    }
}

/// Returns the problem with a rate or a duration, without the text itself, which is displayed anyway.
pub fn quota_problem(error: InvalidQuota) -> String {
    match error {
        InvalidQuota::Text { problem, .. } => problem,
        other => other.to_string(),
    }
}

/// Returns the problem of an invalid value. `what` is the field in backticks, or a noun such as `limit`.
pub fn invalid(node: &Node, what: &str) -> Problem {
    match node.text() {
        Some(text) if what.starts_with('`') => Problem::new(node.span, format!("invalid value `{text}` for {what}")),
        Some(text) => Problem::new(node.span, format!("invalid {what} `{text}`")),
        None => Problem::new(node.span, format!("invalid {what}: found {}", node.value.kind())),
    }
}
