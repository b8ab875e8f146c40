//! What a request turned out to cost.
//!
//! Before a request is carried out, its cost is a guess: so many tokens, so many bytes. Afterwards it is known. What was too
//! little is charged without asking, even beyond the limit; what was too much is given back, as far as time has not.
//!
//! What a verdict reports afterwards (how much is left, and until when) is the state after the correction: read from the counts
//! of this process, and computed for those of the shared store, which would take another round trip.

use super::queries::{AskList, Queries, Scope, ask};
use super::record::SharedDecision;
use super::{Engine, Verdict};
use diana_core::{
    Answer, Ask, Cost, Decision, LeakyBucket, Limit, LocalStore, MAX_PERMITS, MaxWait, MinInterval, Outcome, Quota,
    Receipt, RefillingBucket, Status, Store, Timestamp, TokenBucket,
};
use diana_rules::{CompiledLimit, CostOf, CountedIn, Rule};
use smallvec::SmallVec;
use std::time::Duration;

/// What a request turned out to cost.
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
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// So much for every rule that has a `cost` written. Rules without one count requests, and stay at one.
    pub fn all(cost: u64) -> Self {
        Self { all: Some(cost), by_rule: SmallVec::new() }
    }

    /// So much for the rule of this name, whether it has a `cost` written or not.
    #[must_use]
    pub fn rule(mut self, name: impl Into<String>, cost: u64) -> Self {
        self.by_rule.push((name.into(), cost));
        self
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.by_rule.is_empty()
    }
}

impl ActualCost {
    /// What it says about a rule.
    fn of(&self, rule: &Rule) -> Option<u64> {
        let named = self.by_rule.iter().rev().find(|(name, _)| *name == rule.name).map(|(_, cost)| *cost);
        let cost = named.or_else(|| self.all.filter(|_| rule.cost != CostOf::Request))?;
        // More than any limit can count is charged as the most that it can.
        Some(cost.min(MAX_PERMITS))
    }
}

/// What is put right about one decision.
#[derive(Default)]
struct Corrections<'a> {
    /// What was too little.
    charged: AskList<'a>,
    /// What was too much, and by which answers it was taken.
    returned: AskList<'a>,
    answers: SmallVec<[Answer; 8]>,
    /// The asks of which nothing is left.
    emptied: SmallVec<[(Scope, usize); 2]>,
    /// The decision as it is afterwards.
    after: SmallVec<[Answer; 8]>,
}

impl<'a> Corrections<'a> {
    fn of(verdict: &'a Verdict, part: Scope, made: &Decision, costs: &ActualCost) -> Self {
        let mut all = Self::default();
        let emptied = &verdict.made().emptied;
        for (nth, ((applied, limit), answer)) in Queries::places(verdict, part).zip(made.answers()).enumerate() {
            let rule = verdict.rules().rule(applied.rule).map(diana_rules::CompiledRule::rule);
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

/// Whether a limit is corrected. What is in flight comes back as it went out; an interval is kept by one grant, whatever it costs.
fn is_settled(limit: &CompiledLimit) -> bool {
    !limit.is_returned && limit.limit.algorithm::<MinInterval>().is_none()
}

/// Where a key stands once it has cost `cost` instead of `taken`, as far as nobody else came meanwhile.
fn corrected(limit: &Limit, before: Status, taken: u64, cost: u64) -> Status {
    let remaining = before.remaining.saturating_add(taken).saturating_sub(cost).min(before.limit);
    let bucket = (limit.algorithm::<TokenBucket>().map(TokenBucket::quota))
        .or_else(|| limit.algorithm::<LeakyBucket>().map(LeakyBucket::quota))
        .or_else(|| limit.algorithm::<RefillingBucket>().map(RefillingBucket::quota));
    let reset = match bucket {
        // A bucket is full again so much later, or earlier, as it takes to refill the difference.
        Some(quota) if cost >= taken => before.reset.saturating_add(refill(quota, cost - taken)),
        Some(quota) => before.reset.saturating_sub(refill(quota, taken - cost)),
        // A window ends when it ends, unless nothing is left in it.
        None if remaining == before.limit => Duration::ZERO,
        None => before.reset,
    };
    Status { remaining, reset, ..before }
}

/// How long it takes to refill so many permits.
fn refill(quota: Quota, permits: u64) -> Duration {
    let nanos = u128::from(permits).saturating_mul(quota.period().as_nanos()).div_ceil(u128::from(quota.permits()));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl Verdict {
    /// Reports what will be left once the request has cost so much, where that is told to the shared store only later.
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

/// A decision that says where each key will stand; what was taken stays as it is.
fn expected(verdict: &Verdict, part: Scope, made: &Decision, costs: &ActualCost) -> Decision {
    let after = Corrections::of(verdict, part, made, costs).after;
    let answers = made.answers().iter().zip(after).map(|(answer, after)| Answer { status: after.status, ..*answer });
    Decision::from(answers.collect::<SmallVec<[Answer; 8]>>()).with_note(made.note())
}

impl<S: Store> Engine<S> {
    /// Corrects what a granted request cost, now that it is known. What was too little is charged, even beyond the limit; what
    /// was too much is given back, as far as time has not: nothing, if the window is over.
    ///
    /// What is held while the request runs (`concurrent`) stays as it is, and so does an interval (`every`). Of a `smooth_*`
    /// limit, too much is given back only if all of it is, and nobody came since. What a bucket was charged on top of what it had
    /// granted is given back by a second correction only in part.
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

    /// Charges the rules to which the request seemed to cost nothing, so that they were never asked.
    #[cold]
    async fn settle_free(&self, verdict: &mut Verdict, costs: &ActualCost, now: Timestamp) {
        let free = verdict.found().free().len();
        verdict.made_mut().charged_free.resize(free, 0);
        for nth in 0..free {
            let (applied, before) = (&verdict.found().free()[nth], verdict.made().charged_free[nth]);
            let Some(rule) = verdict.rules().rule(applied.rule) else { continue };
            let Some(cost) = costs.of(rule.rule()) else { continue };
            // What was charged before stays: nobody holds a receipt for it.
            let Ok(more) = Cost::new(cost.saturating_sub(before)) else { continue };
            for limit in rule.limits(applied).iter().filter(|limit| is_settled(limit)) {
                let ask = Ask { cost: more, ..ask(verdict, applied, limit) };
                match self.shared().filter(|_| limit.home == CountedIn::Shared) {
                    Some(shared) => {
                        // A store that can't be reached can't be told.
                        let _ = shared.charge(ask, now).await;
                    }
                    None => LocalStore::charge(self.local(), ask, now),
                }
            }
            verdict.made_mut().charged_free[nth] = cost;
        }
    }

    /// Corrects one decision, where it was made; says what it is afterwards.
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
                // A store that is away can't be told; then the guess stays.
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

    /// Reads where the keys of a decision stand now.
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
