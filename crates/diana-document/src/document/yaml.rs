//! Parses YAML and JSON into the tree.
//!
//! The parser is serde-saphyr, with limits against documents that expand to gigabytes: the maximum number of values
//! grows with the text, but the number that aliases may add does not. serde-saphyr rejects duplicate keys in a map.
//! Numbers are kept as they are written, since `007` may be an account.

use crate::node::{MapEntry, Node, Span, Value};
use crate::problem::Problem;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, Location, Spanned};
use std::fmt;

/// The number of values (texts, numbers, lists and maps) that any document may have, however short it is.
const MIN_VALUES: usize = 250_000;
/// One more value is allowed for each so many bytes: no field of a rule takes less (`by: ip, ` has two), and the tree
/// takes many times the memory of the text.
const BYTES_PER_VALUE: usize = 4;
/// The number of events that aliases may add. A list or a map counts twice.
const MAX_ALIAS_EVENTS: usize = 500_000;

/// Parses `text`.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let values = MIN_VALUES + text.len() / BYTES_PER_VALUE;
    let options = serde_saphyr::options! {
        strict_booleans: true,
        // Each list and each map also has an end event, and a document has a few more events.
        budget: serde_saphyr::budget! { max_nodes: values, max_events: values.saturating_mul(2).saturating_add(8) },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIAS_EVENTS },
    };
    let tree: Option<Spanned<Raw>> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| problem(text, &error))?;
    match tree {
        Some(tree) => Ok(tree.value.into_node(text, tree.defined, tree.referenced)),
        None => Ok(Node { value: Value::Null, span: Span::default() }),
    }
}

/// A value as serde-saphyr returns it.
enum Raw {
    Null,
    Bool(bool),
    Number,
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl Raw {
    /// Converts a value that is defined at one location and used at another, by an alias.
    fn into_node(self, text: &str, defined: Location, used: Location) -> Node {
        let value = match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Number => {
                let Span { start, end } = span(text, defined);
                Value::Number(text.get(start..end).unwrap_or_default().to_owned())
            }
            Self::Text(value) => Value::Text(value),
            Self::List(items) => Value::List(
                items.into_iter().map(|item| item.value.into_node(text, item.defined, item.referenced)).collect(),
            ),
            Self::Map(entries) => {
                let entry = |(key, item): (Spanned<String>, Spanned<Self>)| MapEntry {
                    span: span(text, key.referenced),
                    key: key.value,
                    node: item.value.into_node(text, item.defined, item.referenced),
                };
                Value::Map(entries.into_iter().map(entry).collect())
            }
        };
        Node { value, span: span(text, used) }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(Self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

/// Converts a location to bytes. If the parser has only a line and column, the offset is counted.
fn span(text: &str, location: Location) -> Span {
    let location_span = location.span();
    let in_bytes = location_span.byte_offset().zip(location_span.byte_len());
    let in_bytes = in_bytes.and_then(|(start, length)| {
        let start = usize::try_from(start).ok()?;
        Some(Span { start, end: start + usize::try_from(length).ok()? })
    });
    in_bytes.unwrap_or_else(|| {
        let index = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        let line_start: usize = text.split_inclusive('\n').take(index(location.line())).map(str::len).sum();
        let line = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let before: usize = line.chars().take(index(location.column())).map(char::len_utf8).sum();
        let start = line_start + before;
        let length = text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        Span { start, end: start + length }
    })
}

/// Returns the parser's message, without the location and the snippet, which are shown anyway.
fn problem(text: &str, error: &Error) -> Problem {
    let at = error.location().map_or_else(Span::default, |location| span(text, location));
    if let Some((what, expected)) = too_much(error.without_snippet()) {
        return Problem::new(at, what).expected(expected);
    }
    let message = error.without_snippet().to_string();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let message = message
        .split_once(": ")
        .filter(|(prefix, _)| prefix.starts_with("line "))
        .map_or(message, |(_, message)| message);
    let message = message.split(", set DuplicateKeyPolicy").next().unwrap_or(message);
    let message = message.lines().next().unwrap_or(message);
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let problem = Problem::new(at, message.trim_end_matches('.').to_owned());
    // YAML parses `a ? b : c` as part of a map.
    let before = text.get(..at.start).unwrap_or_default().rsplit('\n').next().unwrap_or_default();
    let line = text.get(at.start - before.len()..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    if EXPRESSIONS.iter().any(|word| line.contains(word)) {
        return problem.expected("put quotes around the expression");
    }
    problem
}

/// The problem that is reported for aliases.
const TOO_MANY_ALIASES: (&str, &str) =
    ("aliases expand to too many values", "use fewer aliases, or write the values out");

/// Returns the limit that was exceeded, if the syntax is valid.
fn too_much(error: &Error) -> Option<(&'static str, &'static str)> {
    match error {
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            Some(("nesting is too deep", "use fewer nested lists and maps"))
        }
        Error::Budget { breach: BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. }, .. } => {
            Some(("too many values", "use a smaller document"))
        }
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => Some(TOO_MANY_ALIASES),
        Error::AliasError { error, .. } => too_much(error.without_snippet()).map(|_| TOO_MANY_ALIASES),
        _ => None,
    }
}

/// Text that precedes an expression.
const EXPRESSIONS: [&str; 3] = ["cel(", "when:", "cost:"];
