//! Corrects the cost of a request once it is known.
//!
//! Before a request is carried out, its cost (tokens, bytes) is an estimate. Afterwards, the difference is charged
//! unconditionally, even over the limit, or refunded as far as it has not expired.
//!
//! The status that a verdict then reports (remaining permits and reset) is the one after the correction: read from
//! local counts, and computed for shared counts, where reading would take another round trip.

use super::asks::{AskList, Scope, ScopedDecision};
use super::{EngineState, Verdict};
use crate::ruleset::CompiledLimit;
use diana_core::{
    Answer, Ask, Change, Cost, Decision, Limit, LocalStore, MAX_PERMITS, MaxWait, Outcome, Quota, Receipt, Restores,
    Status, Timestamp,
};
use diana_rules::rule::{CostOf, CountedIn, OnStatus, Rule};
use smallvec::SmallVec;
use std::time::Duration;

/// The actual cost of a request, and the status of its response.
///
/// ```
/// use diana::ActualCost;
///
/// let costs = ActualCost::all(1_250); // to every rule with a `cost`
/// let costs = costs.rule("bytes", 98_304); // but to this one
/// let costs = costs.status(401); // for rules with `count`
/// # let _ = costs;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActualCost {
    all: Option<u64>,
    by_rule: SmallVec<[(String, u64); 2]>,
    pub(super) status: Option<u16>,
}

impl ActualCost {
    /// Creates an empty value: no cost is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the cost for every rule with a `cost` field. Rules without one count requests, and keep a cost of 1.
    pub fn all(cost: u64) -> Self {
        Self { all: Some(cost), ..Self::default() }
    }

    /// Sets the cost for the rule of this name, with or without a `cost` field.
    #[must_use]
    pub fn rule(mut self, name: impl Into<String>, cost: u64) -> Self {
        self.by_rule.push((name.into(), cost));
        self
    }

    /// Sets the status of the response: rules with `count` are charged or refunded by it, once.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds other costs, which replace those that both have.
    pub(super) fn and(mut self, later: Self) -> Self {
        self.all = later.all.or(self.all);
        self.by_rule.extend(later.by_rule);
        self.status = self.status.or(later.status);
        self
    }

    /// Returns `true` if neither a cost nor a status is set.
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.by_rule.is_empty() && self.status.is_none()
    }
}

impl ActualCost {
    /// Returns the actual cost for a rule: 0 if the response is refunded, `None` if it is not counted.
    pub(super) fn cost_for(&self, rule: &Rule) -> Option<u64> {
        if let Some(count) = &rule.count {
            let is_about = self.status.is_some_and(|status| count.is_about(status));
            match count.then {
                OnStatus::Refund if is_about => return Some(0),
                OnStatus::Charge if !is_about => return None,
                OnStatus::Refund | OnStatus::Charge => {}
            }
        }
        let named = self.by_rule.iter().rev().find(|(name, _)| *name == rule.name).map(|(_, cost)| *cost);
        let cost = named.or_else(|| self.all.filter(|_| rule.cost != CostOf::Request))?;
        // Clamped to the maximum that a limit can count.
        Some(cost.min(MAX_PERMITS))
    }
}

/// The corrections of one decision.
#[derive(Default)]
struct Corrections<'a> {
    /// Additional charges.
    charged: AskList<'a>,
    /// Refunds, and the answers by which they were charged.
    returned: AskList<'a>,
    answers: SmallVec<[Answer; 8]>,
    /// The queries with nothing left to refund.
    zeroed: SmallVec<[(Scope, usize); 2]>,
    /// The decision after the correction.
    after: SmallVec<[Answer; 8]>,
}

impl<'a> Corrections<'a> {
    fn of(verdict: &'a Verdict, scoped: &ScopedDecision, costs: &ActualCost) -> Self {
        let mut all = Self::default();
        let (zeroed, limits) = (&verdict.unusual.settled_to_zero, verdict.limits_in(scoped.scope));
        for (index, ((matched, limit), answer)) in limits.zip(scoped.decision.answers()).enumerate() {
            let rule = verdict.rules().rule(matched.rule).map(crate::ruleset::CompiledRule::rule);
            let cost = rule.filter(|_| is_settled(limit)).and_then(|rule| costs.cost_for(rule));
            let is_empty = zeroed.contains(&(scoped.scope, index));
            let (Some(cost), Outcome::Granted { wait, receipt }) = (cost, answer.outcome) else {
                all.zeroed.extend(is_empty.then_some((scoped.scope, index)));
                all.after.push(*answer);
                continue;
            };
            let granted = |cost| {
                let receipt = Receipt::new(cost, receipt.at()).with_mark(receipt.mark());
                answer.with_outcome(Outcome::Granted { wait, receipt })
            };
            let taken = if is_empty { 0 } else { receipt.cost().get() };
            let ask = |cost| Ask { cost, ..verdict.ask(matched, limit) };
            if let Ok(more) = Cost::new(cost.saturating_sub(taken)) {
                all.charged.push(ask(more));
            }
            if let Ok(less) = Cost::new(taken.saturating_sub(cost)) {
                all.returned.push(ask(less));
                all.answers.push(granted(less));
            }
            let status = corrected(&limit.limit, answer.status(), taken, cost);
            match Cost::new(cost) {
                Ok(cost) => all.after.push(granted(cost).with_status(status)),
                Err(_) => {
                    all.zeroed.push((scoped.scope, index));
                    all.after.push(answer.with_status(status));
                }
            }
        }
        all
    }
}

/// Returns `true` if a limit is corrected. Concurrency permits are released as they were acquired; an interval is
/// consumed by one grant, whatever it costs.
fn is_settled(limit: &CompiledLimit) -> bool {
    !limit.is_returned && !matches!(limit.limit.properties().restores, Restores::AfterInterval(_))
}

/// Returns the status of a key after it was charged `cost` instead of `taken`, ignoring concurrent requests.
pub(super) fn corrected(limit: &Limit, before: Status, taken: u64, cost: u64) -> Status {
    let remaining = before.remaining.saturating_add(taken).saturating_sub(cost).min(before.limit);
    let reset = match limit.properties().restores {
        // The time until a bucket is full changes by the time that refilling the difference takes.
        Restores::Continuously(quota) | Restores::InSteps(quota) => match cost.checked_sub(taken) {
            Some(more) => before.reset.saturating_add(refill(quota, more)),
            None => before.reset.saturating_sub(refill(quota, taken - cost)),
        },
        // The end of a window does not change, unless the window becomes unused.
        _ if remaining == before.limit => Duration::ZERO,
        _ => before.reset,
    };
    Status { remaining, reset, ..before }
}

/// Returns the time that refilling `permits` takes.
fn refill(quota: Quota, permits: u64) -> Duration {
    let nanos = u128::from(permits).saturating_mul(quota.period().as_nanos()).div_ceil(u128::from(quota.permits()));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl Verdict {
    /// Reports the status as it will be after the correction, where the shared store is updated only later.
    pub(super) fn expect(&mut self, costs: &ActualCost) {
        if costs.is_empty() || !self.is_granted() {
            return;
        }
        for index in 0..self.decisions.len() {
            let scoped = &self.decisions[index];
            if scoped.scope.is_shadow() || self.is_look(scoped.scope) {
                continue;
            }
            let after = Corrections::of(self, scoped, costs).after;
            let answers = scoped.decision.answers().iter().zip(after);
            let answers = answers.map(|(answer, after)| answer.with_status(after.status()));
            let expected = Decision::new(answers).with_note(scoped.decision.note());
            self.decisions[index].decision = expected;
        }
    }
}

impl EngineState {
    /// Corrects the cost of a granted request once it is known. A higher cost is charged, even over the limit; a lower
    /// one is refunded as far as the charge has not expired: not at all if its window is over.
    ///
    /// If it has the status of the response, rules with `count` are charged or refunded by it, once.
    ///
    /// Concurrency permits (`concurrent`) and intervals (`every`) are not corrected. A `smooth_*` limit is refunded
    /// only if the whole charge is, and no other request came since. A second correction refunds only a part of what
    /// the first charged to a bucket on top of its grant.
    pub(super) async fn settle(&self, verdict: &mut Verdict, costs: &ActualCost) {
        if costs.is_empty() || !verdict.is_granted() {
            return;
        }
        if let Some(asks) = self.charge_by_status(verdict, costs) {
            self.charge_shared_now(asks).await;
        }
        let now = self.counts.now();
        for index in 0..verdict.decisions.len() {
            let scoped = &verdict.decisions[index];
            if scoped.decision.is_granted() && !verdict.is_look(scoped.scope) {
                self.settle_one(verdict, index, costs, now).await;
            }
        }
        if !verdict.matches().uncharged().is_empty() {
            self.settle_free(verdict, costs, now).await;
        }
    }

    /// Charges the rules for which the estimated cost was 0, so that they were not checked.
    #[cold]
    async fn settle_free(&self, verdict: &mut Verdict, costs: &ActualCost, now: Timestamp) {
        let free = verdict.matches().uncharged().len();
        verdict.unusual.charged_free.resize(free, 0);
        for index in 0..free {
            let (matched, before) = (&verdict.matches().uncharged()[index], verdict.unusual.charged_free[index]);
            let Some(rule) = verdict.rules().rule(matched.rule) else { continue };
            let Some(cost) = costs.cost_for(rule.rule()) else { continue };
            // Earlier charges stay, since there is no receipt for them.
            let Ok(more) = Cost::new(cost.saturating_sub(before)) else { continue };
            for limit in rule.limits(matched).iter().filter(|limit| is_settled(limit)) {
                let ask = Ask { cost: more, ..verdict.ask(matched, limit) };
                match self.shared.as_ref().filter(|_| limit.counted_in == CountedIn::Shared) {
                    Some(shared) => {
                        // If the store is unreachable, the charge is lost.
                        let _ = shared.change(&[ask], now, Change::Charge).await;
                    }
                    None => LocalStore::charge(&self.counts.store, ask, now),
                }
            }
            verdict.unusual.charged_free[index] = cost;
        }
    }

    /// Corrects one decision, in the store that made it.
    async fn settle_one(&self, verdict: &mut Verdict, index: usize, costs: &ActualCost, now: Timestamp) {
        let scoped = &verdict.decisions[index];
        let (scope, note) = (scoped.scope, scoped.decision.note());
        let Corrections { charged, returned, answers, zeroed, mut after } = Corrections::of(verdict, scoped, costs);
        let refunded = Decision::from(answers).with_note(note);
        match self.shared.as_ref().filter(|_| !scoped.is_local) {
            Some(shared) => {
                // If the store is unreachable, the estimate stays.
                if !returned.is_empty() {
                    let _ = shared.change(&returned, now, Change::Refund(&refunded)).await;
                }
                let charged = charged;
                let _ = shared.change(&charged, now, Change::Charge).await;
            }
            None => {
                if !returned.is_empty() {
                    LocalStore::refund(&self.counts.store, &returned, &refunded, now);
                }
                charged.into_iter().for_each(|ask| LocalStore::charge(&self.counts.store, ask, now));
                self.read_statuses(verdict, scope, &mut after, now);
            }
        }
        self.counts.wake(&returned);
        drop(returned);
        verdict.decisions[index].decision = Decision::from(after).with_note(note);
        verdict.unusual.settled_to_zero.retain(|(known, _)| *known != scope);
        verdict.unusual.settled_to_zero.extend(zeroed);
    }

    /// Reads the current status of the keys of a decision.
    fn read_statuses(&self, verdict: &Verdict, scope: Scope, after: &mut [Answer], now: Timestamp) {
        let peeked = LocalStore::peek(&self.counts.store, &verdict.asks(scope), now, MaxWait::FOREVER);
        for ((answer, current), (_, limit)) in after.iter_mut().zip(peeked.answers()).zip(verdict.limits_in(scope)) {
            if is_settled(limit) {
                *answer = answer.with_status(current.status());
            }
        }
    }
}
