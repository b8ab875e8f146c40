//! The parser of a rule: name, `match` and `by` first, then its limits, then all other [options](super::option).

use super::name_and_key::read_name;
use super::option::{Combination, Defaults, Reader, rule_options};
use super::{CountedIn, HeldUntil, Missing, Rule, charges};
use crate::key::KeySpec;
use crate::limit::{LIMITS, LimitRule, LimitStyle, concurrent};
use crate::matching::Match;
use crate::names_in_scope::NamesInScope;
use crate::registry::Registry;
use diana_core::Limit;
use diana_document::map_reader::{MapReader, nearest};
use diana_document::{MapEntry, Node, Problem, Value, scalar};

impl Rule {
    /// The fields of a rule.
    pub(crate) fn fields(registry: &Registry) -> Vec<&'static str> {
        rule_options().map(|option| option.name).chain(LimitRule::fields(registry)).collect()
    }

    /// The fields that limit something; a rule needs at least one of them.
    pub(crate) fn limiting_fields() -> impl Iterator<Item = &'static str> {
        LIMITS.into_iter().chain(rule_options().filter(|option| option.is_limit).map(|option| option.name))
    }

    /// Reads a rule and adds its problems to `problems`; `None` if the name, `by` or `match` is invalid.
    pub(crate) fn read(
        node: &Node,
        scope: &NamesInScope<'_>,
        defaults: &Defaults<'_>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let mut fields = MapReader::of(node, "rule", Self::fields(scope.registry), problems)?;
        let name = fields.require("name", problems).and_then(|node| read_name(node, problems));
        let before = problems.len();
        let matches = match fields.take("match") {
            Some(node) => Match::read(node, scope, problems),
            None => Some(Match::default()),
        };
        // The parameters of an invalid path are unknown.
        let scope = &scope.of_rule(matches.as_ref().filter(|_| problems.len() == before));
        let by = match fields.take("by") {
            Some(node) => KeySpec::read_with(node, scope, problems),
            None => Some(KeySpec::everyone()),
        };
        let is_whole = name.is_some() && by.is_some() && matches.is_some();
        let has_key = by.is_some();
        let mut rule = Self {
            matches: matches.clone().unwrap_or_default(),
            adaptive: adaptive(&mut fields, problems),
            span: node.span,
            // An invalid `by` is replaced with everyone, so that the remaining fields are still checked.
            ..Self::without_options(name.unwrap_or_default(), by.unwrap_or_else(KeySpec::everyone), defaults)
        };
        let nodes = fields.peek("concurrent").into_iter();
        let nodes = nodes.chain(fields.peek("overrides").into_iter().flat_map(concurrent::of_overrides));
        rule.held_until = concurrent::held_until(nodes);
        let (limits, style) = LimitRule::read_with_style(&mut fields, &LimitStyle::default(), scope.registry, problems);
        rule.limits = limits;
        let mut reader = Reader { scope, defaults, style, has_key, problems };
        for option in rule_options() {
            if let Some(node) = fields.take(option.name) {
                (option.read)(node, &mut rule, &mut reader);
            }
        }
        rule.check_combinations(Combination { node, is_whole, problems }, scope.registry);
        rule.check_sharing(scope.registry, problems);
        fields.finish(problems);
        is_whole.then_some(rule)
    }

    /// Reports limits that the shared store does not support, if the rule uses it.
    fn check_sharing(&self, registry: &Registry, problems: &mut Vec<Problem>) {
        if self.counted_in != CountedIn::Shared {
            return;
        }
        for LimitRule { configured, span, .. } in self.all_limits() {
            if let Some(reason) = registry.why_not_shared(&Limit::new(&*self.name, configured.clone())) {
                let problem = Problem::new(*span, format!("the shared store does not support this limit: {reason}"));
                problems.push(problem.expected("use `store: local`, or another algorithm"));
            }
        }
    }

    /// Reports fields that cannot be used together.
    fn check_combinations(&self, mut fields: Combination<'_>, registry: &Registry) {
        let limiting = Self::limiting_fields().collect::<Vec<_>>();
        let is_limit_typo = |entry: &MapEntry| {
            let known = Self::fields(registry);
            !known.contains(&&*entry.key) && nearest(&entry.key, &known).is_some_and(|meant| limiting.contains(&meant))
        };
        // For `limt: 5/s`, only the typo is reported, not the missing limit.
        let has_typo = matches!(&fields.node.value, Value::Map(entries) if entries.iter().any(is_limit_typo));
        let is_empty =
            |name: &&str| fields.entry(name).is_some_and(|entry| entry.node.value == Value::List(Vec::new()));
        let limits = limiting.iter().any(|name| fields.has(&[name]) && !(*name == "deny" && is_empty(name)));
        // A rule that denies requests without a key needs no limit.
        if !limits && self.missing != Missing::Deny && !has_typo {
            let subject = if self.name.is_empty() { "this rule".to_owned() } else { format!("rule `{}`", self.name) };
            let expected = "add `limit: 100/s`, `every`, `total`, `concurrent`, `bandwidth`, `load` or `deny`";
            fields.report("name", format!("{subject} has no limit"), expected);
        }
        if fields.has(&["charges"]) {
            return charges::check_fields(self, &mut fields);
        }
        for option in rule_options() {
            (option.check)(self, &mut fields);
        }
        if self.matches.call.is_some() && self.adaptive {
            let what = "`concurrent: adaptive` is not supported for calls: it needs responses";
            fields.report("concurrent", what, "expected a number");
        }
        if self.matches.call.is_some() && self.held_until == HeldUntil::UpstreamDone {
            let what = "`until: upstream_done` is not supported for calls: they have no upstream";
            fields.report("concurrent", what, "remove `until`");
        }
    }
}

/// Takes `concurrent: adaptive`, and returns `true` if it is set.
fn adaptive(fields: &mut MapReader<'_>, problems: &mut Vec<Problem>) -> bool {
    const WORD: [&str; 1] = ["adaptive"];
    let Some(node) = fields.peek("concurrent") else { return false };
    if node.text().is_none_or(|text| nearest(text, &WORD).is_none()) {
        return false;
    }
    fields.take("concurrent");
    scalar::word(node, "`concurrent`", &WORD, problems).is_some()
}
