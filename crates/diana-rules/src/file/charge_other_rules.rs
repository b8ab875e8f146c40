//! Rules that charge another rule: `charges: tokens`.

use crate::rule::Rule;
use diana_document::Problem;
use diana_document::map_reader::nearest;
use diana_document::{MapEntry, Node, Span, Value};
use std::collections::HashMap;

/// Checks that each rule with `charges` names a rule that it can charge, with keys of the same form. Without its own `by`,
/// it has the key of that rule.
pub(super) fn resolve(rules: &mut [Rule], nodes: &HashMap<Span, &Node>, problems: &mut Vec<Problem>) {
    for index in 0..rules.len() {
        let Some(name) = rules[index].charges.clone() else { continue };
        let item = nodes.get(&rules[index].span).copied();
        let span = |field: &str| entry(item, field).map_or(rules[index].span, |entry| entry.node.span);
        let at = span("charges");
        let Some(target) = rules.iter().find(|rule| rule.name == name) else {
            let names = rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>();
            let meant = nearest(&name, &names).map(|meant| format!("did you mean `{meant}`?"));
            let expected = meant.unwrap_or_else(|| "expected the name of a rule with a limit".to_owned());
            problems.push(Problem::new(at, format!("unknown rule `{name}`")).expected(expected));
            continue;
        };
        let is_held = target.limits.iter().any(|limit| limit.configured.properties().is_released());
        if target.limits.is_empty() || is_held || target.adaptive {
            let problem = Problem::new(at, format!("rule `{name}` has no limit that can be charged"));
            problems.push(problem.expected("expected a rule with `limit`, `every` or `total`"));
            continue;
        }
        if entry(item, "by").is_none() {
            rules[index].by = target.by.clone();
        } else if rules[index].by.part_count() != target.by.part_count() {
            let what = format!("rule `{name}` counts by `{}`, which has another number of parts", target.by);
            problems.push(Problem::new(span("by"), what).expected("use a key for each of its parts, or remove `by`"));
        }
    }
}

/// Returns a field of a rule as it is written.
fn entry<'a>(item: Option<&'a Node>, field: &str) -> Option<&'a MapEntry> {
    match &item?.value {
        Value::Map(entries) => entries.iter().find(|entry| entry.key == field),
        _ => None,
    }
}
