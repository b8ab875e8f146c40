//! The syntax of envoyproxy/ratelimit's configuration: a domain, and nested descriptors.
//!
//! Unknown fields and duplicates of a key and value are errors, as in envoyproxy/ratelimit itself.

use crate::MAX_COUNT;
use diana_rules::Problem;
use diana_rules::document::{Node, Span, Value};
use diana_rules::map_reader::MapReader;
use std::collections::BTreeSet;

/// The maximum depth of descriptors.
const MAX_DEPTH: usize = 16;

/// The whole file.
#[derive(Debug, Default)]
pub(super) struct Config {
    pub(super) domain: String,
    pub(super) descriptors: Vec<Descriptor>,
}

impl Config {
    /// Returns whether a descriptor has a limit.
    pub(super) fn has_limits(&self) -> bool {
        fn have_limit(descriptors: &[Descriptor]) -> bool {
            descriptors.iter().any(|descriptor| descriptor.limit.is_some() || have_limit(&descriptor.descriptors))
        }
        have_limit(&self.descriptors)
    }
}

/// One descriptor.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) key: String,
    /// Empty means any value.
    pub(super) value: String,
    pub(super) limit: Option<RateLimit>,
    pub(super) shadow_mode: bool,
    /// Whether all values that match the pattern are counted together.
    pub(super) share_threshold: bool,
    /// Fields without an equivalent in rules.
    pub(super) unsupported: Vec<(&'static str, Span)>,
    pub(super) descriptors: Vec<Descriptor>,
    pub(super) span: Span,
}

/// The limit of a descriptor.
#[derive(Debug)]
pub(super) struct RateLimit {
    pub(super) name: Option<String>,
    /// `None` means unlimited.
    pub(super) rate: Option<(u64, &'static str)>,
    /// The names of the limits that it replaces.
    pub(super) replaces: Vec<String>,
    pub(super) span: Span,
}

/// Parses the file. Problems are added to `problems`.
pub(super) fn read(tree: &Node, problems: &mut Vec<Problem>) -> Config {
    let Some(mut fields) = MapReader::of(tree, "configuration", ["domain", "descriptors"], problems) else {
        return Config::default();
    };
    let domain =
        fields.require("domain", problems).and_then(|node| text(node, "`domain`", problems)).unwrap_or_default();
    let mut remaining = MAX_COUNT;
    let descriptors = fields.take("descriptors").map(|node| descriptors(node, 0, &mut remaining, problems));
    fields.finish(problems);
    Config { domain, descriptors: descriptors.unwrap_or_default() }
}

fn descriptors(node: &Node, depth: usize, remaining: &mut usize, problems: &mut Vec<Problem>) -> Vec<Descriptor> {
    let Value::List(items) = &node.value else {
        problems.push(Problem::new(
            node.span,
            format!("invalid `descriptors`: expected a list, found {}", node.value.kind()),
        ));
        return Vec::new();
    };
    if depth == MAX_DEPTH {
        problems.push(Problem::new(node.span, format!("descriptors are nested deeper than {MAX_DEPTH}")));
        return Vec::new();
    }
    let mut parsed = Vec::new();
    let mut known = BTreeSet::new();
    for item in items {
        if *remaining == 0 {
            problems.push(Problem::new(item.span, format!("more than {MAX_COUNT} descriptors")));
            break;
        }
        *remaining -= 1;
        let Some(descriptor) = descriptor(item, depth, remaining, problems) else { continue };
        if !known.insert((descriptor.key.clone(), descriptor.value.clone())) {
            let what = format!("duplicate descriptor `{}` with this value", descriptor.key);
            problems
                .push(Problem::new(descriptor.span, what).expected("write another value, or merge the descriptors"));
        }
        parsed.push(descriptor);
    }
    parsed
}

const FIELDS: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
    "descriptors",
];

fn descriptor(node: &Node, depth: usize, remaining: &mut usize, problems: &mut Vec<Problem>) -> Option<Descriptor> {
    let mut fields = MapReader::of(node, "descriptor", FIELDS, problems)?;
    let named = fields.require("key", problems);
    let key = named.and_then(|node| text(node, "`key`", problems));
    let value = fields.take("value").and_then(|node| text(node, "`value`", problems)).unwrap_or_default();
    let limit = fields.take("rate_limit").and_then(|node| rate_limit(node, problems));
    let flag = |name: &'static str, fields: &mut MapReader<'_>, problems: &mut Vec<Problem>| {
        let node = fields.take(name)?;
        flag(node, name, problems).then_some((name, node.span))
    };
    let shadow_mode = flag("shadow_mode", &mut fields, problems).is_some();
    let share_threshold = flag("share_threshold", &mut fields, problems).is_some();
    let mut unsupported = Vec::new();
    for name in ["quota_mode", "detailed_metric", "value_to_metric"] {
        unsupported.extend(flag(name, &mut fields, problems));
    }
    unsupported.extend(fields.take("metadata").map(|node| ("metadata", node.span)));
    let inner = fields.take("descriptors").map(|node| descriptors(node, depth + 1, remaining, problems));
    fields.finish(problems);
    Some(Descriptor {
        key: key?,
        value,
        limit,
        shadow_mode,
        share_threshold,
        unsupported,
        descriptors: inner.unwrap_or_default(),
        span: named.map_or(node.span, |node| node.span),
    })
}

/// The units, and how Diana writes them. A month has 30 days and a year 365, in both.
const UNITS: [(&str, &str); 7] = [
    ("second", "s"),
    ("minute", "min"),
    ("hour", "h"),
    ("day", "day"),
    ("week", "week"),
    ("month", "month"),
    ("year", "365day"),
];

fn rate_limit(node: &Node, problems: &mut Vec<Problem>) -> Option<RateLimit> {
    let known = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];
    let mut fields = MapReader::of(node, "`rate_limit`", known, problems)?;
    let name = fields.take("name").and_then(|node| text(node, "`name`", problems));
    let unlimited = fields.take("unlimited").is_some_and(|node| flag(node, "unlimited", problems));
    let unit = fields.take("unit");
    let count = fields.take("requests_per_unit");
    let replaces = fields.take("replaces").map(|node| replaced(node, problems)).unwrap_or_default();
    fields.finish(problems);
    if unlimited {
        if let Some(node) = unit {
            problems.push(Problem::new(node.span, "`unlimited` can't have a `unit`").expected("remove one of them"));
        }
        return Some(RateLimit { name, rate: None, replaces, span: node.span });
    }
    let unit = match unit {
        Some(node) => {
            let written = text(node, "`unit`", problems)?.to_lowercase();
            let parsed = UNITS.iter().find(|(unit, _)| *unit == written).map(|(_, unit)| *unit);
            if parsed.is_none() {
                let problem = Problem::new(node.span, format!("unknown unit `{written}`"));
                problems.push(problem.expected("expected second, minute, hour, day, week, month or year"));
            }
            parsed?
        }
        None => {
            problems.push(
                Problem::new(node.span, "missing `unit` in `rate_limit`")
                    .expected("expected second, minute, hour, day, week, month or year"),
            );
            return None;
        }
    };
    // The default is 0 in envoyproxy/ratelimit, which denies everything.
    let count = match count {
        None => 0,
        Some(node) => match node.text().and_then(|text| text.parse::<u32>().ok()) {
            Some(count) => u64::from(count),
            None => {
                problems.push(
                    Problem::new(node.span, "invalid `requests_per_unit`")
                        .expected("expected a whole number, such as `100`"),
                );
                return None;
            }
        },
    };
    Some(RateLimit { name, rate: Some((count, unit)), replaces, span: node.span })
}

/// Parses `replaces: [{name: other}]`.
fn replaced(node: &Node, problems: &mut Vec<Problem>) -> Vec<String> {
    let Value::List(items) = &node.value else {
        problems
            .push(Problem::new(node.span, "invalid `replaces`").expected("expected a list, such as `[{name: other}]`"));
        return Vec::new();
    };
    let mut names = Vec::new();
    for item in items {
        let Some(mut fields) = MapReader::of(item, "`replaces`", ["name"], problems) else { continue };
        names.extend(fields.require("name", problems).and_then(|node| text(node, "`name`", problems)));
        fields.finish(problems);
    }
    names
}

/// Returns a text, also where YAML parses another type: `value: true` is the text `true`.
fn text(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<String> {
    match &node.value {
        Value::Text(text) | Value::Number(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        other => {
            problems
                .push(Problem::new(node.span, format!("invalid {what}: expected a string, found {}", other.kind())));
            None
        }
    }
}

fn flag(node: &Node, name: &str, problems: &mut Vec<Problem>) -> bool {
    match node.value {
        Value::Bool(value) => value,
        _ => {
            problems.push(Problem::new(
                node.span,
                format!("invalid `{name}`: expected a boolean, found {}", node.value.kind()),
            ));
            false
        }
    }
}
