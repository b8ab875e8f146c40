//! Corrects the cost of a request once it is known.
//!
//! Before a request is carried out, its cost (tokens, bytes) is an estimate. Afterwards, the difference is charged
//! unconditionally, even over the limit, or refunded as far as it has not expired.
//!
//! The status that a verdict then reports (remaining permits and reset) is the one after the correction: read from
//! local counts, and computed for shared counts, where reading would take another round trip.

use super::queries::{AskList, Queries, Scope, ask};
use super::record::SharedDecision;
use super::{Engine, Verdict};
use diana_core::{
    Answer, Ask, Cost, Decision, LeakyBucket, Limit, LocalStore, MAX_PERMITS, MaxWait, MinInterval, Outcome, Quota,
    Receipt, RefillingBucket, Status, Store, Timestamp, TokenBucket,
};
use diana_rules::rule::{CostOf, CountedIn, Rule};
use diana_rules::ruleset::CompiledLimit;
use smallvec::SmallVec;
use std::time::Duration;

/// The actual cost of a request.
///
/// ```
/// use diana::ActualCost;
///
/// let costs = ActualCost::all(1_250); // to every rule with a `cost`
/// let costs = costs.rule("bytes", 98_304); // but to this one
/// # let _ = costs;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActualCost {
    all: Option<u64>,
    by_rule: SmallVec<[(String, u64); 2]>,
}

impl ActualCost {
    /// Creates an empty value: no cost is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the cost for every rule with a `cost` field. Rules without one count requests, and keep a cost of 1.
    pub fn all(cost: u64) -> Self {
        Self { all: Some(cost), by_rule: SmallVec::new() }
    }

    /// Sets the cost for the rule of this name, with or without a `cost` field.
    #[must_use]
    pub fn rule(mut self, name: impl Into<String>, cost: u64) -> Self {
        self.by_rule.push((name.into(), cost));
        self
    }

    /// Returns `true` if no cost is set.
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.by_rule.is_empty()
    }
}

impl ActualCost {
    /// Returns the actual cost for a rule.
    fn of(&self, rule: &Rule) -> Option<u64> {
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
    emptied: SmallVec<[(Scope, usize); 2]>,
    /// The decision after the correction.
    after: SmallVec<[Answer; 8]>,
}

impl<'a> Corrections<'a> {
    fn of(verdict: &'a Verdict, part: Scope, made: &Decision, costs: &ActualCost) -> Self {
        let mut all = Self::default();
        let emptied = &verdict.made().emptied;
        for (nth, ((applied, limit), answer)) in Queries::places(verdict, part).zip(made.answers()).enumerate() {
            let rule = verdict.rules().rule(applied.rule).map(diana_rules::ruleset::CompiledRule::rule);
            let cost = rule.filter(|_| is_settled(limit)).and_then(|rule| costs.of(rule));
            let is_empty = emptied.contains(&(part, nth));
            let (Some(cost), Outcome::Granted { wait, receipt }) = (cost, answer.outcome) else {
                all.emptied.extend(is_empty.then_some((part, nth)));
                all.after.push(*answer);
                continue;
            };
            let granted = |cost| {
                let receipt = Receipt::new(cost, receipt.at()).with_mark(receipt.mark());
                Answer { outcome: Outcome::Granted { wait, receipt }, status: answer.status }
            };
            let taken = if is_empty { 0 } else { receipt.cost().get() };
            let ask = |cost| Ask { cost, ..ask(verdict, applied, limit) };
            if let Ok(more) = Cost::new(cost.saturating_sub(taken)) {
                all.charged.push(ask(more));
            }
            if let Ok(less) = Cost::new(taken.saturating_sub(cost)) {
                all.returned.push(ask(less));
                all.answers.push(granted(less));
            }
            let status = corrected(&limit.limit, answer.status, taken, cost);
            match Cost::new(cost) {
                Ok(cost) => all.after.push(Answer { status, ..granted(cost) }),
                Err(_) => {
                    all.emptied.push((part, nth));
                    all.after.push(Answer { status, ..*answer });
                }
            }
        }
        all
    }
}

/// Returns `true` if a limit is corrected. Concurrency permits are released as they were acquired; an interval is
/// consumed by one grant, whatever it costs.
fn is_settled(limit: &CompiledLimit) -> bool {
    !limit.is_returned && limit.limit.algorithm::<MinInterval>().is_none()
}

/// Returns the status of a key after it was charged `cost` instead of `taken`, ignoring concurrent requests.
fn corrected(limit: &Limit, before: Status, taken: u64, cost: u64) -> Status {
    let remaining = before.remaining.saturating_add(taken).saturating_sub(cost).min(before.limit);
    let bucket = (limit.algorithm::<TokenBucket>().map(TokenBucket::quota))
        .or_else(|| limit.algorithm::<LeakyBucket>().map(LeakyBucket::quota))
        .or_else(|| limit.algorithm::<RefillingBucket>().map(RefillingBucket::quota));
    let reset = match bucket {
        // The time until a bucket is full changes by the time that refilling the difference takes.
        Some(quota) if cost >= taken => before.reset.saturating_add(refill(quota, cost - taken)),
        Some(quota) => before.reset.saturating_sub(refill(quota, taken - cost)),
        // The end of a window does not change, unless the window becomes unused.
        None if remaining == before.limit => Duration::ZERO,
        None => before.reset,
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
    pub fn expect(&mut self, costs: &ActualCost) {
        if costs.is_empty() || !self.is_granted() {
            return;
        }
        let here = self.made().here;
        let local = self.made().local.as_ref().map(|made| expected(self, here, made, costs));
        let shared = self.made().shared.as_ref().map(|made| expected(self, Scope::Shared, &made.decision, costs));
        let made = self.made_mut();
        made.local = local.or(made.local.take());
        if let (Some(made), Some(decision)) = (&mut made.shared, shared) {
            made.decision = decision;
        }
    }
}

/// Returns a decision with the expected status of each key; the charges are unchanged.
fn expected(verdict: &Verdict, part: Scope, made: &Decision, costs: &ActualCost) -> Decision {
    let after = Corrections::of(verdict, part, made, costs).after;
    let answers = made.answers().iter().zip(after).map(|(answer, after)| Answer { status: after.status, ..*answer });
    Decision::from(answers.collect::<SmallVec<[Answer; 8]>>()).with_note(made.note())
}

impl<S: Store> Engine<S> {
    /// Corrects the cost of a granted request once it is known. A higher cost is charged, even over the limit; a lower
    /// one is refunded as far as the charge has not expired: not at all if its window is over.
    ///
    /// Concurrency permits (`concurrent`) and intervals (`every`) are not corrected. A `smooth_*` limit is refunded
    /// only if the whole charge is, and no other request came since. A second correction refunds only a part of what
    /// the first charged to a bucket on top of its grant.
    pub async fn settle(&self, verdict: &mut Verdict, costs: &ActualCost) {
        if costs.is_empty() || !verdict.is_granted() {
            return;
        }
        let (now, here) = (self.now(), verdict.made().here);
        if let Some(made) = verdict.made().local.clone() {
            let settled = self.settle_part(verdict, here, made, costs, now, true).await;
            verdict.made_mut().local = Some(settled);
        }
        if let Some((made, here)) = verdict.made().shared.as_ref().map(|made| (made.decision.clone(), made.here)) {
            let decision = self.settle_part(verdict, Scope::Shared, made, costs, now, here).await;
            verdict.made_mut().shared = Some(Box::new(SharedDecision { decision, here }));
        }
        for place in 0..verdict.made().shadows.len() {
            let shadow = &verdict.made().shadows[place];
            let (part, made, here) = (Scope::Shadow(shadow.nth), shadow.decision.clone(), shadow.here);
            if made.is_granted() {
                let settled = self.settle_part(verdict, part, made, costs, now, here).await;
                verdict.made_mut().shadows[place].decision = settled;
            }
        }
        if !verdict.found().free().is_empty() {
            self.settle_free(verdict, costs, now).await;
        }
    }

    /// Charges the rules for which the estimated cost was 0, so that they were not checked.
    #[cold]
    async fn settle_free(&self, verdict: &mut Verdict, costs: &ActualCost, now: Timestamp) {
        let free = verdict.found().free().len();
        verdict.made_mut().charged_free.resize(free, 0);
        for nth in 0..free {
            let (applied, before) = (&verdict.found().free()[nth], verdict.made().charged_free[nth]);
            let Some(rule) = verdict.rules().rule(applied.rule) else { continue };
            let Some(cost) = costs.of(rule.rule()) else { continue };
            // Earlier charges stay, since there is no receipt for them.
            let Ok(more) = Cost::new(cost.saturating_sub(before)) else { continue };
            for limit in rule.limits(applied).iter().filter(|limit| is_settled(limit)) {
                let ask = Ask { cost: more, ..ask(verdict, applied, limit) };
                match self.shared().filter(|_| limit.home == CountedIn::Shared) {
                    Some(shared) => {
                        // If the store is unreachable, the charge is lost.
                        let _ = shared.charge(ask, now).await;
                    }
                    None => LocalStore::charge(self.local(), ask, now),
                }
            }
            verdict.made_mut().charged_free[nth] = cost;
        }
    }

    /// Corrects one decision in the store that made it; returns the corrected decision.
    async fn settle_part(
        &self,
        verdict: &mut Verdict,
        part: Scope,
        made: Decision,
        costs: &ActualCost,
        now: Timestamp,
        here: bool,
    ) -> Decision {
        let Corrections { charged, returned, answers, emptied, mut after } =
            Corrections::of(verdict, part, &made, costs);
        let given_back = Decision::from(answers).with_note(made.note());
        match self.shared().filter(|_| !here) {
            Some(shared) => {
                // If the store is unreachable, the estimate stays.
                if !returned.is_empty() {
                    let _ = shared.refund(&returned, &given_back, now).await;
                }
                for ask in charged {
                    let _ = shared.charge(ask, now).await;
                }
            }
            None => {
                if !returned.is_empty() {
                    LocalStore::refund(self.local(), &returned, &given_back, now);
                }
                charged.into_iter().for_each(|ask| LocalStore::charge(self.local(), ask, now));
                self.look_again(verdict, part, &mut after, now);
            }
        }
        self.counts.wake(&returned);
        drop(returned);
        let made = Decision::from(after).with_note(made.note());
        let known = &mut verdict.made_mut().emptied;
        known.retain(|(known, _)| *known != part);
        known.extend(emptied);
        made
    }

    /// Reads the current status of the keys of a decision.
    fn look_again(&self, verdict: &Verdict, part: Scope, after: &mut [Answer], now: Timestamp) {
        let looked = LocalStore::peek(self.local(), &Queries::of(verdict, part), now, MaxWait::FOREVER);
        for ((answer, looked), (_, limit)) in after.iter_mut().zip(looked.answers()).zip(Queries::places(verdict, part))
        {
            if is_settled(limit) {
                answer.status = looked.status;
            }
        }
    }
}
