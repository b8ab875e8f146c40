//! Rules that count by the status of the response (`count`): looked at before the request, charged after its response.
//!
//! # How it works
//! Before the request, such a rule only looks: it denies a request whose cost would exceed the limit, and charges
//! nothing. When the head of the response is there, its status decides whether the cost is charged, unconditionally.
//!
//! # What always holds (tests/it/count_by_status.rs)
//! - Requests whose response has another status, or none, are never charged.
//! - Requests that run at the same time may all pass the look, so that at most the limit and what they cost is charged.
//! - A response is charged once, however often its status is reported.

use super::actual_cost::corrected;
use super::asks::{AskList, OwnedAsks, Scope, ScopedDecision};
use super::charge_other_rules::charge_in_background;
use super::permit::poll_once;
use super::{ActualCost, EngineState, Verdict};
use crate::ruleset::{ChargedAt, CompiledRule, KeyOutcome, MatchedRule, Needs};
use diana_core::{Answer, Ask, Cost, Decision, LocalStore, MaxWait, Query, Status};
use diana_rules::rule::{CountedIn, Mode, Rule};
use smallvec::SmallVec;
use std::sync::Arc;

impl EngineState {
    /// Looks at the rules that are counted in this process; returns `true` if they grant the request.
    #[cold]
    pub(super) fn look_local(&self, verdict: &mut Verdict) -> bool {
        let all = [Scope::Look(CountedIn::Local), Scope::Look(CountedIn::Shared)];
        // Without a shared store, both are counted in this process.
        let scopes = if self.shared.is_some() { &all[..1] } else { &all };
        for scope in scopes {
            let asks = verdict.asks(*scope);
            if asks.is_empty() {
                continue;
            }
            let decision = LocalStore::peek(&self.counts.store, &asks, verdict.at(), MaxWait::NONE);
            drop(asks);
            verdict.add(ScopedDecision { scope: *scope, decision, is_local: true });
        }
        verdict.is_granted()
    }

    /// Looks at the rules that are counted in the shared store; `None` if there are none.
    pub(super) async fn look_shared(&self, verdict: &Verdict) -> Option<ScopedDecision> {
        self.look(verdict, Scope::Look(CountedIn::Shared)).await
    }

    async fn look(&self, verdict: &Verdict, scope: Scope) -> Option<ScopedDecision> {
        let asks = verdict.asks(scope);
        let is_shared = verdict.limits_in(scope).any(|(matched, _)| matched.counted_in == CountedIn::Shared);
        if asks.is_empty() {
            return None;
        }
        let (at, max_wait) = (verdict.at(), MaxWait::NONE);
        let looked = match &self.shared {
            Some(shared) if is_shared => shared.query(&asks, at, Query::Peek(max_wait)).await.ok(),
            _ => None,
        };
        let is_local = looked.is_none();
        let decision = looked.unwrap_or_else(|| LocalStore::peek(&self.counts.store, &asks, at, max_wait));
        Some(ScopedDecision { scope, decision, is_local })
    }

    /// Looks at the shadow rules of this process, or of both stores if there is no shared one.
    pub(super) fn look_at_local_shadows(&self, verdict: &mut Verdict) {
        for index in verdict.shadow_looks() {
            let scope = Scope::Shadow(index);
            let decision = LocalStore::peek(&self.counts.store, &verdict.asks(scope), verdict.at(), MaxWait::NONE);
            verdict.add(ScopedDecision { scope, decision, is_local: true });
        }
    }

    /// Looks at all shadow rules.
    pub(super) async fn look_at_shadows(&self, verdict: &mut Verdict) {
        for index in verdict.shadow_looks() {
            if let Some(looked) = self.look(verdict, Scope::Shadow(index)).await {
                verdict.add(looked);
            }
        }
    }

    /// Charges a request by the status of its response, once: local counts at once. Returns the charges in the shared
    /// store. The verdict then has the statuses after them.
    pub(super) fn charge_by_status(&self, verdict: &mut Verdict, costs: &ActualCost) -> Option<OwnedAsks> {
        let is_known = verdict.unusual.is_status_known;
        if costs.has_no_status() || is_known || !verdict.matches().needs().has(Needs::LOOK) || !verdict.is_granted() {
            return None;
        }
        verdict.unusual.is_status_known = true;
        let now = self.counts.now();
        let (mut local, mut shared) = (AskList::new(), AskList::new());
        for (index, matched) in verdict.matches().matched().iter().enumerate() {
            let Some((rule, cost)) = verdict.charge_of(index, matched, costs) else { continue };
            rule.record(KeyOutcome::Allowed, verdict.matches().key(matched), 1, now);
            let is_shared = matched.counted_in == CountedIn::Shared && self.shared.is_some();
            let asks = if is_shared { &mut shared } else { &mut local };
            asks.extend(rule.limits(matched).iter().map(|limit| Ask { cost, ..verdict.ask(matched, limit) }));
        }
        for ask in local {
            LocalStore::charge(&self.counts.store, ask, now);
        }
        let owned = (!shared.is_empty()).then(|| OwnedAsks::copied(&shared));
        drop(shared);
        self.report_charges_by_status(verdict, costs);
        owned
    }

    /// Writes the statuses after the charges into the verdict: read from local counts, computed for those of the shared
    /// store, which is updated later.
    fn report_charges_by_status(&self, verdict: &mut Verdict, costs: &ActualCost) {
        for index in 0..verdict.decisions.len() {
            let scoped = &verdict.decisions[index];
            if !matches!(scoped.scope, Scope::Look(_)) {
                continue;
            }
            let is_local = scoped.is_local;
            let statuses = is_local
                .then(|| {
                    LocalStore::peek(&self.counts.store, &verdict.asks(scoped.scope), self.counts.now(), MaxWait::NONE)
                })
                .map(|peeked| peeked.answers().iter().map(Answer::status).collect::<SmallVec<[Status; 2]>>());
            let limits = verdict.limits_in(scoped.scope).zip(scoped.decision.answers()).enumerate();
            let answers = limits.map(|(index, ((matched, limit), answer))| {
                let rule = verdict.rules().rule(matched.rule).map(CompiledRule::rule);
                let cost = rule.and_then(|rule| costs.charge_of(rule, matched.cost)).map_or(0, Cost::get);
                let status = statuses.as_ref().and_then(|statuses| statuses.get(index).copied());
                answer.with_status(status.unwrap_or_else(|| corrected(&limit.limit, answer.status(), 0, cost)))
            });
            let after = Decision::new(answers).with_note(scoped.decision.note());
            verdict.decisions[index].decision = after;
        }
    }

    /// Charges the shared store in the background: a response does not wait for it.
    pub(super) fn charge_shared_later(&self, asks: OwnedAsks) {
        let Some(store) = &self.shared else { return };
        let work = charge_in_background(Arc::clone(store), Arc::clone(&self.counts), asks);
        if let Err(work) = self.background.spawn(work) {
            // Without a runtime, nothing can be sent that has to wait.
            poll_once(work);
        }
    }

    /// Charges the shared store.
    pub(super) async fn charge_shared_now(&self, asks: OwnedAsks) {
        if let Some(store) = &self.shared {
            charge_in_background(Arc::clone(store), Arc::clone(&self.counts), asks).await;
        }
    }
}

impl Verdict {
    /// Returns `true` if a decision has charged nothing, because its rules are charged after the response.
    pub(super) fn is_look(&self, scope: Scope) -> bool {
        match scope {
            Scope::Everything | Scope::Local | Scope::Shared => false,
            Scope::Look(_) => true,
            Scope::Shadow(index) => {
                self.matches().needs().has(Needs::LOOK) && self.matches().matched().get(index).is_some_and(is_look)
            }
        }
    }

    /// Returns the indexes of the shadow rules that are charged after the response.
    fn shadow_looks(&self) -> SmallVec<[usize; 4]> {
        let matched = self.matches().matched().iter().enumerate();
        let shadows = matched.filter(|(_, matched)| matched.mode == Mode::Shadow && is_look(matched));
        shadows.map(|(index, _)| index).collect()
    }

    /// Returns the charge of a rule after the response.
    fn charge_of(&self, index: usize, matched: &MatchedRule, costs: &ActualCost) -> Option<(&CompiledRule, Cost)> {
        let rule = self.rules().rule(matched.rule).filter(|_| is_look(matched))?;
        // A request that a shadow rule would have denied would have had no response.
        let is_denied = |scoped: &ScopedDecision| scoped.scope == Scope::Shadow(index) && !scoped.decision.is_granted();
        if self.decisions.iter().any(is_denied) {
            return None;
        }
        Some((rule, costs.charge_of(rule.rule(), matched.cost)?))
    }
}

fn is_look(matched: &MatchedRule) -> bool {
    matched.charged_at == ChargedAt::Response
}

impl ActualCost {
    fn has_no_status(&self) -> bool {
        self.status.is_none()
    }

    /// Returns the charge of a rule with `count` after the response; `None` if `count` ignores its status, or the actual
    /// cost is 0.
    fn charge_of(&self, rule: &Rule, cost: Cost) -> Option<Cost> {
        let count = rule.count.as_ref()?;
        self.status.filter(|status| count.is_about(*status))?;
        self.cost_for(rule).map_or(Some(cost), |cost| Cost::new(cost).ok())
    }
}
