//! The condition on the descriptor of a request from Envoy.
//!
//! A map, `descriptor: {plan: free, api_key: }`, is a descriptor that has these entries, and maybe others; a list,
//! `descriptor: [{plan: free}, api_key]`, one with exactly these entries in this order, as the configuration of Envoy's
//! rate limit service means it. An entry without a value may have any; `{is: 'b*', not: [b1]}` has any of some values but not of
//! others.

use super::either;
use super::glob::Glob;
use super::parse::each;
use crate::attributes::DescriptorEntry;
use diana_document::Problem;
use diana_document::map_reader::MapReader;
use diana_document::{Node, Value};
use std::fmt;

/// The entries that a descriptor must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorMatch {
    /// These, and maybe others.
    Has(Vec<EntryMatch>),
    /// Exactly these, in this order.
    Exactly(Vec<EntryMatch>),
}

/// An entry of a descriptor: its key, and its possible values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryMatch {
    key: Box<str>,
    /// Empty if any value matches.
    values: Vec<Glob>,
    /// The values that do not match.
    not: Vec<Glob>,
}

/// The fields of a value, if it is a map.
pub(crate) const VALUES: [&str; 2] = ["is", "not"];
const EXPECTED: &str = "expected entries by key, such as {plan: free, api_key: }, or a list of all entries, such as [{plan: free}, api_key]";

impl DescriptorMatch {
    /// Parses `descriptor`. Reports errors in `problems`.
    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        match &node.value {
            Value::Map(entries) if !entries.is_empty() => {
                let entries = entries.iter().map(|entry| EntryMatch::read(&entry.key, &entry.node, problems));
                Some(Self::Has(entries.collect()))
            }
            Value::List(items) if !items.is_empty() => {
                let entries = items.iter().filter_map(|item| EntryMatch::of_item(item, problems));
                Some(Self::Exactly(entries.collect()))
            }
            Value::Map(_) | Value::List(_) => {
                problems.push(Problem::new(node.span, "`descriptor` is empty").expected(EXPECTED));
                None
            }
            other => {
                let what = format!("invalid `descriptor`: expected a map or a list, found {}", other.kind());
                problems.push(Problem::new(node.span, what).expected(EXPECTED));
                None
            }
        }
    }

    /// Returns `true` if a descriptor with these entries matches.
    pub(super) fn matches(&self, entries: &[DescriptorEntry]) -> bool {
        match self {
            Self::Has(expected) => expected.iter().all(|expected| entries.iter().any(|entry| expected.matches(entry))),
            Self::Exactly(expected) => {
                let mut pairs = expected.iter().zip(entries);
                expected.len() == entries.len() && pairs.all(|(expected, entry)| expected.matches(entry))
            }
        }
    }

    /// Returns the key and the values of an entry that every matching descriptor has, if the values can be looked up.
    pub(super) fn lookup(&self) -> Option<(&str, impl Iterator<Item = &str>)> {
        let (Self::Has(expected) | Self::Exactly(expected)) = self;
        let is_literal = |entry: &&EntryMatch| {
            !entry.values.is_empty() && entry.values.iter().all(|value| value.literal().is_some())
        };
        let entry = expected.iter().find(is_literal)?;
        Some((&entry.key, entry.values.iter().filter_map(Glob::literal)))
    }
}

impl EntryMatch {
    fn read(key: &str, node: &Node, problems: &mut Vec<Problem>) -> Self {
        let what = format!("entry `{key}`");
        let globs = |node: &Node, problems: &mut Vec<Problem>| {
            each(node, &what, problems, |text| Ok::<_, (String, String)>(Glob::new(text)))
        };
        let (mut values, mut not) = (Vec::new(), Vec::new());
        match node.value {
            Value::Null => {}
            Value::Map(_) => {
                if let Some(mut fields) = MapReader::of(node, "entry", VALUES, problems) {
                    values = fields.take("is").map(|node| globs(node, problems)).unwrap_or_default();
                    not = fields.take("not").map(|node| globs(node, problems)).unwrap_or_default();
                    fields.finish(problems);
                }
            }
            _ => values = globs(node, problems),
        }
        Self { key: key.into(), values, not }
    }

    /// Parses an item of a list: a key, or a key with its value.
    fn of_item(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        match (&node.value, node.text()) {
            (_, Some(key)) => Some(Self { key: key.into(), values: Vec::new(), not: Vec::new() }),
            (Value::Map(entries), _) if entries.len() == 1 => {
                entries.first().map(|entry| Self::read(&entry.key, &entry.node, problems))
            }
            _ => {
                problems.push(
                    Problem::new(node.span, "invalid entry of `descriptor`")
                        .expected("expected a key, such as api_key, or a key with its value, such as {plan: free}"),
                );
                None
            }
        }
    }

    fn matches(&self, entry: &DescriptorEntry) -> bool {
        let is_in = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(&entry.value));
        *self.key == *entry.key && (self.values.is_empty() || is_in(&self.values)) && !is_in(&self.not)
    }
}

impl fmt::Display for DescriptorMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (expected, exactly) = match self {
            Self::Has(expected) => (expected, ""),
            Self::Exactly(expected) => (expected, "exactly "),
        };
        let entries = expected.iter().map(|entry| match (&*entry.values, &*entry.not) {
            ([], []) => entry.key.to_string(),
            ([], not) => format!("{} is not {}", entry.key, either(not)),
            (values, []) => format!("{} is {}", entry.key, either(values)),
            (values, not) => format!("{} is {} but not {}", entry.key, either(values), either(not)),
        });
        write!(f, "{exactly}{}", entries.collect::<Vec<_>>().join(", "))
    }
}
