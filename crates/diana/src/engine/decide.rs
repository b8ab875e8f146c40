//! The steps of a decision: local limits, shared limits, shadow rules.

use super::asks::{AskList, Charges, Scope, ScopedDecision, add_asks, only_ask};
use super::shared_store::InFlightQuery;
use super::verdict::VerdictParts;
use super::{Engine, Verdict};
use diana_core::MaxWait;
use diana_rules::Attributes;
use diana_rules::rule::{CountedIn, Mode};
use diana_rules::ruleset::{CompiledRule, DenyReason, MatchedRule, RuleNotCallable};

/// What to do with a request that must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// Queue it, if the rule allows it.
    Queue,
    /// Deny it.
    Deny,
}

/// The step after the local limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// None: the verdict is final.
    Finish,
    /// Query the shared store.
    QueryShared,
    /// Join the queue.
    Queue,
}

impl Engine {
    /// Returns an empty verdict by the active rules.
    #[inline(always)]
    pub(super) fn new_verdict(&self) -> Verdict {
        Verdict::new(self.state.rules.load(), self.now(), self.local_scope())
    }

    /// Decides as much about a request as possible without waiting.
    pub(super) fn start(&self, request: &dyn Attributes, when_full: WhenFull) -> (Verdict, NextStep) {
        let mut verdict = self.new_verdict();
        verdict.find(request);
        let next = self.start_with(&mut verdict, when_full);
        (verdict, next)
    }

    /// Decides as much about a call of a named rule as possible without waiting.
    pub(super) fn start_by(
        &self,
        rule: &str,
        call: &dyn Attributes,
        when_full: WhenFull,
    ) -> Result<(Verdict, NextStep), RuleNotCallable> {
        let mut verdict = self.new_verdict();
        verdict.find_by(rule, call)?;
        let next = self.start_with(&mut verdict, when_full);
        Ok((verdict, next))
    }

    /// Decides as much as possible about the matches of a verdict without waiting.
    #[inline]
    pub(super) fn start_with(&self, verdict: &mut Verdict, when_full: WhenFull) -> NextStep {
        if self.has_more_steps(verdict) {
            return self.start_with_any(verdict, when_full);
        }
        if self.decide_local(verdict) { NextStep::Finish } else { self.after_denial(verdict, when_full) }
    }

    /// Returns `true` if the request may need another step than [`decide_local`](Self::decide_local), as few do.
    #[inline]
    fn has_more_steps(&self, verdict: &Verdict) -> bool {
        let (rules, matches) = (verdict.rules(), verdict.matches());
        rules.has_load()
            || !self.state.counts.queues.is_empty()
            || matches.needs_more_steps()
            || self.is_shared(verdict)
    }

    /// Decides as much as possible about any matches of a verdict without waiting.
    #[inline(never)]
    fn start_with_any(&self, verdict: &mut Verdict, when_full: WhenFull) -> NextStep {
        if verdict.rules().has_load() {
            self.shed(verdict);
        }
        for index in 0..verdict.matches().denied().len() {
            let denial = verdict.matches().denied()[index];
            let Some(rule) = verdict.rules().rule(denial.rule) else { continue };
            if rule.rule().mode == Mode::Enforced {
                verdict.deny_by(denial);
                return NextStep::Finish;
            }
        }
        // Usually all queues are empty.
        if !self.state.counts.queues.is_empty()
            && let Some(queue) = self.busy_queue(verdict, None, verdict.at())
        {
            return self.join_or_deny(verdict, &queue, when_full);
        }
        if verdict.matches().has_looks() && !self.look_local(verdict) {
            return NextStep::Finish;
        }
        let is_granted = self.decide_local(verdict);
        if verdict.matches().matched().is_empty() {
            return if self.charges_shared(verdict) { NextStep::QueryShared } else { NextStep::Finish };
        }
        if !is_granted {
            return self.after_denial(verdict, when_full);
        }
        if self.is_shared(verdict) || self.charges_shared(verdict) {
            return NextStep::QueryShared;
        }
        if verdict.matches().has_shadows() {
            // If a custom algorithm of a shadow rule panics, the charges of active rules are refunded.
            verdict.refund_on_drop(&self.state.counts);
            self.decide_local_shadows(verdict);
            if verdict.matches().has_looks() {
                self.look_at_local_shadows(verdict);
            }
            verdict.keep_on_drop();
        }
        NextStep::Finish
    }

    /// Returns the next step for a denied request.
    fn after_denial(&self, verdict: &Verdict, when_full: WhenFull) -> NextStep {
        match when_full {
            WhenFull::Queue
                if verdict.rules().has_queues() && self.queue_after_denial(verdict, verdict.at()).is_some() =>
            {
                NextStep::Queue
            }
            WhenFull::Queue | WhenFull::Deny => NextStep::Finish,
        }
    }

    /// Performs the steps that wait. Dropping the future refunds all charges.
    pub(super) async fn finish_waiting(&self, mut verdict: Verdict, next: NextStep, when_full: WhenFull) -> Verdict {
        let is_decided = next == NextStep::QueryShared
            && (self.decide_shared(&mut verdict).await || self.after_denial(&verdict, when_full) == NextStep::Finish);
        if !is_decided {
            verdict = self.wait_in_queue(verdict).await;
        }
        if verdict.is_granted() && self.charges_shared(&verdict) {
            self.charge_shared(&verdict).await;
        }
        verdict.finish(&self.state.counts)
    }

    /// Returns `true` if a shared rule matches the request.
    pub(super) fn is_shared(&self, verdict: &Verdict) -> bool {
        let is_shared = |matched: &MatchedRule| matched.counted_in == CountedIn::Shared;
        self.state.shared.is_some() && verdict.matches().matched().iter().any(is_shared)
    }

    /// Returns `true` if a shared rule matches the request but did not count it, because its estimated cost was 0.
    pub(super) fn is_free_shared(&self, verdict: &Verdict) -> bool {
        let is_shared = |matched: &MatchedRule| matched.counted_in == CountedIn::Shared;
        self.state.shared.is_some() && verdict.matches().uncharged().iter().any(is_shared)
    }

    /// Lets the `load` rules deny requests that exceed the machine's capacity.
    #[cold]
    fn shed(&self, verdict: &mut Verdict) {
        for index in 0..verdict.matches().matched().len() {
            let number = verdict.matches().matched()[index].rule;
            let Some(rule) = verdict.rules().rule(number).map(CompiledRule::rule) else { continue };
            if rule.load.is_none() {
                continue;
            }
            if let Some(resource) = self.state.sheddings.denies(&rule.name, &self.state.load) {
                verdict.parts_mut().matches.deny_matched(index, DenyReason::Overloaded(resource));
            }
        }
    }

    /// Queries the shared store and, if it grants, the shadow rules; returns `true` if granted. If it denies, local
    /// charges are refunded.
    pub(super) async fn decide_shared(&self, verdict: &mut Verdict) -> bool {
        let state = &self.state;
        if verdict.matches().has_looks()
            && let Some(looked) = self.look_shared(verdict).await
        {
            let is_granted = looked.decision.is_granted();
            if !is_granted {
                state.counts.release_all(verdict, Charges::All);
            }
            verdict.add(looked);
            if !is_granted {
                return false;
            }
        }
        let results = match &state.shared {
            Some(store) if self.is_shared(verdict) => {
                InFlightQuery::start(verdict, store, &state.counts, &state.background).await
            }
            _ => Vec::new(),
        };
        if results.iter().any(|(of, _)| of.scope == Scope::Shared && !of.decision.is_granted()) {
            state.counts.release_all(verdict, Charges::All);
        }
        let mut results = results.into_iter().map(|(decision, _)| decision).peekable();
        if let Some(enforced) = results.next_if(|of| !of.scope.is_shadow()) {
            verdict.add(enforced);
        }
        let is_granted = verdict.is_granted();
        if is_granted && verdict.matches().has_shadows() {
            self.decide_local_shadows(verdict);
        }
        results.for_each(|shadow| verdict.add(shadow));
        if is_granted && verdict.matches().has_shadows() && verdict.matches().has_looks() {
            self.look_at_shadows(verdict).await;
        }
        is_granted
    }

    /// Checks each local shadow rule as if it were active.
    fn decide_local_shadows(&self, verdict: &mut Verdict) {
        let mut shadows = verdict.shadows_in(CountedIn::Local);
        if self.state.shared.is_none() {
            shadows.extend(verdict.shadows_in(CountedIn::Shared));
        }
        for scope in shadows.into_iter().map(Scope::Shadow) {
            if let Some(decision) = self.state.counts.decide(verdict, scope) {
                verdict.add(ScopedDecision { scope, decision, is_local: true });
            }
        }
    }

    /// Checks all limits that are counted in this process; returns `true` if they grant the request.
    #[inline]
    pub(super) fn decide_local(&self, verdict: &mut Verdict) -> bool {
        let VerdictParts { rules, matches, at, local_scope, decisions, .. } = verdict.parts_mut();
        let (Some(rules), scope) = (rules, *local_scope) else { return true };
        if rules.has_reserved() {
            return self.decide_local_reserved(verdict, scope);
        }
        // A single query needs no list.
        if let Some(ask) = only_ask(rules, matches, scope) {
            let answer = self.state.counts.store.decide_one(ask, *at, MaxWait::FOREVER);
            decisions.push_local(scope, answer);
            return answer.is_granted();
        }
        let mut asks = AskList::new();
        add_asks(rules, matches, scope, &mut asks);
        if asks.is_empty() {
            return true;
        }
        decisions.push_local_with(scope, |decision| {
            self.state.counts.store.decide_into(&asks, *at, MaxWait::FOREVER, decision);
        })
    }

    /// Checks all limits that are counted in this process, with a bound on reservations.
    #[cold]
    fn decide_local_reserved(&self, verdict: &mut Verdict, scope: Scope) -> bool {
        let Some(decision) = self.state.counts.decide(verdict, scope) else { return true };
        let is_granted = decision.is_granted();
        verdict.add(ScopedDecision { scope, decision, is_local: true });
        is_granted
    }
}
