//! Why rules are, or are not, about a request: for people who wonder.

use super::{Applied, Asks, Found, RefusedBy, RuleSet, Why};
use crate::attributes::Attributes;
use crate::by::KeyBytes;
use crate::matching::{Looks, Mismatch, Normalised, Proved, Seen, When};
use crate::rule::Missing;

/// What each rule says about one request, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Explained {
    /// Each rule, by its number, and what it says.
    pub rules: Vec<ExplainedRule>,
    /// What [`RuleSet::find`] finds too, here without the index: each rule was asked.
    pub found: Found,
}

/// What a rule says about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainedRule {
    /// It is not about it.
    NotAbout(Mismatch),
    /// The request is in the rule's `allow`.
    Allowed,
    /// The request is in the rule's `deny`.
    Listed,
    /// The request lacks what `by` asks for; this says what.
    Lacks {
        /// What is missing.
        what: String,
        /// What becomes of it.
        then: Missing,
    },
    /// The expression of its cost says 0.
    Free,
    /// It counts the request.
    Counts {
        /// The `when` of the rule failed, so it was taken to hold.
        when_failed: bool,
    },
}

impl RuleSet {
    /// Asks every rule about a request, not only those that the index finds, and says why each does or does not count it.
    pub fn explain(&self, request: &dyn Attributes) -> Explained {
        let mut explained = Explained::default();
        let normalised = Normalised(request);
        let identified = self.identity.of(&normalised);
        let seen = Seen::new(&identified, Looks::AT_ALL);
        for (number, in_force) in self.rules.iter().enumerate() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let rule = in_force.rule();
            let when = match rule.matches.check(&seen, Proved::Nothing) {
                Ok(when) => when,
                Err(mismatch) => {
                    explained.rules.push(ExplainedRule::NotAbout(mismatch));
                    continue;
                }
            };
            let view = rule.matches.view(&seen);
            let is_allowed = in_force.allows(&seen, &view);
            in_force.apply(number, &seen, Asks::Request, &mut explained.found);
            let is_listed = explained.found.refused().contains(&RefusedBy { rule: number, why: Why::Listed });
            explained.rules.push(match rule.by.key(&view, &mut KeyBytes::new()) {
                _ if is_allowed => ExplainedRule::Allowed,
                _ if is_listed => ExplainedRule::Listed,
                Err(missing) => {
                    // One that fails is counted with others, unless it is refused.
                    let is_skipped = rule.missing == Missing::Skip && missing.is_failure();
                    let then = if is_skipped { Missing::Shared } else { rule.missing };
                    ExplainedRule::Lacks { what: missing.to_string(), then }
                }
                Ok(()) if explained.applied(number).is_none() => ExplainedRule::Free,
                Ok(()) => ExplainedRule::Counts { when_failed: when == When::Failed },
            });
        }
        explained
    }
}

impl Explained {
    /// How a rule is asked, if it counts the request.
    pub fn applied(&self, rule: u32) -> Option<&Applied> {
        self.found.applied().iter().find(|applied| applied.rule == rule)
    }
}
