//! The result of a decision, and its reason.

use super::Return;
use super::local::LocalCounts;
use super::queries::{Queries, Scope};
use super::record::{DecisionRecord, Rules, Shadow};
pub(super) use crate::duration::time;
use diana_core::{Answer, Decision, Limit, Retry, Timestamp};
use diana_rules::{
    Attributes, CompiledRule, CountedIn, DenyReason, Matches, Mode, OverLimit, RefusedBy, RequestOutcome, Rule,
    RuleNotCallable, RuleSet,
};
use smallvec::SmallVec;
use std::fmt;
use std::time::Duration;

/// The result of a decision: granted by every rule, or charged to none.
///
/// It keeps the rules that made it alive, so that refunds go to the same limits, even after a reload.
#[must_use = "a denied request must not go on"]
pub struct Verdict(Option<Box<DecisionRecord>>);

/// One limit that was checked, and its answer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Asked<'a> {
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
    Limit(Asked<'a>),
    /// A rule that denies regardless of its counts.
    Rule {
        /// The rule.
        rule: &'a Rule,
        /// Why it denies.
        why: DenyReason,
    },
}

/// The status for a request whose cost can't be computed.
const BAD_REQUEST: u16 = 400;

impl Verdict {
    pub(super) fn new(rules: Rules, at: Timestamp, here: Scope) -> Self {
        Self(Some(DecisionRecord::new(rules, at, here)))
    }

    #[inline]
    pub(super) fn made(&self) -> &DecisionRecord {
        self.0.as_deref().unwrap_or_else(|| unreachable!("it is taken out only at the end"))
    }

    #[inline]
    pub(super) fn made_mut(&mut self) -> &mut DecisionRecord {
        self.0.as_deref_mut().unwrap_or_else(|| unreachable!("it is taken out only at the end"))
    }

    /// Matches a request against the rules.
    pub(super) fn find(&mut self, request: &dyn Attributes) {
        let DecisionRecord { rules, found, .. } = self.made_mut();
        if let Some(rules) = rules {
            rules.find(request, found);
        }
    }

    /// Matches a call against the named rule.
    pub(super) fn find_by(&mut self, rule: &str, call: &dyn Attributes) -> Result<(), RuleNotCallable> {
        let DecisionRecord { rules, found, .. } = self.made_mut();
        match rules {
            Some(rules) => rules.find_named(rule, call, found),
            None => Ok(()),
        }
    }

    pub(super) fn with_found(mut self, found: Matches) -> Self {
        self.made_mut().found = found;
        self
    }

    /// Releases the concurrency permits that it holds in this process.
    fn give_back_held(&self, counts: &LocalCounts) {
        let now = counts.now();
        let made = self.made();
        let local = made.local.iter().map(|decision| (made.here, decision));
        let shared = made.shared.iter().filter(|shared| shared.here).map(|shared| (Scope::Shared, &shared.decision));
        let shadows = made.shadows.iter().filter(|shadow| shadow.here);
        let shadows = shadows.map(|shadow| (Scope::Shadow(shadow.nth), &shadow.decision));
        for (part, decision) in local.chain(shared).chain(shadows).filter(|(_, decision)| decision.is_granted()) {
            counts.give_back(self, part, decision, Return::WhatIsHeld, now);
        }
    }

    /// Updates the counters of each rule.
    pub(super) fn count(&self) {
        let (rules, found, made) = (self.rules(), self.found(), self.made());
        if !self.is_granted() {
            let Some(rule) = self.refusing() else { return };
            rule.count(if self.over() == Some(&OverLimit::Deny) {
                RequestOutcome::Refused
            } else {
                RequestOutcome::Rerouted
            });
            return;
        }
        for refused in found.refused() {
            if let Some(rule) = rules.rule(refused.rule) {
                rule.count(RequestOutcome::ShadowRefused);
            }
        }
        let nobody_waits = made.stood.is_none() && self.wait() == Some(Duration::ZERO);
        for applied in found.applied().iter().filter(|applied| applied.mode == Mode::Enforced) {
            let Some(rule) = rules.rule(applied.rule) else { continue };
            let waited = !nobody_waits && self.has_waited_for(rule.rule());
            rule.count(if waited { RequestOutcome::Waited } else { RequestOutcome::Granted });
        }
    }

    /// Returns `true` if the rule made it wait.
    fn has_waited_for(&self, rule: &Rule) -> bool {
        let stood = self.made().stood.and_then(|stood| self.rules().rule(stood.rule));
        let asked = |asked: Asked<'_>| std::ptr::eq(asked.rule, rule) && asked.answer.wait() > Some(Duration::ZERO);
        stood.is_some_and(|stood| std::ptr::eq(stood.rule(), rule)) || self.asked().any(asked)
    }

    /// Returns the indexes of the shadow rules that are counted in `home`.
    pub(super) fn shadows_of(&self, home: CountedIn) -> SmallVec<[usize; 4]> {
        let applied = self.found().applied().iter().enumerate();
        let shadows = applied.filter(|(_, applied)| applied.mode == Mode::Shadow && applied.home == home);
        shadows.map(|(nth, _)| nth).collect()
    }

    /// Adds the decision of a shadow rule.
    pub(super) fn add_shadow(&mut self, shadow: Shadow) {
        let rule = self.found().applied().get(shadow.nth).and_then(|applied| self.rules().rule(applied.rule));
        if let Some(rule) = rule {
            rule.count(if shadow.decision.is_granted() {
                RequestOutcome::Granted
            } else {
                RequestOutcome::ShadowRefused
            });
        }
        self.made_mut().shadows.push(shadow);
    }

    /// Clears the decisions, to query again at `now`.
    #[cfg(feature = "wait")]
    pub(super) fn ask_anew(&mut self, now: Timestamp) {
        let made = self.made_mut();
        (made.at, made.local, made.shared) = (now, None, None);
    }

    /// Switches to other rules, unless their matches can't be determined; returns the new number of the rule with the
    /// number `rule`.
    #[cfg(feature = "wait")]
    pub(super) fn go_over_to(&mut self, rules: Rules, rule: Option<u32>) -> Option<u32> {
        if std::ptr::eq(self.rules(), &**rules) {
            return rule;
        }
        let Some(found) = rules.carried_over(self.rules(), self.found()) else { return rule };
        let number = rule.and_then(|rule| rules.number(&self.rules().rule(rule)?.rule().name));
        let made = self.made_mut();
        (made.rules, made.found) = (Some(rules), found);
        number
    }

    pub(super) fn refuse(&mut self, by: RefusedBy) {
        self.made_mut().refused = Some(by);
    }

    /// Returns `true` if the request is granted (after [`wait`](Self::wait)).
    pub fn is_granted(&self) -> bool {
        self.made().refused.is_none() && self.decisions().all(Decision::is_granted)
    }

    /// Returns the local and the shared decision.
    fn decisions(&self) -> impl Iterator<Item = &Decision> {
        let made = self.made();
        made.local.iter().chain(made.shared.iter().map(|shared| &shared.decision))
    }

    /// Returns how long a granted request must wait; `None` if it was denied.
    pub fn wait(&self) -> Option<Duration> {
        if self.made().refused.is_some() {
            return None;
        }
        self.decisions().try_fold(Duration::ZERO, |longest, decision| Some(longest.max(decision.wait()?)))
    }

    /// Returns how long it was queued before it was decided, granted or not.
    pub fn stood(&self) -> Duration {
        self.made().stood.map_or(Duration::ZERO, |stood| stood.time)
    }

    /// Returns the rule that made it wait longest: in a queue, or for a reserved time. `None` without a wait.
    pub fn waited_for(&self) -> Option<&Rule> {
        let stood = self.made().stood.and_then(|stood| Some((stood.time, self.rules().rule(stood.rule)?.rule())));
        let promised = self.asked().filter(|_| self.is_granted());
        let promised = promised.filter_map(|asked| Some((asked.answer.wait()?, asked.rule)));
        let longest = stood.into_iter().chain(promised).filter(|(time, _)| !time.is_zero());
        longest.max_by_key(|(time, _)| *time).map(|(_, rule)| rule)
    }

    /// Returns when a denied request would be granted; `None` if it was granted. For a denial by `load`, which can't be
    /// predicted, it is one second.
    pub fn retry(&self) -> Option<Retry> {
        match self.made().refused {
            Some(RefusedBy { why: DenyReason::Overloaded(_), .. }) => {
                return Some(Retry::After(Duration::from_secs(1)));
            }
            Some(_) => return Some(Retry::Never),
            None => {}
        }
        self.decisions().find_map(Decision::retry)
    }

    /// Returns why it was denied, or which limit a granted request is closest to. `None` if no rule matches.
    pub fn reason(&self) -> Option<Reason<'_>> {
        if let Some(RefusedBy { rule, why }) = self.made().refused {
            return Some(Reason::Rule { rule: self.rules().rule(rule)?.rule(), why });
        }
        if let Some(only) = self.only() {
            return Some(Reason::Limit(only));
        }
        let denied = |asked: &Asked<'_>| asked.answer.retry();
        let longest = self.asked().filter_map(|asked| Some((denied(&asked)?, asked)));
        let longest = longest.reduce(|one, other| if one.0.later(other.0) == one.0 { one } else { other });
        let least = || self.asked().min_by_key(|asked| asked.answer.status.remaining);
        longest.map(|(_, asked)| asked).or_else(least).map(Reason::Limit)
    }

    /// Returns every limit that was checked, except those of shadow rules, and its answer. For a denied request, limits
    /// with the answer "granted" are not the reason.
    pub fn asked(&self) -> impl Iterator<Item = Asked<'_>> {
        let there = self.made().shared.iter().flat_map(|made| self.answers_of(Scope::Shared, &made.decision));
        let here = self.made().local.iter().flat_map(|made| self.answers_of(self.made().here, made));
        let only = self.only();
        let several = only.is_none().then(|| here.chain(there));
        only.into_iter().chain(several.into_iter().flatten())
    }

    /// Returns the limit that was checked, if it is exactly one and local. Most requests are like that, and this takes
    /// a tenth of the time of [`asked`](Self::asked).
    pub fn only(&self) -> Option<Asked<'_>> {
        let (made, found) = (self.made(), self.found());
        let (None, Some(local), [applied]) = (&made.shared, &made.local, found.applied()) else { return None };
        let rule = self.rules().rule(applied.rule)?;
        let ([answer], [limit]) = (local.answers(), rule.limits(applied)) else { return None };
        Some(Asked { rule: rule.rule(), key: found.key(applied), limit: &limit.limit, answer: *answer })
    }

    fn answers_of<'a>(&'a self, part: Scope, made: &'a Decision) -> impl Iterator<Item = Asked<'a>> {
        let both = Queries::places(self, part).zip(made.answers());
        both.filter_map(|((applied, limit), answer)| {
            let rule = self.rules().rule(applied.rule)?.rule();
            Some(Asked { rule, key: self.found().key(applied), limit: &limit.limit, answer: *answer })
        })
    }

    /// Returns the shadow rules that would have denied it.
    pub fn shadows(&self) -> impl Iterator<Item = &Rule> {
        // Shadow rules are only reported for granted requests.
        let listed = self.found().refused().iter().filter(|_| self.is_granted()).map(|refused| refused.rule);
        let counted = self.made().shadows.iter().filter(|shadow| !shadow.decision.is_granted());
        let counted = counted.filter_map(|shadow| self.found().applied().get(shadow.nth)).map(|applied| applied.rule);
        let rules = listed.chain(counted).filter_map(|rule| Some(self.rules().rule(rule)?.rule()));
        rules.filter(|rule| rule.mode == Mode::Shadow)
    }

    /// Returns the rule that denied it, which configures the response; `None` if it was granted.
    pub fn refused_by(&self) -> Option<&Rule> {
        self.refusing().map(CompiledRule::rule)
    }

    /// Returns the same rule in its compiled form.
    fn refusing(&self) -> Option<&CompiledRule> {
        if self.is_granted() {
            return None;
        }
        let found = self.found();
        match (self.made().refused, found.applied()) {
            (Some(by), _) => self.rules().rule(by.rule),
            // With a single matched rule, it is that one.
            (None, [applied]) => self.rules().rule(applied.rule),
            (None, applied) => {
                let Reason::Limit(asked) = self.reason()? else { return None };
                let mut rules = applied.iter().filter_map(|applied| self.rules().rule(applied.rule));
                rules.find(|known| std::ptr::eq(known.rule(), asked.rule))
            }
        }
    }

    /// Returns the HTTP status of the denial; `None` if it was granted.
    pub fn status(&self) -> Option<u16> {
        let rule = self.refused_by()?;
        Some(match self.made().refused.map(|refused| refused.why) {
            // The request itself is invalid, not its rate.
            Some(DenyReason::Cost) => BAD_REQUEST,
            Some(DenyReason::Missing) => rule.missing_status.unwrap_or(rule.status),
            _ => rule.status,
        })
    }

    /// Returns the action for a request over the limit; `None` if it was granted. A request that is denied because its
    /// cost can't be computed, or with a separate status because a key part is missing, is over no limit and never
    /// rerouted.
    pub fn over(&self) -> Option<&OverLimit> {
        let rule = self.refused_by()?;
        Some(match self.made().refused.map(|refused| refused.why) {
            Some(DenyReason::Cost) => &OverLimit::Deny,
            Some(DenyReason::Missing) if rule.missing_status.is_some() => &OverLimit::Deny,
            _ => &rule.over,
        })
    }

    /// Returns the rules that made the decision.
    pub fn rules(&self) -> &RuleSet {
        self.made().rules.as_ref().map_or_else(|| unreachable!("a verdict has rules"), |rules| &***rules)
    }

    /// Returns the matches of these rules.
    pub fn found(&self) -> &Matches {
        &self.made().found
    }

    /// Returns when it was made.
    pub fn at(&self) -> Timestamp {
        self.made().at
    }

    /// Returns `true` if the shared store failed, so that this process decided in its place.
    pub fn fell_back(&self) -> bool {
        self.made().shared.as_ref().is_some_and(|made| made.here)
            || self.made().shadows.iter().any(|shadow| {
                let applied = self.found().applied().get(shadow.nth);
                shadow.here && applied.is_some_and(|applied| applied.home == CountedIn::Shared)
            })
    }
}

impl Drop for Verdict {
    fn drop(&mut self) {
        if let Some(held) = self.0.as_mut().and_then(|made| made.held.take()) {
            self.give_back_held(&held);
        }
        if let Some(made) = self.0.take() {
            made.use_again();
        }
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
            None => f.write_str(": no rule is about it"),
            Some(Reason::Rule { rule, why: DenyReason::Listed }) => write!(f, " by `{}`: it is in `deny`", rule.name),
            Some(Reason::Rule { rule, why: DenyReason::Missing }) => {
                write!(f, " by `{}`: it has no {}", rule.name, rule.by)
            }
            Some(Reason::Rule { rule, why: DenyReason::Cost }) => {
                write!(f, " by `{}`: its cost can't be computed, and there is no `cost_default`", rule.name)
            }
            Some(Reason::Rule { rule, why: DenyReason::Overloaded(resource) }) => {
                write!(f, " by `{}`: too busy ({resource})", rule.name)
            }
            // Variants that are newer than this crate.
            Some(Reason::Rule { rule, why }) => write!(f, " by `{}`: {why:?}", rule.name),
            Some(Reason::Limit(asked)) => {
                let by = if self.is_granted() { ", closest to" } else { " by" };
                write!(f, "{by} `{}`", asked.limit.name())?;
                if !asked.key.is_empty() {
                    write!(f, " for {}", asked.rule.by.shown(asked.key))?;
                }
                let status = asked.answer.status;
                write!(f, ": {} of {} left", status.remaining, status.limit)?;
                match self.retry() {
                    None => Ok(()),
                    Some(Retry::After(wait)) => write!(f, ", again in {}", time(wait)),
                    Some(Retry::WhenReturned) => f.write_str(", again when somebody is done"),
                    Some(Retry::Never) => f.write_str(", and waiting will not help"),
                }
            }
        }
    }
}
