//! Rules that no request can reach, since an earlier one says the same or refuses everybody first.

use crate::document::node::Span;
use crate::limit::LimitRule;
use crate::problem::Problem;
use crate::rule::{Mode, Rule};
use std::collections::HashMap;

/// Tells rules that can never refuse anybody. (What a single rule says about itself, such as a `when` that never holds, has
/// been told where it was read.)
pub(super) fn check(rules: &[Rule], place: impl Fn(&Rule) -> Span, problems: &mut Vec<Problem>) {
    let enforced = |rule: &&Rule| rule.mode == Mode::Enforced;
    let closed = rules
        .iter()
        .filter(enforced)
        .find(|rule| rule.matches.is_everything() && rule.deny.networks.is_everything() && rule.allow.is_empty());
    if let Some(closed) = closed {
        for rule in rules.iter().filter(|rule| rule.span > closed.span) {
            let what = format!("no request can reach rule `{}`: `{}` denies every address", rule.name, closed.name);
            problems.push(Problem::new(place(rule), what).expected("leave one of the two out"));
        }
        return;
    }
    // Those that look the same stand in one group, so that ten thousand rules are not compared pairwise.
    let mut groups: HashMap<String, Vec<&Rule>> = HashMap::new();
    // Where a limit could not be read, there is nothing to compare.
    let is_read = |rule: &&Rule| {
        !rule.limits.is_empty()
            || rule.adaptive
            || rule.bandwidth.is_some()
            || rule.load.is_some()
            || !rule.deny.is_empty()
    };
    for rule in rules.iter().filter(enforced).filter(is_read) {
        groups.entry(looks(rule)).or_default().push(rule);
    }
    for group in groups.values() {
        for (nth, rule) in group.iter().enumerate() {
            let twin = group[..nth].iter().find(|earlier| is_twin(earlier, rule));
            if let Some(twin) = twin {
                let what = format!("rule `{}` can never refuse anybody: `{}` says the same", rule.name, twin.name);
                problems.push(Problem::new(place(rule), what).expected("leave one of the two out"));
            }
        }
    }
}

/// What twins have in common at first sight.
fn looks(rule: &Rule) -> String {
    let Rule { matches, by, allow, deny, overrides, .. } = rule;
    let limits = rule.limits.iter().map(|limit| &limit.configured).collect::<Vec<_>>();
    let others = overrides.iter().map(|other| &other.written).collect::<Vec<_>>();
    format!("{matches} by {by} {limits:?} {:?} {:?} {others:?}", allow.written(), deny.written())
}

/// Whether two rules refuse the same requests, however they are called, whatever they answer and wherever they stand.
fn is_twin(one: &Rule, other: &Rule) -> bool {
    let bare = |rule: &Rule| Rule {
        name: String::new(),
        span: Span::default(),
        status: 0,
        limits: Vec::new(),
        overrides: Vec::new(),
        ..rule.clone()
    };
    let same = |one: &[LimitRule], other: &[LimitRule]| {
        one.iter().map(|limit| &limit.configured).eq(other.iter().map(|limit| &limit.configured))
    };
    bare(one) == bare(other)
        && same(&one.limits, &other.limits)
        && one.overrides.len() == other.overrides.len()
        && one.overrides.iter().zip(&other.overrides).all(|(a, b)| a.key == b.key && same(&a.limits, &b.limits))
}
