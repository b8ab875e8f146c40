//! The steps of a decision: local limits, shared limits, shadow rules.

use super::asks::{Charges, Scope, ScopedDecision};
use super::shared_store::InFlightQuery;
use super::verdict::VerdictParts;
use super::{Engine, Verdict};
use diana_core::{Ask, MaxWait};
use diana_rules::Attributes;
use diana_rules::rule::{CountedIn, Mode};
use diana_rules::ruleset::{CompiledLimit, CompiledRule, DenyReason, MatchedRule, RuleNotCallable};

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

/// The answer of the only query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    Granted,
    Denied,
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
        match self.decide_only_query(verdict) {
            Some(Answered::Granted) => NextStep::Finish,
            Some(Answered::Denied) => self.after_denial(verdict, when_full),
            None => self.start_with_any(verdict, when_full),
        }
    }

    /// Decides about a request that has a single query and needs no other step, as most requests do: the same as
    /// [`start_with_any`](Self::start_with_any), without its checks. `None` if the request may need more.
    #[inline]
    fn decide_only_query(&self, verdict: &mut Verdict) -> Option<Answered> {
        let VerdictParts { rules, matches, at, local_scope, decisions, .. } = verdict.parts_mut();
        let rules = rules.as_ref()?;
        let matched = matches.only()?;
        let is_local = matched.counted_in == CountedIn::Local || self.state.shared.is_none();
        let has_steps = rules.has_load() || rules.has_reserved() || !self.state.counts.queues.is_empty();
        if has_steps || !is_local || matched.mode != Mode::Enforced {
            return None;
        }
        let [limit] = rules.rule(matched.rule)?.limits(matched) else { return None };
        let CompiledLimit { limit, max_wait, .. } = limit;
        let ask = Ask { limit, key: matches.key(matched), cost: matched.cost, max_wait: *max_wait };
        let answer = self.state.counts.store.decide_one(ask, *at, MaxWait::FOREVER);
        decisions.push_local(*local_scope, answer);
        Some(if answer.is_granted() { Answered::Granted } else { Answered::Denied })
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
        self.decide_local(verdict);
        if verdict.matches().matched().is_empty() {
            return if self.charges_shared(verdict) { NextStep::QueryShared } else { NextStep::Finish };
        }
        if !verdict.is_granted() {
            return self.after_denial(verdict, when_full);
        }
        if self.is_shared(verdict) || self.charges_shared(verdict) {
            return NextStep::QueryShared;
        }
        if verdict.matches().has_shadows() {
            // If a custom algorithm of a shadow rule panics, the charges of active rules are refunded.
            verdict.refund_on_drop(&self.state.counts);
            self.decide_local_shadows(verdict);
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

    /// Checks all limits that are counted in this process.
    pub(super) fn decide_local(&self, verdict: &mut Verdict) {
        let scope = verdict.parts().local_scope;
        // A single query needs no list.
        if !verdict.rules().has_reserved()
            && let Some(ask) = verdict.only_ask(scope)
        {
            let answer = self.local().decide_one(ask, verdict.at(), MaxWait::FOREVER);
            verdict.parts_mut().decisions.push_local(scope, answer);
        } else if let Some(decision) = self.state.counts.decide(verdict, scope) {
            verdict.add(ScopedDecision { scope, decision, is_local: true });
        }
    }
}
