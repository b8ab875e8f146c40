//! The options of a rule, each in one place: its name, how it is read, its schema for editors, its words in `diana check`,
//! the fields that it cannot be combined with, and whether it decides which requests are denied.
//!
//! An option is an entry of `OPTIONS` in the file of its subject, and a field of [`Rule`]. The limits are not options: their
//! fields depend on the registered algorithms ([`crate::limit`]).

use super::{
    Rule, allow_deny_list, bandwidth, charges, cost, count, max_load, missing, name_and_key, over_limit, overrides,
    storage,
};
use crate::limit::{LimitRule, LimitStyle};
use crate::log_level::LogLevel;
use crate::names_in_scope::NamesInScope;
use crate::registry::Registry;
use crate::response::CustomResponse;
use diana_document::{MapEntry, Node, Problem, Value};
use std::sync::Arc;

/// The options by subject, in the order in which they are read and described.
const SUBJECTS: [&[RuleOption]; 11] = [
    name_and_key::OPTIONS,
    bandwidth::OPTIONS,
    max_load::OPTIONS,
    charges::OPTIONS,
    count::OPTIONS,
    cost::OPTIONS,
    allow_deny_list::OPTIONS,
    overrides::OPTIONS,
    over_limit::OPTIONS,
    missing::OPTIONS,
    storage::OPTIONS,
];

/// Reads the value of an option into a rule.
type Read = fn(&Node, &mut Rule, &mut Reader<'_, '_>);
/// Returns the JSON Schema of an option, with its description.
type Schema = fn(&Registry) -> serde_json::Value;

/// One option of a rule.
pub(crate) struct RuleOption {
    pub(crate) name: &'static str,
    pub(crate) schema: Schema,
    pub(super) read: Read,
    /// Describes its value; `None` if it is the default.
    pub(crate) describe: fn(&Rule) -> Option<String>,
    /// Reports what it cannot be combined with.
    pub(super) check: fn(&Rule, &mut Combination<'_>),
    /// Whether it limits something; a rule needs at least one such field.
    pub(crate) is_limit: bool,
    /// Whether a rule that only charges another one may have it.
    pub(super) with_charges: bool,
    /// Resets its fields, if it does not decide which requests are denied: for the comparison of rules.
    pub(super) reset: fn(&mut Rule),
}

impl RuleOption {
    /// Creates an option that decides which requests are denied, without a description, that can be combined with all
    /// others but `charges`.
    pub(super) const fn new(name: &'static str, schema: Schema, read: Read) -> Self {
        Self {
            name,
            schema,
            read,
            describe: |_| None,
            check: |_, _| {},
            is_limit: false,
            with_charges: false,
            reset: |_| {},
        }
    }

    /// Makes it an option that does not decide which requests are denied.
    pub(super) const fn without_effect_on_decisions(self, reset: fn(&mut Rule)) -> Self {
        Self { reset, ..self }
    }
}

/// All options.
pub(crate) fn rule_options() -> impl Iterator<Item = &'static RuleOption> {
    SUBJECTS.into_iter().flatten()
}

/// What reading the options of one rule needs.
pub(super) struct Reader<'a, 's> {
    /// The names that expressions may use, with the parameters of the rule's paths.
    pub(super) scope: &'a NamesInScope<'s>,
    pub(super) defaults: &'a Defaults<'a>,
    /// The options of the rule's own limit, for its overrides to inherit.
    pub(super) style: LimitStyle<'a>,
    /// Whether `by` is valid: keys can't be read otherwise.
    pub(super) has_key: bool,
    pub(super) problems: &'a mut Vec<Problem>,
}

/// The settings outside of the rules that rules use.
pub(crate) struct Defaults<'a> {
    pub(crate) status: u16,
    pub(crate) answer: Option<&'a Arc<CustomResponse>>,
    pub(crate) log: LogLevel,
    /// Whether there is a shared store.
    pub(crate) has_shared: bool,
}

/// The fields that a rule has, to check which are combined.
pub(super) struct Combination<'a> {
    pub(super) node: &'a Node,
    /// Whether name, `by` and `match` are valid.
    pub(super) is_whole: bool,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl<'a> Combination<'a> {
    /// Returns a field as it is written.
    pub(super) fn entry(&self, name: &str) -> Option<&'a MapEntry> {
        match &self.node.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == name),
            _ => None,
        }
    }

    /// Returns `true` if one of these fields is written.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.entry(name).is_some())
    }

    /// Returns `true` if the rule has a limit on a number of requests.
    pub(super) fn has_limit(&self) -> bool {
        self.has(&crate::limit::LIMITS)
    }

    /// Reports a problem at a field.
    pub(super) fn report(&mut self, name: &str, what: impl Into<String>, expected: &str) {
        let at = self.entry(name).map_or(self.node.span, |entry| entry.span);
        self.problems.push(Problem::new(at, what.into()).expected(expected));
    }
}

impl Rule {
    /// Returns what decides which requests the rule denies: the rule without its name, responses, logs and locations.
    pub(crate) fn decision(&self) -> Self {
        let mut rule = self.clone();
        rule_options().for_each(|option| (option.reset)(&mut rule));
        rule.all_limits_mut().for_each(LimitRule::reset_text);
        rule
    }

    /// Returns `true` if both rules are equal, wherever they are in their documents.
    pub fn is_same(&self, other: &Self) -> bool {
        let without_locations = |rule: &Self| {
            let mut rule = rule.clone();
            rule.span = diana_document::Span::default();
            rule.all_limits_mut().for_each(|limit| limit.span = diana_document::Span::default());
            rule
        };
        without_locations(self) == without_locations(other)
    }

    /// Its limits, and those of its overrides.
    pub(crate) fn all_limits(&self) -> impl Iterator<Item = &LimitRule> {
        self.limits.iter().chain(self.overrides.iter().flat_map(|replacement| &replacement.limits))
    }

    fn all_limits_mut(&mut self) -> impl Iterator<Item = &mut LimitRule> {
        self.limits.iter_mut().chain(self.overrides.iter_mut().flat_map(|replacement| &mut replacement.limits))
    }
}
