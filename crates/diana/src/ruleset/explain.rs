//! Explains why rules match a request, or not.

use super::{DenyReason, Hits, MatchedRule, Matches, RuleSet, Subject};
use diana_core::Cost;
use diana_rules::attributes::Attributes;
use diana_rules::expression::ExpressionFailed;
use diana_rules::key::KeyBytes;
use diana_rules::matching::{IndexedMatch, Mismatch, NeededAttributes, Normalised, RequestView, When};
use diana_rules::rule::{CostOf, Missing};

/// The result of each rule for one request, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Explained {
    /// The result of each rule, by its index.
    pub rules: Vec<ExplainedRule>,
    /// The result of [`RuleSet::find`], without the index: every rule was evaluated.
    pub matches: Matches,
}

/// The result of a rule for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainedRule {
    /// The rule does not match.
    NoMatch(Mismatch),
    /// The request is in the rule's `allow`.
    Allowed,
    /// The request is in the rule's `deny`.
    Listed,
    /// The key is missing.
    MissingKey {
        /// The missing part.
        what: String,
        /// How the rule handles the request.
        then: Missing,
    },
    /// The cost expression is 0, and the rule has `cost_min: 0`.
    Free,
    /// The cost expression failed, and the rule has no `cost_default`, so the request is denied.
    CostFailed {
        /// The cause.
        why: ExpressionFailed,
    },
    /// The rule charges the request to another rule (`charges`), and never denies it.
    Charges {
        /// The name of that rule.
        rule: String,
        /// The cost.
        cost: Cost,
    },
    /// The rule counts the request.
    Counts {
        /// The `when` of the rule failed, which counts as true.
        when_failed: bool,
        /// The `cost` of the rule failed, so `cost_default` is used.
        cost_failed: bool,
    },
}

impl RuleSet {
    /// Evaluates every rule for a request, not only those that the index finds, and reports why each counts it or not.
    pub fn explain(&self, request: &dyn Attributes) -> Explained {
        let mut explained = Explained::default();
        let normalised = Normalised(request);
        let identified = self.identity.of(&normalised);
        let view = RequestView::new(&identified, NeededAttributes::ALL);
        for (number, compiled) in self.rules.iter().enumerate() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let rule = compiled.rule();
            let when = match rule.matches.check(&view, IndexedMatch::None) {
                Ok(when) => when,
                Err(mismatch) => {
                    explained.rules.push(ExplainedRule::NoMatch(mismatch));
                    continue;
                }
            };
            let rule_view = rule.matches.view(&view);
            let is_allowed = compiled.allows(&view, &rule_view);
            compiled.apply(number, &view, Subject::Request, Hits::Charge(request.hits()), &mut explained.matches);
            let is_denied =
                |why| explained.matches.denied().iter().any(|denied| (denied.rule, denied.why) == (number, why));
            let (is_listed, is_denied_for_cost) = (is_denied(DenyReason::Listed), is_denied(DenyReason::Cost));
            let cost_failed = match &rule.cost {
                CostOf::Expression(expression) => expression.count(&rule_view).err(),
                CostOf::Request | CostOf::Fixed(_) => None,
            };
            let is_counted = explained.applied(number).is_some();
            let charged = explained.matches.charged().iter().find(|charged| charged.by == number);
            if let (Some(charged), Some(name)) = (charged, &rule.charges) {
                explained.rules.push(ExplainedRule::Charges { rule: name.clone(), cost: charged.cost });
                continue;
            }
            explained.rules.push(match (rule.by.key(&rule_view, &mut KeyBytes::new()), cost_failed) {
                _ if is_allowed => ExplainedRule::Allowed,
                _ if is_listed => ExplainedRule::Listed,
                (_, Some(why)) if is_denied_for_cost => ExplainedRule::CostFailed { why },
                (Err(missing), _) => {
                    // A failed key, or one from an invalid token, is counted with others, unless it is denied.
                    let then = if is_counted { Missing::Shared } else { rule.missing };
                    ExplainedRule::MissingKey { what: missing.to_string(), then }
                }
                (Ok(()), _) if !is_counted => ExplainedRule::Free,
                (Ok(()), failed) => {
                    ExplainedRule::Counts { when_failed: when == When::Failed, cost_failed: failed.is_some() }
                }
            });
        }
        explained
    }
}

impl Explained {
    /// Returns the match of a rule, if it counts the request.
    pub fn applied(&self, rule: u32) -> Option<&MatchedRule> {
        self.matches.matched().iter().find(|applied| applied.rule == rule)
    }
}
