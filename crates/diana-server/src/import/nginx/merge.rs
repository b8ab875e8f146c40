//! Merges rules that limit the same requests in the same way, and names each rule after its zone.
//!
//! Rules don't distinguish ports and each has its own counts, so limits that are distinct in nginx may become the same
//! rule twice: two equal zones, or one zone on two ports with different statuses. `diana check` rejects the second,
//! which could never deny anything.

use super::super::rule::Rule;
use super::limit::Use;
use super::notes::Notes;
use super::syntax::Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A rule and the limit that it was made from.
#[derive(Clone, Debug)]
pub(super) struct Made<'a> {
    pub(super) rule: Rule,
    pub(super) limit: &'a Use,
    /// The widest location that has it.
    pub(super) label: &'a str,
    /// The name of its key, if the zone has several kinds of keys.
    pub(super) kind: Option<String>,
    /// The first directive that sets the limit.
    pub(super) said: Place,
    /// The servers and locations that have it.
    pub(super) places: BTreeSet<(usize, &'a str)>,
}

/// Removes rules that duplicate an earlier one, and notes what that changes.
pub(super) fn merged<'a>(made: Vec<Made<'a>>, notes: &mut Notes) -> Vec<Made<'a>> {
    let mut known: HashMap<Rule, usize> = HashMap::new();
    let mut kept: Vec<Made<'a>> = Vec::new();
    for next in made {
        let first = *known.entry(next.rule.content()).or_insert(kept.len());
        let Some(first) = kept.get_mut(first) else {
            kept.push(next);
            continue;
        };
        let directive = next.limit.directive();
        let shown = notes.show(first.said);
        let status = |rule: &Rule| rule.status.unwrap_or(503);
        if status(&first.rule) != status(&next.rule) {
            let what = format!(
                "status {} not carried over: {shown} has the same limit with status {}, and rules don't tell ports apart; one rule is for both",
                status(&next.rule),
                status(&first.rule)
            );
            notes.add(next.said, directive, what);
        } else if first.places == next.places {
            let what = format!("limits the same requests in the same way as {shown}; one rule is for both");
            notes.info(next.said, directive, what);
        }
        if first.limit.zone() != next.limit.zone() && first.places != next.places {
            let what =
                format!("nginx counts it apart from {shown}, and Diana together, since rules don't tell ports apart");
            notes.add(next.said, directive, what);
        }
        for origin in next.rule.origins {
            if !first.rule.origins.contains(&origin) {
                first.rule.origins.push(origin);
            }
        }
        first.places.extend(next.places);
    }
    kept
}

/// Returns the rules, each named after its zone, and after its location if a zone has several.
pub(super) fn named(made: Vec<Made<'_>>, notes: &mut Notes) -> Vec<Rule> {
    let mut in_zone: BTreeMap<&str, BTreeSet<&Use>> = BTreeMap::new();
    for Made { limit, .. } in &made {
        in_zone.entry(limit.zone().unwrap_or_default()).or_default().insert(*limit);
    }
    let name = |made: &Made<'_>, notes: &mut Notes| {
        let Some(zone) = made.limit.zone() else { return format!("rate-{}", made.label) };
        let kind = made.kind.as_ref().map(|kind| format!("-{kind}")).unwrap_or_default();
        if in_zone.get(zone).is_none_or(|limits| limits.len() == 1) {
            return format!("{zone}{kind}");
        }
        let what = format!(
            "zone `{zone}` is used with other parameters elsewhere: nginx counts both together, the rules apart"
        );
        notes.add(made.said, made.limit.directive(), what);
        format!("{zone}-{}{kind}", made.label)
    };
    let named = |made: Made<'_>| Rule { name: name(&made, notes), ..made.rule };
    made.into_iter().map(named).collect()
}
