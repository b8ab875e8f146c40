//! Merges rules that limit the same requests in the same way, and names each rule after its zone.
//!
//! Rules don't distinguish ports and each has its own counts, so limits that are distinct in nginx may become the same
//! rule twice: two equal zones, or one zone on two ports with different statuses. `diana check` rejects the second,
//! which could never deny anything.

use super::limit_directives::Use;
use super::notes::Notes;
use super::syntax::Position;
use crate::rule_file::Rule;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A rule and the limit that it was converted from.
#[derive(Clone, Debug)]
pub(super) struct ConvertedRule<'a> {
    pub(super) rule: Rule,
    pub(super) limit: &'a Use,
    /// The widest location that has it.
    pub(super) label: &'a str,
    /// The name of its key, if the zone has several kinds of keys.
    pub(super) kind: Option<String>,
    /// The first directive that sets the limit.
    pub(super) position: Position,
    /// The servers and locations that have it.
    pub(super) locations: BTreeSet<(usize, &'a str)>,
}

/// Removes rules that duplicate an earlier one, and notes what that changes.
pub(super) fn merged<'a>(rules: Vec<ConvertedRule<'a>>, notes: &mut Notes) -> Vec<ConvertedRule<'a>> {
    let mut known: HashMap<Rule, usize> = HashMap::new();
    let mut merged_rules: Vec<ConvertedRule<'a>> = Vec::new();
    for next in rules {
        let first = *known.entry(next.rule.content()).or_insert(merged_rules.len());
        let Some(first) = merged_rules.get_mut(first) else {
            merged_rules.push(next);
            continue;
        };
        let directive = next.limit.directive();
        let first_position = notes.show(first.position);
        let status = |rule: &Rule| rule.status.unwrap_or(503);
        if status(&first.rule) != status(&next.rule) {
            let what = format!(
                "status {} not converted: {first_position} has the same limit with status {}, and rules don't distinguish ports; one rule covers both",
                status(&next.rule),
                status(&first.rule)
            );
            notes.add(next.position, directive, what);
        } else if first.locations == next.locations {
            let what = format!("same limit for the same requests as {first_position}; one rule covers both");
            notes.info(next.position, directive, what);
        }
        if first.limit.zone() != next.limit.zone() && first.locations != next.locations {
            let what = format!(
                "nginx counts it separately from {first_position}, but Diana together, since rules don't distinguish ports"
            );
            notes.add(next.position, directive, what);
        }
        for origin in next.rule.origins {
            if !first.rule.origins.contains(&origin) {
                first.rule.origins.push(origin);
            }
        }
        first.locations.extend(next.locations);
    }
    merged_rules
}

/// Returns the rules, each named after its zone, and after its location if a zone has several.
pub(super) fn named(rules: Vec<ConvertedRule<'_>>, notes: &mut Notes) -> Vec<Rule> {
    let mut in_zone: BTreeMap<&str, BTreeSet<&Use>> = BTreeMap::new();
    for ConvertedRule { limit, .. } in &rules {
        in_zone.entry(limit.zone().unwrap_or_default()).or_default().insert(*limit);
    }
    let name = |converted: &ConvertedRule<'_>, notes: &mut Notes| {
        let Some(zone) = converted.limit.zone() else { return format!("rate-{}", converted.label) };
        let kind = converted.kind.as_ref().map(|kind| format!("-{kind}")).unwrap_or_default();
        if in_zone.get(zone).is_none_or(|limits| limits.len() == 1) {
            return format!("{zone}{kind}");
        }
        if let Use::Lua(limit) = converted.limit {
            // A dictionary has the counts of many keys.
            let is_same = |other: &&Use| matches!(other, Use::Lua(other) if other.key == limit.key);
            if in_zone.get(zone).is_some_and(|limits| limits.iter().filter(|other| is_same(other)).count() > 1) {
                let what = format!(
                    "the dictionary `{zone}` has other limits with this key: they share their counts, the rules count separately"
                );
                notes.add(converted.position, converted.limit.directive(), what);
            }
            let key = converted.rule.by.first().map_or("all", String::as_str);
            return format!("{zone}-{key}");
        }
        let what = format!(
            "zone `{zone}` is also used with other parameters: nginx counts both together, the rules count them separately"
        );
        notes.add(converted.position, converted.limit.directive(), what);
        format!("{zone}-{}{kind}", converted.label)
    };
    let named = |converted: ConvertedRule<'_>| Rule { name: name(&converted, notes), ..converted.rule };
    rules.into_iter().map(named).collect()
}
