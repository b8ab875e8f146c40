//! The options of a rule's limit that its overrides inherit.
//!
//! An override with one limit and no algorithm inherits the rule's algorithm and options, in whichever form it is
//! written. Options that belong to the rule's rate are not inherited: the burst, and the number of tokens of a refill.

use super::{LIMITS, LimitRule, parse_limit, parse_limits};
use crate::registry::Registry;
use diana_document::Problem;
use diana_document::map_reader::MapReader;
use diana_document::{Node, Value};
use std::borrow::Cow;

/// The algorithm and options of a rule's single limit.
#[derive(Debug, Default)]
pub(crate) struct LimitStyle<'a> {
    given: Vec<(&'a str, Cow<'a, Node>)>,
}

/// Alternative options: setting one replaces the inherited other.
const INSTEAD: [[&str; 2]; 3] = [["buckets", "precision"], ["delay", "nodelay"], ["opens", "time_zone"]];

impl<'a> LimitStyle<'a> {
    pub(super) fn new(limit: Option<&'a Node>, beside: &[(&'a str, &'a Node)]) -> Self {
        let written = match limit.map(|node| &node.value) {
            // With several limits it is ambiguous which one to inherit from.
            None | Some(Value::List(_)) => return Self::default(),
            Some(Value::Map(entries)) => entries.iter().map(|entry| (&*entry.key, &entry.node)).collect(),
            Some(_) => Vec::new(),
        };
        let others = beside.iter().filter(|(name, _)| !written.iter().any(|(known, _)| known == name));
        let given = written.iter().chain(others).filter(|(name, _)| !["rate", "burst"].contains(name));
        Self { given: given.map(|(name, node)| (*name, of_any_rate(name, node))).collect() }
    }

    /// Returns the options that a limit inherits: none if it names its own algorithm.
    pub(super) fn for_limit(&self, limit: &Node, beside: &[(&str, &Node)]) -> Vec<(&str, &Node)> {
        let in_limit =
            |name: &str| matches!(&limit.value, Value::Map(entries) if entries.iter().any(|entry| entry.key == name));
        let has = |name: &str| in_limit(name) || beside.iter().any(|(known, _)| *known == name);
        if has("algorithm") {
            return Vec::new();
        }
        let is_replaced = |name: &str| {
            let instead = INSTEAD.iter().filter(|pair| pair.contains(&name));
            has(name) || instead.flatten().any(|other| has(other))
        };
        self.given.iter().filter(|(name, _)| !is_replaced(name)).map(|(name, node)| (*name, &**node)).collect()
    }

    /// Parses the limits of an override, which replace the rule's own.
    pub(crate) fn read_override(
        &self,
        node: &Node,
        registry: &Registry,
        problems: &mut Vec<Problem>,
    ) -> Vec<LimitRule> {
        match &node.value {
            Value::List(items) => parse_limits(node, items, registry, problems),
            Value::Map(entries) if entries.iter().any(|entry| LIMITS.contains(&&*entry.key)) => {
                let fields = MapReader::of(node, "override", LimitRule::fields(registry), problems);
                let Some(mut fields) = fields else { return Vec::new() };
                let limits = self.read_fields(&mut fields, registry, problems);
                fields.finish(problems);
                limits
            }
            _ => parse_limit(node, &self.for_limit(node, &[]), registry, problems).into_iter().collect(),
        }
    }

    /// Parses the limits from the fields of an override.
    pub(crate) fn read_fields(
        &self,
        fields: &mut MapReader<'_>,
        registry: &Registry,
        problems: &mut Vec<Problem>,
    ) -> Vec<LimitRule> {
        LimitRule::read_with_style(fields, self, registry, problems).0
    }
}

/// Returns an option without the part that belongs to one rate: the number of tokens of a refill.
fn of_any_rate<'a>(name: &str, node: &'a Node) -> Cow<'a, Node> {
    match &node.value {
        Value::Map(entries) if name == "refill" => {
            let remaining = entries.iter().filter(|entry| entry.key != "tokens").cloned().collect();
            Cow::Owned(Node { value: Value::Map(remaining), span: node.span })
        }
        _ => Cow::Borrowed(node),
    }
}
