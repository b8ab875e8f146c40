//! The result of a decision, and its reason.

mod fields;
mod limited_by;
mod outcome_recording;
mod recycled;
mod response_sample;
mod waits;

use super::EngineState;
use super::asks::{Scope, ScopedDecision};
use super::local_counts::LocalCounts;
use crate::RuleSet;
pub(super) use crate::duration_text::time;
use crate::ruleset::{
    ChargedAt, CompiledRule, DeniedBy, DenyReason, KeyOutcome, MatchedRule, Matches, Plan, Purpose, RequestOutcome,
    RuleNotCallable, sample,
};
use diana_core::{Answer, Decision, Limit, Retry, Timestamp};
use diana_rules::rule::{CountedIn, Mode, OverLimit, Rule};
use diana_rules::{Attributes, RuleFile};
use fields::{Decisions, DenyingRule, UnusualParts};
pub(super) use fields::{Queued, Rules};
use limited_by::LoggedOutcome;
pub(super) use limited_by::log_denied_minutes;
pub use limited_by::{LimitedBy, LoggedRequest};
pub(super) use recycled::RecycledVerdict;
pub use response_sample::ResponseClass;
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The decision about a request, and its reason: granted by every rule, or charged to none. [`Permit`](super::Permit) and
/// [`Denial`](super::Denial) own one.
///
/// It keeps the rules that made it alive, so that refunds go to the same limits, even after a reload.
pub struct Verdict {
    /// The rules that made the decision; `None` while the box is unused.
    pub(super) rules: Option<Rules>,
    pub(super) matches: Matches,
    pub(super) at: Timestamp,
    /// The rule that denied it, once the decision is finished.
    pub(super) denying: Option<DenyingRule>,
    /// How it is decided.
    pub(super) plan: Plan,
    /// Which queries are decided in this process.
    pub(super) local_scope: Scope,
    /// The decisions of active rules, local ones first; then those of shadow rules.
    pub(super) decisions: Decisions,
    pub(super) unusual: UnusualParts,
    /// Whether dropping the permit refunds everything.
    pub(super) is_provisional: bool,
}

/// One limit that was checked, and its answer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CheckedLimit<'a> {
    /// The rule of the limit.
    pub rule: &'a Rule,
    /// The key that is counted.
    pub key: &'a [u8],
    /// The limit.
    pub limit: &'a Limit,
    /// Its answer.
    pub answer: Answer,
}

/// Why a request was denied, or which limit it is closest to.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Reason<'a> {
    /// A limit: for a denied request the one with the latest retry time, for a granted one the one with the fewest
    /// permits left.
    Limit(CheckedLimit<'a>),
    /// A rule that denies regardless of its counts.
    Rule {
        /// The rule.
        rule: &'a Rule,
        /// Why it denies.
        why: DenyReason,
    },
}

/// A verdict always has rules; these spare a panic if there were none.
static NO_RULES: LazyLock<RuleSet> = LazyLock::new(|| RuleSet::new(&RuleFile::default()));

/// The status for a request whose cost can't be computed.
const BAD_REQUEST: u16 = 400;

impl Verdict {
    /// Returns an empty verdict, for a request that starts now.
    #[inline]
    pub(super) fn start(rules: Rules, at: Timestamp, local_scope: Scope) -> RecycledVerdict {
        let mut verdict = RecycledVerdict::new();
        verdict.rules = Some(rules);
        verdict.at = at;
        verdict.local_scope = local_scope;
        verdict
    }

    /// Returns an unused box.
    fn empty() -> Self {
        Self {
            rules: None,
            matches: Matches::default(),
            at: Timestamp::EPOCH,
            denying: None,
            plan: Plan::Steps,
            local_scope: Scope::Everything,
            decisions: Decisions::default(),
            unusual: UnusualParts::default(),
            is_provisional: false,
        }
    }

    /// Clears the fields, but keeps their memory. An unused box must not keep replaced rules alive.
    #[inline]
    fn clear(&mut self) {
        self.rules = None;
        self.matches.clear();
        self.denying = None;
        self.plan = Plan::Steps;
        self.decisions.clear();
        self.unusual.clear();
        self.is_provisional = false;
    }

    /// Matches requests against the rules; several are decided together.
    #[inline]
    pub(super) fn find(&mut self, requests: &[&dyn Attributes], hits: Purpose) {
        let Self { rules, matches, .. } = self;
        if let Some(rules) = rules {
            // A recycled verdict is clear.
            rules.rules.find(requests, hits, matches);
        }
    }

    /// Matches a call against the named rule.
    pub(super) fn find_by(
        &mut self,
        rule: &str,
        call: &dyn Attributes,
        purpose: Purpose,
    ) -> Result<(), RuleNotCallable> {
        let Self { rules, matches, .. } = self;
        match rules {
            Some(rules) => rules.rules.find_named(rule, call, purpose, matches),
            None => Ok(()),
        }
    }

    /// Returns `true` if there is no shared store.
    pub(super) fn is_all_local(&self) -> bool {
        self.local_scope == Scope::Everything
    }

    /// Finishes a peek, which has charged nothing.
    pub(super) fn finish_peek(&mut self) {
        self.unusual.is_peek = true;
        if !self.is_granted() {
            self.denying = self.find_denying_rule();
        }
    }

    /// Finishes the decision: updates the counters of the rules, and charges others (`charges`). Returns its
    /// [wait](Self::wait).
    pub(super) fn finish(&mut self, counts: &LocalCounts) -> Option<Duration> {
        let wait = self.wait();
        if wait.is_none() {
            self.denying = self.find_denying_rule();
        }
        self.count(wait);
        // Most requests have nothing to charge.
        if wait.is_some() && !self.matches.charged().is_empty() {
            counts.charge(self);
            self.count_charges();
        }
        wait
    }

    /// Returns `true` if the rule made it wait.
    fn has_waited_for(&self, rule: &Rule) -> bool {
        let queued = self.unusual.queued.and_then(|queued| self.rules().rule(queued.rule));
        let asked =
            |asked: CheckedLimit<'_>| std::ptr::eq(asked.rule, rule) && asked.answer.wait() > Some(Duration::ZERO);
        queued.is_some_and(|queued| std::ptr::eq(queued.rule(), rule)) || self.checked_limits().any(asked)
    }

    /// Returns the indexes of the shadow rules that are counted in `counted_in`, and charged at once.
    pub(super) fn shadows_in(&self, counted_in: CountedIn) -> SmallVec<[usize; 4]> {
        let applied = self.matches().matched().iter().enumerate();
        let shadows = applied.filter(|(_, applied)| {
            let is_charged = applied.charged_at == ChargedAt::Request;
            applied.mode == Mode::Shadow && applied.counted_in == counted_in && is_charged
        });
        shadows.map(|(index, _)| index).collect()
    }

    /// Adds the decision of an active rule's store, or of a shadow rule.
    pub(super) fn add(&mut self, decision: ScopedDecision) {
        if let Scope::Shadow(index) = decision.scope
            && let Some(matched) = self.matches().matched().get(index)
            && let Some(rule) = self.rules().rule(matched.rule)
        {
            if decision.decision.is_granted() {
                rule.count(RequestOutcome::Allowed);
                let is_charged = matched.charged_at == ChargedAt::Request;
                if let Some(weight) = sample(self.at()).filter(|_| is_charged) {
                    rule.record(KeyOutcome::Allowed, self.matches().key(matched), weight, self.at());
                }
            } else {
                rule.count(RequestOutcome::ShadowDenied);
                let (rule, key) = (matched.rule, matched.key_range());
                self.record(rule, key, LoggedOutcome::ShadowDenied);
            }
        }
        self.decisions.push(decision);
    }

    /// Clears the decisions, to query again at `now`.
    pub(super) fn start_again(&mut self, now: Timestamp) {
        self.at = now;
        self.decisions.clear();
        self.unusual.to_log.clear();
    }

    /// Switches to other rules, unless their matches can't be determined; returns the new number of the rule with the
    /// number `rule`.
    pub(super) fn switch_to(&mut self, rules: Rules, rule: Option<u32>) -> Option<u32> {
        if std::ptr::eq(self.rules(), &*rules.rules) {
            return rule;
        }
        let Some(matches) = rules.rules.migrate_matches(self.rules(), self.matches()) else { return rule };
        let number = rule.and_then(|rule| rules.rules.number(&self.rules().rule(rule)?.rule().name));
        (self.rules, self.matches, self.plan) = (Some(rules), matches, Plan::Steps);
        number
    }

    pub(super) fn deny_by(&mut self, by: DeniedBy) {
        self.unusual.denied_by = Some(by);
    }

    /// Returns `true` if the request is granted (after [`wait`](Self::wait)).
    #[inline]
    pub fn is_granted(&self) -> bool {
        self.wait().is_some()
    }

    /// Returns the answer to a request that is decided by one limit of this process, as most are.
    #[inline]
    fn only_answer(&self) -> Option<&Answer> {
        match self.plan {
            Plan::OneLimit => self.decisions.single()?.decision.answers().first(),
            Plan::Nothing | Plan::Limits | Plan::Steps => None,
        }
    }

    /// Returns the decisions of active rules: the local and the shared one.
    fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.enforced().map(|scoped| &scoped.decision)
    }

    pub(super) fn enforced(&self) -> impl Iterator<Item = &ScopedDecision> {
        self.decisions.iter().filter(|scoped| !scoped.scope.is_shadow())
    }

    /// Returns the decisions that charged the request: none if it was denied.
    pub(super) fn granted(&self) -> impl Iterator<Item = &ScopedDecision> {
        let has_charged = self.is_granted() && !self.unusual.is_peek;
        let decisions = if has_charged { &self.decisions[..] } else { &[] };
        decisions.iter().filter(|scoped| scoped.decision.is_granted() && !self.is_look(scoped.scope))
    }

    /// Returns how long a granted request must wait; `None` if it was denied.
    #[inline]
    pub fn wait(&self) -> Option<Duration> {
        match self.only_answer() {
            Some(answer) => answer.wait(),
            None => self.longest_wait(),
        }
    }

    #[inline(never)]
    fn longest_wait(&self) -> Option<Duration> {
        if self.unusual.denied_by.is_some() {
            return None;
        }
        self.decisions().try_fold(Duration::ZERO, |longest, decision| Some(longest.max(decision.wait()?)))
    }

    /// Returns how long it was queued before it was decided, granted or not.
    pub fn queued_for(&self) -> Duration {
        self.unusual.queued.map_or(Duration::ZERO, |queued| queued.time)
    }

    /// Returns the rule that made it wait longest: in a queue, or for a reserved time. `None` without a wait.
    pub fn waited_for(&self) -> Option<&Rule> {
        let queued = self.unusual.queued;
        let queued = queued.and_then(|queued| Some((queued.time, self.rules().rule(queued.rule)?.rule())));
        let reserved = self.checked_limits().filter(|_| self.is_granted());
        let reserved = reserved.filter_map(|asked| Some((asked.answer.wait()?, asked.rule)));
        let longest = queued.into_iter().chain(reserved).filter(|(time, _)| !time.is_zero());
        longest.max_by_key(|(time, _)| *time).map(|(_, rule)| rule)
    }

    /// Returns when a denied request would be granted; `None` if it was granted. For a denial by `load`, which can't be
    /// predicted, it is one second.
    pub fn retry(&self) -> Option<Retry> {
        match self.unusual.denied_by {
            Some(DeniedBy { why: DenyReason::Overloaded(_), .. }) => {
                return Some(Retry::After(Duration::from_secs(1)));
            }
            Some(_) => return Some(Retry::Never),
            None => {}
        }
        self.decisions().find_map(Decision::retry)
    }

    /// Returns why it was denied, or which limit a granted request is closest to. `None` if no rule matches.
    pub fn reason(&self) -> Option<Reason<'_>> {
        if let Some(DeniedBy { rule, why, .. }) = self.unusual.denied_by {
            return Some(Reason::Rule { rule: self.rules().rule(rule)?.rule(), why });
        }
        if let Some(only) = self.only_limit() {
            return Some(Reason::Limit(only));
        }
        let denied = |asked: &CheckedLimit<'_>| asked.answer.retry();
        let longest = self.checked_limits().filter_map(|asked| Some((denied(&asked)?, asked)));
        let longest = longest.reduce(|one, other| if one.0.later(other.0) == one.0 { one } else { other });
        let least = || self.checked_limits().min_by_key(|asked| asked.answer.status().remaining);
        longest.map(|(_, asked)| asked).or_else(least).map(Reason::Limit)
    }

    /// Returns every limit that was checked, except those of shadow rules, and its answer. For a denied request, limits
    /// with the answer "granted" are not the reason.
    pub fn checked_limits(&self) -> impl Iterator<Item = CheckedLimit<'_>> {
        let only = self.only_limit();
        let several = only.is_none().then(|| self.enforced().flat_map(|scoped| self.answers_of(scoped)));
        only.into_iter().chain(several.into_iter().flatten())
    }

    /// Returns the limit that was checked, if the request is decided by one limit of this process, as most are.
    pub fn only_limit(&self) -> Option<CheckedLimit<'_>> {
        let (answer, matched) = (*self.only_answer()?, self.matches.matched().first()?);
        let rule = self.rules().rule(matched.rule)?;
        let limit = &rule.limits(matched).first()?.limit;
        Some(CheckedLimit { rule: rule.rule(), key: self.matches.key(matched), limit, answer })
    }

    /// Returns every limit that was checked for one of several requests that were decided together, by its index. A limit
    /// that several of them use is in the list of each.
    pub fn limits_of(&self, request: usize) -> impl Iterator<Item = CheckedLimit<'_>> {
        let is_own = move |matched: &MatchedRule| {
            let index = self.matches().matched().iter().position(|known| std::ptr::eq(known, matched));
            index.is_some_and(|index| self.matches().is_matched_by(request, index))
        };
        self.enforced().flat_map(move |scoped| self.answers_if(scoped, is_own))
    }

    fn answers_of<'a>(&'a self, scoped: &'a ScopedDecision) -> impl Iterator<Item = CheckedLimit<'a>> {
        self.answers_if(scoped, |_| true)
    }

    /// Returns the limits of a decision, of the rules for which `is_meant` returns `true`.
    pub(super) fn answers_if<'a>(
        &'a self,
        scoped: &'a ScopedDecision,
        is_meant: impl Fn(&MatchedRule) -> bool,
    ) -> impl Iterator<Item = CheckedLimit<'a>> {
        let both = self.limits_in(scoped.scope).zip(scoped.decision.answers());
        both.filter(move |((matched, _), _)| is_meant(matched)).filter_map(|((matched, limit), answer)| {
            let rule = self.rules().rule(matched.rule)?.rule();
            Some(CheckedLimit { rule, key: self.matches().key(matched), limit: &limit.limit, answer: *answer })
        })
    }

    /// Returns the rule that denied it, which configures the response; `None` if it was granted.
    pub fn denied_by(&self) -> Option<&Rule> {
        self.denying_rule().map(CompiledRule::rule)
    }

    /// Returns the same rule in its compiled form.
    fn denying_rule(&self) -> Option<&CompiledRule> {
        self.rules().rule(self.denying?.rule)
    }

    /// Finds the rule that denied it, and its key.
    fn find_denying_rule(&self) -> Option<DenyingRule> {
        let denying = |matched: &MatchedRule| DenyingRule { rule: matched.rule, key: matched.key_range() };
        match (self.unusual.denied_by, self.matches().matched()) {
            (Some(by), _) => Some(DenyingRule { rule: by.rule, key: by.key_range() }),
            // The only matched rule denied it.
            (None, [matched]) => Some(denying(matched)),
            (None, all) => {
                let Reason::Limit(asked) = self.reason()? else { return None };
                let is_it = |matched: &&MatchedRule| {
                    let rule = self.rules().rule(matched.rule);
                    rule.is_some_and(|rule| std::ptr::eq(rule.rule(), asked.rule))
                        && self.matches().key(matched) == asked.key
                };
                all.iter().find(is_it).map(denying)
            }
        }
    }

    /// Returns the HTTP status of the denial; `None` if it was granted.
    pub fn status(&self) -> Option<u16> {
        let rule = self.denied_by()?;
        Some(match self.unusual.denied_by.map(|denial| denial.why) {
            // The request itself is invalid, not its rate.
            Some(DenyReason::Cost) => BAD_REQUEST,
            Some(DenyReason::Missing) => rule.missing_status.unwrap_or(rule.status),
            _ => rule.status,
        })
    }

    /// Returns the action for a request over the limit; `None` if it was granted. A request that is denied because its
    /// cost can't be computed, or with a separate status because a key part is missing, is over no limit and never rerouted.
    pub fn over_limit(&self) -> Option<&OverLimit> {
        let rule = self.denied_by()?;
        Some(match self.unusual.denied_by.map(|denial| denial.why) {
            Some(DenyReason::Cost) => &OverLimit::Deny,
            Some(DenyReason::Missing) if rule.missing_status.is_some() => &OverLimit::Deny,
            _ => &rule.over,
        })
    }

    /// Returns the rules that made the decision.
    pub fn rules(&self) -> &RuleSet {
        self.rules.as_ref().map_or_else(|| &*NO_RULES, |rules| &*rules.rules)
    }

    /// Returns the state in which the rules count.
    pub(super) fn state(&self) -> Option<&Arc<EngineState>> {
        self.rules.as_ref().map(|rules| &rules.state)
    }

    /// Returns the matches of these rules.
    pub fn matches(&self) -> &Matches {
        &self.matches
    }

    /// Returns when it was made.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns `true` if the shared store failed, so that this process decided in its place.
    pub fn is_fallback(&self) -> bool {
        self.decisions.iter().filter(|scoped| scoped.is_local).any(|scoped| match scoped.scope {
            Scope::Everything | Scope::Local | Scope::Look(CountedIn::Local) => false,
            Scope::Shared => true,
            Scope::Look(CountedIn::Shared) => !self.is_all_local(),
            Scope::Shadow(index) => {
                self.matches().matched().get(index).is_some_and(|matched| matched.counted_in == CountedIn::Shared)
            }
        })
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verdict").field(&self.to_string()).finish()
    }
}

impl fmt::Display for Verdict {
    /// Formats it for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let granted = match self.wait() {
            Some(Duration::ZERO) => "granted".to_owned(),
            Some(wait) => format!("granted after {}", time(wait)),
            None => "denied".to_owned(),
        };
        f.write_str(&granted)?;
        match self.reason() {
            None => f.write_str(": no rule matches"),
            Some(Reason::Rule { rule, why: DenyReason::Listed }) => write!(f, " by `{}`: listed in `deny`", rule.name),
            Some(Reason::Rule { rule, why: DenyReason::Missing }) => {
                write!(f, " by `{}`: missing {}", rule.name, rule.by)
            }
            Some(Reason::Rule { rule, why: DenyReason::Cost }) => {
                write!(f, " by `{}`: its cost can't be computed, and there is no `cost_default`", rule.name)
            }
            Some(Reason::Rule { rule, why: DenyReason::Overloaded(resource) }) => {
                write!(f, " by `{}`: overloaded ({resource})", rule.name)
            }
            Some(Reason::Limit(asked)) => {
                let by = if self.is_granted() { ", closest to" } else { " by" };
                write!(f, "{by} `{}`", asked.limit.name())?;
                if !asked.key.is_empty() {
                    write!(f, " for {}", asked.rule.by.shown(asked.key))?;
                }
                let status = asked.answer.status();
                write!(f, ": {} of {} left", status.remaining, status.limit)?;
                match self.retry() {
                    None => Ok(()),
                    Some(Retry::After(wait)) => write!(f, ", retry after {}", time(wait)),
                    Some(Retry::WhenReleased) => f.write_str(", retry when a permit is released"),
                    Some(Retry::Never) => f.write_str(", retrying does not help"),
                }
            }
        }
    }
}
