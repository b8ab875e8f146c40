//! The steps of a decision: local limits, shared limits, shadow rules.

use super::asks::{AskList, Charges, Scope, ScopedDecision, add_asks, only_ask};
use super::permit::{Denial, Permit};
use super::shared_store::InFlightQuery;
use super::verdict::RecycledVerdict;
use super::{AcquireFuture, ActiveRules, Engine, EngineState, Verdict};
use crate::ruleset::{CompiledRule, DenyReason, MatchedRule, Needs, Plan, Purpose};
use arc_swap::ArcSwap;
use diana_core::{Cost, LocalStore, MaxWait, Query};
use diana_rules::rule::{CountedIn, Mode};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// The possible effects of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecideMode {
    /// Returns the decision that would be made, without waiting; nothing is charged or counted. A request that stands for 0 hits is
    /// denied only if a limit is exceeded, that is, more is in use than it allows.
    Peek,
    /// Charges, and denies a request that would have to be queued. A time that a limit has reserved is not waited for: it is
    /// the permit's [wait](Verdict::wait).
    Deny,
    /// Charges, queues the request if a rule has `wait`, and waits for reserved times.
    Queue,
}

impl DecideMode {
    #[inline]
    pub(super) fn purpose(self) -> Purpose {
        match self {
            Self::Peek => Purpose::Peek,
            Self::Deny | Self::Queue => Purpose::Charge,
        }
    }
}

/// The step after the local limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    /// None: the verdict is final.
    Finish,
    /// Query the shared store.
    QueryShared,
    /// Join the queue.
    Queue,
}

impl AcquireFuture {
    /// Decides about the matches of a verdict. Local limits are decided at once.
    #[inline]
    pub(super) fn decide(engine: &Engine, mut verdict: RecycledVerdict, mode: DecideMode) -> Self {
        if mode == DecideMode::Peek {
            return Self::peek(engine, verdict);
        }
        verdict.plan = engine.state.plan(&verdict);
        Self::decide_as_planned(engine, verdict, mode)
    }

    #[inline(always)]
    fn decide_as_planned(engine: &Engine, mut verdict: RecycledVerdict, mode: DecideMode) -> Self {
        let state = &*engine.state;
        let is_granted = match verdict.plan {
            Plan::Steps => return Self::decide_in_steps(engine, verdict, mode),
            Plan::Nothing => true,
            Plan::OneLimit => state.decide_one_limit(&mut verdict),
            Plan::Limits => state.decide_limits(&mut verdict),
        };
        if !is_granted && state.is_queued(&verdict, mode) {
            return Self::wait(engine, Permit::new(verdict).provisional(), NextStep::Queue, mode);
        }
        match verdict.finish(&state.counts) {
            None => Self::ready(Err(Denial::new(verdict))),
            Some(wait) => Self::grant(Permit::new(verdict), wait, mode),
        }
    }

    /// Decides about a request that needs more than local limits.
    #[inline(never)]
    fn decide_in_steps(engine: &Engine, verdict: RecycledVerdict, mode: DecideMode) -> Self {
        // If a custom algorithm panics, the charges are refunded.
        let mut permit = Permit::new(verdict).provisional();
        match engine.state.start_steps(permit.verdict_mut(), mode) {
            NextStep::Finish => match permit.finish_decision() {
                Ok((permit, wait)) => Self::grant(permit.confirmed(), wait, mode),
                Err(denial) => Self::ready(Err(denial)),
            },
            next => Self::wait(engine, permit, next, mode),
        }
    }

    /// Grants a request, after the time that a limit has reserved.
    #[inline]
    fn grant(permit: Permit, wait: Duration, mode: DecideMode) -> Self {
        if wait.is_zero() || mode == DecideMode::Deny {
            return Self::ready(Ok(permit));
        }
        let permit = permit.provisional();
        Self::waiting(async move { Ok(permit.after(wait).await) })
    }

    /// Performs the steps that wait. Dropping the future refunds all charges.
    #[cold]
    fn wait(engine: &Engine, mut permit: Permit, next: NextStep, mode: DecideMode) -> Self {
        let engine = engine.clone();
        Self::waiting(async move {
            engine.state.finish_waiting(&engine.rules, permit.verdict_mut(), next, mode).await;
            let (permit, wait) = permit.finish_decision()?;
            Ok(if mode == DecideMode::Deny { permit.confirmed() } else { permit.after(wait).await })
        })
    }

    /// Reads what would be decided.
    #[cold]
    fn peek(engine: &Engine, mut verdict: RecycledVerdict) -> Self {
        let engine = engine.clone();
        Self::waiting(async move {
            engine.state.peek(&mut verdict).await;
            verdict.finish_peek();
            if verdict.is_granted() { Ok(Permit::new(verdict)) } else { Err(Denial::new(verdict)) }
        })
    }
}

impl EngineState {
    /// Returns how a request is decided.
    #[inline]
    fn plan(&self, verdict: &Verdict) -> Plan {
        let is_busy = verdict.matches.needs().has(Needs::QUEUES) && !self.counts.queues.is_empty();
        verdict.matches.plan(Needs::SHARED.only_if(self.shared.is_some()).and(Needs::QUEUES.only_if(is_busy)))
    }

    /// Decides as much as possible about any matches of a verdict without waiting.
    fn start_steps(&self, verdict: &mut Verdict, mode: DecideMode) -> NextStep {
        if verdict.matches.needs().has(Needs::LOAD) {
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
        if verdict.matches.needs().has(Needs::QUEUES)
            && !self.counts.queues.is_empty()
            && let Some(queue) = self.busy_queue(verdict, None, verdict.at())
        {
            if mode == DecideMode::Queue {
                return NextStep::Queue;
            }
            self.deny_behind(verdict, &queue);
            return NextStep::Finish;
        }
        if verdict.matches().needs().has(Needs::LOOK) && !self.look_local(verdict) {
            return NextStep::Finish;
        }
        let is_granted = self.decide_local(verdict);
        if verdict.matches().matched().is_empty() {
            return if self.charges_shared(verdict) { NextStep::QueryShared } else { NextStep::Finish };
        }
        if !is_granted {
            return if self.is_queued(verdict, mode) { NextStep::Queue } else { NextStep::Finish };
        }
        if self.is_shared(verdict) || self.charges_shared(verdict) {
            return NextStep::QueryShared;
        }
        if verdict.matches().needs().has(Needs::SHADOW) {
            self.decide_local_shadows(verdict);
            if verdict.matches().needs().has(Needs::LOOK) {
                self.look_at_local_shadows(verdict);
            }
        }
        NextStep::Finish
    }

    /// Returns `true` if a denied request is queued.
    #[inline]
    fn is_queued(&self, verdict: &Verdict, mode: DecideMode) -> bool {
        mode == DecideMode::Queue
            && verdict.matches.needs().has(Needs::QUEUES)
            && self.queue_after_denial(verdict, verdict.at()).is_some()
    }

    /// Performs the steps that wait.
    async fn finish_waiting(
        &self,
        rules: &ArcSwap<ActiveRules>,
        verdict: &mut Verdict,
        next: NextStep,
        mode: DecideMode,
    ) {
        let is_decided =
            next == NextStep::QueryShared && (self.decide_shared(verdict).await || !self.is_queued(verdict, mode));
        if !is_decided {
            self.wait_in_queue(rules, verdict).await;
        }
        if verdict.is_granted() && self.charges_shared(verdict) {
            self.charge_shared(verdict).await;
        }
    }

    /// Reads the counts of all stores, and decides by them.
    async fn peek(&self, verdict: &mut Verdict) {
        let denied =
            verdict.matches().denied().iter().copied().find(|denial| {
                verdict.rules().rule(denial.rule).is_some_and(|rule| rule.rule().mode == Mode::Enforced)
            });
        if let Some(denial) = denied {
            return verdict.deny_by(denial);
        }
        let looks = [Scope::Look(CountedIn::Local), Scope::Look(CountedIn::Shared)];
        for scope in [verdict.local_scope, Scope::Shared].into_iter().chain(looks) {
            if scope == Scope::Shared && !self.is_shared(verdict) {
                continue;
            }
            let mut asks = verdict.asks(scope);
            if asks.is_empty() {
                continue;
            }
            // A peek of cost zero asks whether a limit is exceeded, so the maximum wait does not matter.
            asks.iter_mut().filter(|ask| ask.cost == Cost::ZERO).for_each(|ask| ask.max_wait = MaxWait::NONE);
            let (at, max_wait) = (verdict.at(), MaxWait::FOREVER);
            let peeked = match &self.shared {
                Some(shared) if matches!(scope, Scope::Shared | Scope::Look(CountedIn::Shared)) => {
                    shared.query(&asks, at, Query::Peek(max_wait)).await.ok()
                }
                _ => None,
            };
            let is_local = peeked.is_none();
            let decision = peeked.unwrap_or_else(|| LocalStore::peek(&self.counts.store, &asks, at, max_wait));
            drop(asks);
            verdict.add(ScopedDecision { scope, decision, is_local });
        }
    }

    /// Returns `true` if a shared rule matches the request.
    pub(super) fn is_shared(&self, verdict: &Verdict) -> bool {
        let is_shared = |matched: &MatchedRule| matched.counted_in == CountedIn::Shared;
        self.shared.is_some() && verdict.matches().matched().iter().any(is_shared)
    }

    /// Returns `true` if a shared rule matches the request but did not count it, because its estimated cost was 0.
    pub(super) fn is_free_shared(&self, verdict: &Verdict) -> bool {
        let is_shared = |matched: &MatchedRule| matched.counted_in == CountedIn::Shared;
        self.shared.is_some() && verdict.matches().uncharged().iter().any(is_shared)
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
            if let Some(resource) = self.sheddings.denies(&rule.name, &self.load) {
                verdict.matches.deny_matched(index, DenyReason::Overloaded(resource));
            }
        }
    }

    /// Queries the shared store and, if it grants, the shadow rules; returns `true` if granted. If it denies, local
    /// charges are refunded.
    pub(super) async fn decide_shared(&self, verdict: &mut Verdict) -> bool {
        if verdict.matches().needs().has(Needs::LOOK)
            && let Some(looked) = self.look_shared(verdict).await
        {
            let is_granted = looked.decision.is_granted();
            if !is_granted {
                self.counts.release_all(verdict, Charges::All);
            }
            verdict.add(looked);
            if !is_granted {
                return false;
            }
        }
        let results = match &self.shared {
            Some(store) if self.is_shared(verdict) => {
                InFlightQuery::start(verdict, store, &self.counts, &self.background).await
            }
            _ => Vec::new(),
        };
        if results.iter().any(|(scoped, _)| scoped.scope == Scope::Shared && !scoped.decision.is_granted()) {
            self.counts.release_all(verdict, Charges::All);
        }
        let mut results = results.into_iter().map(|(decision, _)| decision).peekable();
        if let Some(enforced) = results.next_if(|scoped| !scoped.scope.is_shadow()) {
            verdict.add(enforced);
        }
        let is_granted = verdict.is_granted();
        if is_granted && verdict.matches().needs().has(Needs::SHADOW) {
            self.decide_local_shadows(verdict);
        }
        results.for_each(|shadow| verdict.add(shadow));
        if is_granted && verdict.matches().needs().has(Needs::SHADOW) && verdict.matches().needs().has(Needs::LOOK) {
            self.look_at_shadows(verdict).await;
        }
        is_granted
    }

    /// Checks each local shadow rule as if it were active.
    fn decide_local_shadows(&self, verdict: &mut Verdict) {
        let mut shadows = verdict.shadows_in(CountedIn::Local);
        if self.shared.is_none() {
            shadows.extend(verdict.shadows_in(CountedIn::Shared));
        }
        for scope in shadows.into_iter().map(Scope::Shadow) {
            if let Some(decision) = self.counts.decide(verdict, scope) {
                verdict.add(ScopedDecision { scope, decision, is_local: true });
            }
        }
    }

    /// Checks all limits that are counted in this process; returns `true` if they grant the request.
    pub(super) fn decide_local(&self, verdict: &mut Verdict) -> bool {
        match verdict.plan {
            Plan::OneLimit => self.decide_one_limit(verdict),
            Plan::Nothing | Plan::Limits | Plan::Steps => self.decide_limits(verdict),
        }
    }

    /// Checks the only limit of a request: it needs no list.
    #[inline]
    fn decide_one_limit(&self, verdict: &mut Verdict) -> bool {
        let Verdict { rules, matches, at, local_scope, decisions, .. } = verdict;
        let only = rules.as_ref().and_then(|rules| only_ask(&rules.rules, matches));
        let Some(ask) = only.filter(|_| !matches.needs().has(Needs::RESERVATIONS)) else {
            return self.decide_limits(verdict);
        };
        let answer = self.counts.store.decide_one(ask, *at, MaxWait::FOREVER);
        decisions.push_local(*local_scope, answer);
        answer.is_granted()
    }

    /// Checks any number of limits, all or nothing.
    #[inline]
    fn decide_limits(&self, verdict: &mut Verdict) -> bool {
        let scope = verdict.local_scope;
        if verdict.matches.needs().has(Needs::RESERVATIONS) {
            return self.decide_reserved(verdict, scope);
        }
        let Verdict { rules: Some(rules), matches, at, decisions, .. } = verdict else { return true };
        let mut asks = AskList::new();
        add_asks(&rules.rules, matches, scope, &mut asks);
        if asks.is_empty() {
            return true;
        }
        decisions.push_local_with(scope, |decision| {
            self.counts.store.decide_into(&asks, *at, MaxWait::FOREVER, decision);
        })
    }

    /// Checks limits with a bound on reservations.
    #[cold]
    fn decide_reserved(&self, verdict: &mut Verdict, scope: Scope) -> bool {
        let Some(decision) = self.counts.decide(verdict, scope) else { return true };
        let is_granted = decision.is_granted();
        verdict.add(ScopedDecision { scope, decision, is_local: true });
        is_granted
    }
}
