//! Rules that no request can reach, since an earlier rule is identical or denies every request.

use crate::key::KeySpec;
use crate::matching::Match;
use crate::rule::{Mode, Rule};
use diana_document::Problem;
use diana_document::Span;
use std::collections::HashMap;

/// Reports rules that can never deny a request. (Problems within a single rule, such as a `when` that is never true,
/// were reported when it was parsed.) A rule for which `is_valid` is false was parsed only in part, so it is not
/// compared.
pub(super) fn check(
    rules: &[Rule],
    is_valid: impl Fn(&Rule) -> bool,
    name_span: impl Fn(&Rule) -> Span,
    problems: &mut Vec<Problem>,
) {
    let enforced = |rule: &&Rule| rule.mode == Mode::Enforced;
    let closed = rules
        .iter()
        .filter(enforced)
        .find(|rule| rule.matches.is_everything() && rule.deny.networks.is_everything() && rule.allow.is_empty());
    if let Some(closed) = closed {
        for rule in rules.iter().filter(|rule| rule.span > closed.span && rule.matches.call.is_none()) {
            let what = format!("rule `{}` never applies: `{}` denies every address", rule.name, closed.name);
            problems.push(Problem::new(name_span(rule), what).expected("remove one of the two"));
        }
        return;
    }
    // Rules that limit nothing are not compared.
    let limits = |rule: &&Rule| {
        !rule.limits.is_empty()
            || rule.adaptive
            || rule.bandwidth.is_some()
            || rule.load.is_some()
            || !rule.deny.is_empty()
    };
    // Hashed by their text, so that a hundred thousand rules are not compared pairwise. Each text maps to the rules that
    // print the same but may differ, which are very few.
    let mut known: HashMap<String, Vec<&Rule>> = HashMap::new();
    // A call names its rule, so identical rules are allowed.
    let is_for_requests = |rule: &&Rule| rule.matches.call.is_none();
    for rule in rules.iter().filter(enforced).filter(limits).filter(is_for_requests).filter(|rule| is_valid(rule)) {
        let decision = rule.decision();
        let alike = known.entry(text(&decision)).or_default();
        if let Some(twin) = alike.iter().find(|earlier| earlier.decision() == decision) {
            let what = format!("rule `{}` has no effect: it is identical to `{}`", rule.name, twin.name);
            problems.push(Problem::new(name_span(rule), what).expected("remove one of the two"));
        } else {
            alike.push(rule);
        }
    }
}

/// Returns what a rule decides as text.
fn text(decision: &Rule) -> String {
    // `Display` of the match and of the key, since `Debug` of a registered matcher is arbitrary.
    let others = Rule { matches: Match::default(), by: KeySpec::everyone(), ..decision.clone() };
    format!("{} by {} {others:?}", decision.matches, decision.by)
}
