//! Explains a decision: the result of every rule for one request.

use crate::engine::asks::Scope;
use crate::engine::verdict::time;
use crate::engine::{Engine, Verdict};
use crate::ruleset::ExplainedRule;
use diana_core::{Answer, Decision, LocalStore, MaxWait, Query, Retry};
use diana_rules::Attributes;
use diana_rules::rule::{CountByStatus, CountedIn, Missing, Mode, OnStatus};
use std::fmt;
use std::time::Duration;

/// The result of every rule for a request, without charging it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The rules, in the order of the file.
    pub rules: Vec<RuleExplanation>,
    /// The result of `permissions` for the request, if the file has them.
    pub permission: Option<PermissionExplanation>,
}

/// The result of `permissions` for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermissionExplanation {
    /// Whether the request has permission.
    pub is_allowed: bool,
    /// Whether a request without permission is answered with 403, and not only logged.
    pub is_enforced: bool,
    /// Which rule of the permissions decides, and how.
    pub reason: String,
}

/// The result of one rule for a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleExplanation {
    /// The rule's name.
    pub name: String,
    /// Whether the rule matches, and if not, why.
    pub result: ExplainedRule,
    /// The key of the request; empty if the rule counts all requests together, or does not count this one.
    pub key: String,
    /// Its cost.
    pub cost: u64,
    /// The limits by name, and their answers.
    pub limits: Vec<(String, Answer)>,
    /// Whether the rule is enforced.
    pub mode: Mode,
    /// How the rule counts by the status of the response.
    pub count: Option<CountByStatus>,
}

impl Engine {
    /// Explains which rules match a request and which do not, and why. Nothing is charged.
    pub fn explain<'e>(&'e self, request: &dyn Attributes) -> impl Future<Output = Explanation> + Send + use<'e> {
        let rules = self.rules.load();
        let explained = rules.rules.explain(request);
        let permission = rules.rules.permission(request).map(|permission| PermissionExplanation {
            is_allowed: permission.is_allowed(),
            is_enforced: permission.is_enforced(),
            reason: permission.to_string(),
        });
        let mut verdict = Verdict::start(rules, self.now(), self.state.local_scope());
        verdict.matches = explained.matches;
        async move {
            let mut explanation = Explanation { rules: Vec::new(), permission };
            for (number, result) in explained.rules.into_iter().enumerate() {
                let Some(rule) = verdict.rules().rules().get(number).map(crate::ruleset::CompiledRule::rule) else {
                    continue;
                };
                let (mut key, mut cost, mut limits) = (String::new(), 0, Vec::new());
                let matched = verdict.matches().matched().iter().enumerate();
                if let Some((index, matched)) = matched.clone().find(|(_, matched)| matched.rule as usize == number) {
                    key = rule.by.shown(verdict.matches().key(matched));
                    cost = matched.cost.get();
                    let decision = self.peek(&verdict, Scope::Shadow(index), matched.counted_in).await;
                    let names = verdict.limits_in(Scope::Shadow(index)).map(|(_, limit)| limit.limit.name().to_owned());
                    limits = names.zip(decision.answers().iter().copied()).collect();
                }
                explanation.rules.push(RuleExplanation {
                    name: rule.name.clone(),
                    result,
                    key,
                    cost,
                    limits,
                    mode: rule.mode,
                    count: rule.count,
                });
            }
            explanation
        }
    }

    async fn peek(&self, verdict: &Verdict, scope: Scope, counted_in: CountedIn) -> Decision {
        let asks = verdict.asks(scope);
        let peeked = match (&self.state.shared, counted_in) {
            (Some(shared), CountedIn::Shared) => {
                shared.query(&asks, verdict.at(), Query::Peek(MaxWait::FOREVER)).await.ok()
            }
            _ => None,
        };
        peeked.unwrap_or_else(|| LocalStore::peek(self.local(), &asks, verdict.at(), MaxWait::FOREVER))
    }
}

impl Explanation {
    /// Returns the rules that would deny the request.
    pub fn denying(&self) -> impl Iterator<Item = &RuleExplanation> {
        self.rules.iter().filter(|rule| rule.denies() && rule.mode == Mode::Enforced)
    }

    /// Returns `true` if the request would be denied, by a rule or for lack of permission.
    pub fn is_denied(&self) -> bool {
        self.denying().next().is_some() || self.permission.as_ref().is_some_and(PermissionExplanation::denies)
    }
}

impl PermissionExplanation {
    /// Returns `true` if the request is answered with 403.
    pub fn denies(&self) -> bool {
        !self.is_allowed && self.is_enforced
    }
}

impl fmt::Display for PermissionExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_allowed { '✓' } else { '✗' };
        let shadow = if self.is_enforced { "" } else { " (shadow)" };
        write!(f, "{mark} permissions{shadow}: {}", self.reason)
    }
}

impl RuleExplanation {
    /// Returns `true` if the rule is enforced and would deny the request.
    pub fn denies(&self) -> bool {
        match &self.result {
            ExplainedRule::Listed
            | ExplainedRule::CostFailed { .. }
            | ExplainedRule::MissingKey { then: Missing::Deny, .. } => true,
            _ => self.limits.iter().any(|(_, answer)| !answer.is_granted()),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &self.rules {
            writeln!(f, "{rule}")?;
        }
        if let Some(permission) = &self.permission {
            writeln!(f, "{permission}")?;
        }
        let denying = self.denying().map(|rule| format!("`{}`", rule.name)).collect::<Vec<_>>();
        let waits = self.rules.iter().filter(|rule| rule.mode == Mode::Enforced);
        let waits = waits.flat_map(|rule| rule.limits.iter().filter_map(|(_, answer)| answer.wait()));
        match (denying.is_empty(), waits.max()) {
            (false, _) => writeln!(f, "=> denied by {}", denying.join(", ")),
            _ if self.is_denied() => writeln!(f, "=> denied by `permissions`, with 403"),
            (true, Some(wait)) if !wait.is_zero() => writeln!(f, "=> granted after {}", time(wait)),
            _ => writeln!(f, "=> granted"),
        }
    }
}

impl fmt::Display for RuleExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match (&self.result, self.denies()) {
            (_, true) => '✗',
            (ExplainedRule::Counts { .. }, _) if self.limits.is_empty() => '-',
            (ExplainedRule::Counts { .. } | ExplainedRule::MissingKey { then: Missing::Shared, .. }, _) => '✓',
            _ => '-',
        };
        let shadow = if self.mode == Mode::Shadow { " (shadow)" } else { "" };
        write!(f, "{mark} {}{shadow}: ", self.name)?;
        match &self.result {
            ExplainedRule::NoMatch(mismatch) => write!(f, "{mismatch}"),
            ExplainedRule::Allowed => f.write_str("listed in `allow`, not counted"),
            ExplainedRule::Listed => f.write_str("listed in `deny`, denied"),
            ExplainedRule::MissingKey { what, then: Missing::Skip } => write!(f, "not counted: {what}"),
            ExplainedRule::MissingKey { what, then: Missing::Deny } => write!(f, "denied: {what}"),
            ExplainedRule::MissingKey { what, then: Missing::Shared } => {
                match &*self.key {
                    "" => write!(f, "{what}; counted with all other requests without it")?,
                    key => write!(f, "{what}; counted for {key}")?,
                }
                self.counted_by_status(f)?;
                self.statuses(f)
            }
            ExplainedRule::Charges { rule, cost } => write!(f, "charges {} to `{rule}`", cost.get()),
            ExplainedRule::Free => f.write_str("cost 0, not counted"),
            ExplainedRule::CostFailed { why } => {
                write!(f, "denied with 400: `cost` failed ({why}), and there is no `cost_default`")
            }
            ExplainedRule::Counts { .. } if self.limits.is_empty() => f.write_str("matches, with nothing to count"),
            ExplainedRule::Counts { when_failed, cost_failed } => {
                match &*self.key {
                    "" => f.write_str("counted with all requests")?,
                    key => write!(f, "counted for {key}")?,
                }
                if self.cost > 1 {
                    write!(f, " at a cost of {}", self.cost)?;
                }
                if *cost_failed {
                    f.write_str(" (`cost` failed, `cost_default` is used)")?;
                }
                if *when_failed {
                    f.write_str(" (`when` failed, treated as true)")?;
                }
                self.counted_by_status(f)?;
                self.statuses(f)
            }
        }
    }
}

impl RuleExplanation {
    /// Writes which responses are charged or refunded.
    fn counted_by_status(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.count {
            None => Ok(()),
            Some(count) => match count.then {
                OnStatus::Charge => write!(f, ", if the response is {}", count.statuses),
                OnStatus::Refund => write!(f, ", refunded if the response is {}", count.statuses),
            },
        }
    }

    fn statuses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, answer) in &self.limits {
            let status = answer.status();
            write!(f, "\n    {name}: {} of {} left", status.remaining, status.limit)?;
            match (answer.wait(), answer.retry()) {
                (Some(Duration::ZERO), _) => f.write_str(", granted")?,
                (Some(wait), _) => write!(f, ", granted after {}", time(wait))?,
                (None, Some(Retry::After(wait))) => write!(f, ", denied, retry after {}", time(wait))?,
                (None, Some(Retry::WhenReleased)) => f.write_str(", denied, retry when a permit is released")?,
                (None, _) => f.write_str(", denied, retrying does not help")?,
            }
        }
        Ok(())
    }
}
