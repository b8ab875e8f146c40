//! The steps of a decision: local limits, shared limits, shadow rules.

use super::future::{NextStep, RefundGuard};
use super::queries::{Queries, Scope};
use super::record::Shadow;
use super::shared_query::{InFlightQuery, SharedResult};
use super::{Engine, Verdict};
use diana_core::{Decision, LocalStore, MaxWait, Store};
use diana_rules::Attributes;
use diana_rules::rule::{CountedIn, Mode};
use diana_rules::ruleset::{CompiledRule, DenyReason, MatchedRule, RuleNotCallable};

/// What to do with a request that must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// Queue it, if the rule allows it.
    #[cfg(feature = "wait")]
    Queue,
    /// Deny it.
    Deny,
}

impl<S: Store + 'static> Engine<S> {
    /// Decides as much about a request as possible without waiting.
    pub(super) fn first_look(&self, request: &dyn Attributes, in_line: WhenFull) -> (RefundGuard<'_>, NextStep) {
        let mut verdict = Verdict::new(self.rules.load(), self.now(), self.here());
        verdict.find(request);
        self.look_at(verdict, in_line)
    }

    /// Decides as much about a call of a named rule as possible without waiting.
    pub(super) fn first_look_by(
        &self,
        rule: &str,
        call: &dyn Attributes,
        in_line: WhenFull,
    ) -> Result<(RefundGuard<'_>, NextStep), RuleNotCallable> {
        let mut verdict = Verdict::new(self.rules.load(), self.now(), self.here());
        verdict.find_by(rule, call)?;
        Ok(self.look_at(verdict, in_line))
    }

    fn look_at(&self, mut verdict: Verdict, in_line: WhenFull) -> (RefundGuard<'_>, NextStep) {
        if verdict.rules().has_load() {
            self.shed(&mut verdict);
        }
        for nth in 0..verdict.found().refused().len() {
            let refused = verdict.found().refused()[nth];
            let Some(rule) = verdict.rules().rule(refused.rule) else { continue };
            if rule.rule().mode == Mode::Enforced {
                verdict.refuse(refused);
                return (RefundGuard::new(&self.counts, verdict), NextStep::Nothing);
            }
        }
        // Usually all queues are empty.
        #[cfg(feature = "wait")]
        if !self.counts.lines.is_empty()
            && let Some(line) = self.others(&verdict, None, verdict.at())
        {
            return self.behind(verdict, &line, in_line);
        }
        self.decide_local(&mut verdict);
        let mut begun = RefundGuard::new(&self.counts, verdict);
        let verdict = begun.verdict();
        if verdict.found().applied().is_empty() {
            return (begun, NextStep::Nothing);
        }
        if !verdict.is_granted() {
            let next = self.after_a_denial(verdict, in_line);
            return (begun, next);
        }
        if self.is_shared(verdict) {
            return (begun, NextStep::AskShared);
        }
        if verdict.found().has_shadows() {
            self.ask_shadows_here(begun.verdict_mut());
        }
        (begun, NextStep::Nothing)
    }

    /// Returns the next step for a denied request.
    #[cfg_attr(not(feature = "wait"), allow(clippy::unused_self, reason = "without lines there is nothing to do"))]
    fn after_a_denial(&self, verdict: &Verdict, in_line: WhenFull) -> NextStep {
        match in_line {
            #[cfg(feature = "wait")]
            WhenFull::Queue if self.line_after(verdict, verdict.at()).is_some() => NextStep::StandInLine,
            #[cfg(feature = "wait")]
            WhenFull::Queue => NextStep::Nothing,
            WhenFull::Deny => {
                let _ = verdict;
                NextStep::Nothing
            }
        }
    }

    /// Performs the steps that wait.
    pub(super) async fn carry_on(&self, mut begun: RefundGuard<'_>, next: NextStep, in_line: WhenFull) -> Verdict {
        if next == NextStep::AskShared {
            if self.ask_shared(&mut begun).await {
                return begun.done();
            }
            if self.after_a_denial(begun.verdict(), in_line) == NextStep::Nothing {
                return begun.done();
            }
        }
        #[cfg(feature = "wait")]
        return self.stand_in_line(begun).await;
        #[cfg(not(feature = "wait"))]
        begun.done()
    }

    /// Returns `true` if a shared rule matches the request.
    pub(super) fn is_shared(&self, verdict: &Verdict) -> bool {
        let is_shared = |applied: &MatchedRule| applied.home == CountedIn::Shared;
        self.shared.is_some() && verdict.found().applied().iter().any(is_shared)
    }

    /// Returns `true` if a shared rule matches the request but did not count it, because its estimated cost was 0.
    pub(super) fn is_free_shared(&self, verdict: &Verdict) -> bool {
        self.shared.is_some() && verdict.found().free().iter().any(|applied| applied.home == CountedIn::Shared)
    }

    /// Lets the `load` rules deny requests that exceed the machine's capacity.
    #[cold]
    fn shed(&self, verdict: &mut Verdict) {
        for nth in 0..verdict.found().applied().len() {
            let number = verdict.found().applied()[nth].rule;
            let Some(rule) = verdict.rules().rule(number).map(CompiledRule::rule) else { continue };
            if rule.load.is_none() {
                continue;
            }
            if let Some(resource) = self.sheddings.refuses(&rule.name, &self.load) {
                verdict.made_mut().found.refuse(number, DenyReason::Overloaded(resource));
            }
        }
    }

    /// Queries the shared store and, if it grants, the shadow rules; returns `true` if granted. If it denies, local
    /// charges are refunded.
    pub(super) async fn ask_shared(&self, begun: &mut RefundGuard<'_>) -> bool {
        let said = match &self.shared {
            Some(shared) if self.is_shared(begun.verdict()) => {
                let asking = InFlightQuery::new(shared, &self.counts, begun.lend(), &self.behind);
                let (verdict, said) = asking.answer().await;
                begun.put_back(verdict);
                said
            }
            _ => SharedResult::default(),
        };
        let is_granted = said.is_granted();
        begun.verdict_mut().made_mut().shared = said.enforced;
        if !is_granted {
            begun.give_back_local();
        } else if begun.verdict().found().has_shadows() {
            self.ask_shadows_here(begun.verdict_mut());
            said.shadows.into_iter().for_each(|shadow| begun.verdict_mut().add_shadow(shadow));
        }
        is_granted
    }

    /// Checks each local shadow rule as if it were active.
    fn ask_shadows_here(&self, verdict: &mut Verdict) {
        let mut shadows = verdict.shadows_of(CountedIn::Local);
        if self.shared.is_none() {
            shadows.extend(verdict.shadows_of(CountedIn::Shared));
        }
        for nth in shadows {
            if let Some(decision) = self.decide_here(verdict, Scope::Shadow(nth)) {
                verdict.add_shadow(Shadow { nth, decision, here: true });
            }
        }
    }

    /// Checks all limits that are counted in this process.
    pub(super) fn decide_local(&self, verdict: &mut Verdict) {
        // Most requests have a single query, which needs no list.
        if !verdict.rules().has_reserved()
            && let Some(ask) = Queries::only(verdict)
        {
            let decision = LocalStore::decide(self.local(), &[ask], verdict.at(), MaxWait::FOREVER);
            verdict.made_mut().local = Some(decision);
        } else {
            verdict.made_mut().local = self.decide_here(verdict, verdict.made().here);
        }
    }

    /// Returns the decision of the local counts; `None` if there is nothing to check.
    fn decide_here(&self, verdict: &Verdict, part: Scope) -> Option<Decision> {
        let mut asks = Queries::of(verdict, part);
        if asks.is_empty() {
            return None;
        }
        if !verdict.rules().has_reserved() {
            return Some(LocalStore::decide(self.local(), &asks, verdict.at(), MaxWait::FOREVER));
        }
        let mut reserved = self.counts.reserved.lock();
        reserved.bound(&self.counts, verdict, part, &mut asks);
        let decision = LocalStore::decide(self.local(), &asks, verdict.at(), MaxWait::FOREVER);
        reserved.keep(&self.counts, verdict, part, &decision);
        Some(decision)
    }
}
