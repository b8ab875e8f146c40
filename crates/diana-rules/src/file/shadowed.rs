//! Rules that no request can reach, since an earlier rule is identical or denies every request.

use crate::algorithm::DynAlgorithm;
use crate::key::KeySpec;
use crate::limit::LimitRule;
use crate::matching::Match;
use crate::rule::{Bandwidth, CostOf, CountByStatus, CountedIn, HeldUntil, Missing, Mode, OverLimit, Overload, Rule};
use diana_core::Cost;
use diana_document::Problem;
use diana_document::Span;
use std::collections::HashMap;
use std::time::Duration;

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
    // Hashed by their text, so that a hundred thousand rules are not compared pairwise. Each text maps to the rules
    // that print the same but may differ, which are very few.
    let mut known: HashMap<String, Vec<(&Rule, RuleContent<'_>)>> = HashMap::new();
    // A call names its rule, so identical rules are allowed.
    let is_for_requests = |rule: &&Rule| rule.matches.call.is_none();
    for rule in rules.iter().filter(enforced).filter(limits).filter(is_for_requests).filter(|rule| is_valid(rule)) {
        let content = RuleContent::of(rule);
        let alike = known.entry(content.text()).or_default();
        if let Some((twin, _)) = alike.iter().find(|(_, earlier)| *earlier == content) {
            let what = format!("rule `{}` has no effect: it is identical to `{}`", rule.name, twin.name);
            problems.push(Problem::new(name_span(rule), what).expected("remove one of the two"));
        } else {
            alike.push((rule, content));
        }
    }
}

/// All fields that decide which requests a rule denies: not its name, response and location.
#[derive(PartialEq)]
struct RuleContent<'a> {
    by: &'a KeySpec,
    matches: &'a Match,
    limits: Vec<&'a DynAlgorithm>,
    adaptive: bool,
    held_until: HeldUntil,
    bandwidth: Option<&'a Bandwidth>,
    load: Option<&'a Overload>,
    count: Option<CountByStatus>,
    cost: (&'a CostOf, Option<u64>, u64),
    allow: &'a [String],
    deny: &'a [String],
    overrides: Vec<(&'a str, Vec<&'a DynAlgorithm>)>,
    wait: Option<Duration>,
    queue: Option<u64>,
    over: &'a OverLimit,
    missing: Missing,
    counted_in: CountedIn,
}

impl<'a> RuleContent<'a> {
    fn of(rule: &'a Rule) -> Self {
        // Destructured in full, so that a new field does not compile until it is handled here.
        let Rule {
            name: _,
            span: _,
            status: _,
            memory: _,
            missing_status: _,
            answer: _,
            mode: _,
            log: _,
            // A rule that only charges another one is not compared.
            charges: _,
            by,
            matches,
            limits,
            adaptive,
            held_until,
            bandwidth,
            load,
            count,
            cost,
            cost_default,
            cost_min,
            allow,
            deny,
            overrides,
            wait,
            queue,
            over,
            missing,
            counted_in,
        } = rule;
        let configured =
            |limits: &'a [LimitRule]| limits.iter().map(|limit| &limit.configured).collect::<Vec<&'a DynAlgorithm>>();
        Self {
            by,
            matches,
            limits: configured(limits),
            adaptive: *adaptive,
            held_until: *held_until,
            bandwidth: bandwidth.as_ref(),
            load: load.as_ref(),
            count: *count,
            cost: (cost, cost_default.map(Cost::get), *cost_min),
            // With the same `by`, equal text means equal keys.
            allow: allow.written(),
            deny: deny.written(),
            overrides: overrides.iter().map(|own| (&*own.written, configured(&own.limits))).collect(),
            wait: *wait,
            queue: *queue,
            over,
            missing: *missing,
            counted_in: *counted_in,
        }
    }

    /// The same fields as text, for hashing.
    fn text(&self) -> String {
        let Self {
            by,
            matches,
            limits,
            adaptive,
            held_until,
            bandwidth,
            load,
            count,
            cost,
            allow,
            deny,
            overrides,
            wait,
            queue,
            over,
            missing,
            counted_in,
        } = self;
        // Uses `Display` for the match, since `Debug` of a registered matcher is arbitrary.
        format!(
            "{matches} by {by} {limits:?} {adaptive} {held_until:?} {bandwidth:?} {load:?} {count:?} {cost:?} {allow:?} \
             {deny:?} {overrides:?} {wait:?} {queue:?} {over:?} {missing:?} {counted_in:?}"
        )
    }
}
