//! Other limits for single keys: `overrides: {vip-7: 1000/s}`.
//!
//! A key of several parts is written as a list: `overrides: [{key: [vip-7, 10.0.0.1], limit: 1000/s}]`.

use super::Rule;
use super::option::RuleOption;
use crate::key::{KeyBytes, KeySpec};
use crate::limit::{LimitRule, LimitStyle};
use crate::registry::Registry;
use crate::words::some;
use diana_document::map_reader::{MapReader, empty};
use diana_document::{Node, Problem, Span, Value, scalar};
use serde_json::json;

pub(super) const OPTIONS: &[RuleOption] = &[RuleOption {
    describe,
    check: |_, fields| {
        if fields.has(&["overrides"]) && !fields.has_limit() {
            fields.report("overrides", "`overrides` needs a `limit`", "remove `overrides`, or add a `limit`");
        }
    },
    ..RuleOption::new(
        "overrides",
        |_| {
            json!({
                "description": "other limits for single keys",
                "anyOf": [
                    {"type": "object", "additionalProperties": {"$ref": "#/$defs/override"}},
                    {"type": "array", "items": {"$ref": "#/$defs/override_of_key"}},
                ],
                "examples": [{"vip-7": "1000/s"}],
            })
        },
        |node, rule, reader| {
            if reader.has_key {
                let registry = reader.scope.registry;
                rule.overrides = Override::read(node, &rule.by, &reader.style, registry, reader.problems);
            }
        },
    )
}];

fn describe(rule: &Rule) -> Option<String> {
    let each = rule.overrides.iter().map(|replacement| {
        // An IPv6 address is counted by its /64 network.
        let key = rule
            .by
            .network_of(&replacement.written)
            .map_or_else(|| replacement.written.clone(), |network| network.to_string());
        format!("{key} has {}", LimitRule::describe_all(&replacement.limits))
    });
    (!rule.overrides.is_empty()).then(|| some(each, "; "))
}

/// Other limits for one key, in place of the rule's own.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Override {
    /// The key.
    pub key: KeyBytes,
    /// The key as written in the file.
    pub written: String,
    /// The limits of this key.
    pub limits: Vec<LimitRule>,
}

impl Override {
    /// The fields of an override in a list.
    pub(crate) fn fields(registry: &Registry) -> Vec<&'static str> {
        std::iter::once("key").chain(LimitRule::fields(registry)).collect()
    }

    /// Reads all overrides, for a rule that counts by `by`. They inherit the style of the rule's own limit.
    fn read(
        node: &Node,
        by: &KeySpec,
        style: &LimitStyle<'_>,
        registry: &Registry,
        problems: &mut Vec<Problem>,
    ) -> Vec<Self> {
        let mut overrides: Vec<(Self, Span)> = Vec::new();
        match &node.value {
            Value::Map(entries) => {
                entries.iter().for_each(|entry| empty(entry, problems));
                for entry in entries.iter().filter(|entry| entry.node.value != Value::Null) {
                    let limits = style.read_override(&entry.node, registry, problems);
                    let replacement = Self::new(by, &[(&entry.key, entry.span)], entry.span, limits, problems);
                    overrides.extend(replacement.map(|replacement| (replacement, entry.span)));
                }
            }
            Value::List(items) => {
                for item in items {
                    let known = Self::fields(registry);
                    let Some(mut fields) = MapReader::of(item, "override", known, problems) else { continue };
                    let key = fields.require("key", problems);
                    let before = problems.len();
                    let limits = style.read_fields(&mut fields, registry, problems);
                    let has_no_limit = limits.is_empty() && problems.len() == before;
                    fields.finish(problems);
                    let Some(key) = key else { continue };
                    if has_no_limit {
                        let problem = Problem::new(key.span, "this override has no limit");
                        problems.push(problem.expected("expected a limit, such as {key: vip-7, limit: 1000/s}"));
                    }
                    let parts = match &key.value {
                        Value::List(parts) => parts.iter().collect::<Vec<_>>(),
                        _ => vec![key],
                    };
                    let parts = parts
                        .into_iter()
                        .map(|part| scalar::text(part, "key part", problems).map(|text| (text, part.span)));
                    let Some(parts) = parts.collect::<Option<Vec<_>>>() else { continue };
                    let replacement = Self::new(by, &parts, key.span, limits, problems);
                    overrides.extend(replacement.map(|replacement| (replacement, key.span)));
                }
            }
            other => {
                let problem =
                    Problem::new(node.span, format!("invalid `overrides`: expected a map, found {}", other.kind()));
                problems.push(problem.expected("expected limits by key, such as {vip-7: 1000/s}"));
            }
        }
        let mut known_keys = hashbrown::HashSet::new();
        overrides.retain(|(replacement, span)| {
            let is_new = known_keys.insert(replacement.key.clone());
            if !is_new {
                let what = match by.network_of(&replacement.written) {
                    Some(network) => {
                        format!("duplicate override: `{}` is counted with all of {network}", replacement.written)
                    }
                    None => format!("duplicate override for `{}`", replacement.written),
                };
                problems.push(Problem::new(*span, what).expected("expected one override per key"));
            }
            is_new
        });
        overrides.into_iter().map(|(replacement, _)| replacement).collect()
    }

    /// Creates the override of a key, with the location of each part of the key.
    fn new(
        by: &KeySpec,
        parts: &[(&str, Span)],
        span: Span,
        limits: Vec<LimitRule>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let located = parts;
        let parts = &*parts.iter().map(|(part, _)| *part).collect::<Vec<_>>();
        let written = parts.join(", ");
        if by.is_everyone() || by.is_each_request() {
            let problem =
                Problem::new(span, format!("override `{written}` cannot apply: a rule by `{by}` has no keys"));
            problems.push(problem.expected("use another `by`, such as `account`"));
            return None;
        }
        if parts.len() != by.part_count() {
            let what =
                format!("invalid key `{written}`: expected {} parts ({by}), found {}", by.part_count(), parts.len());
            problems.push(
                Problem::new(span, what).expected("expected a list, such as overrides: [{key: [a, b], limit: 100/s}]"),
            );
            return None;
        }
        if let Err((index, what, expected)) = by.check_key(parts) {
            let at = located.get(index).map_or(span, |(_, span)| *span);
            problems.push(Problem::new(at, what).expected(expected));
            return None;
        }
        if limits.is_empty() {
            return None;
        }
        Some(Self { key: by.key_of(parts), written, limits })
    }
}
