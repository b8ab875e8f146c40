//! What a request turned out to cost.
//!
//! Before a request is carried out, its cost is a guess: so many tokens, so many bytes. Afterwards it is known. What was too
//! little is charged without asking, even beyond the limit; what was too much is given back, as far as time has not.

use super::asks::{AskList, Asks, Part, ask};
use super::made::SharedDecision;
use super::{Engine, Verdict};
use diana_core::{Answer, Ask, Cost, Decision, LocalStore, MinInterval, Outcome, Receipt, Store, Timestamp};
use diana_rules::{CostOf, Rule};
use smallvec::SmallVec;

/// What a request turned out to cost.
///
/// ```
/// use diana::Settled;
///
/// let costs = Settled::all(1_250); // to every rule with a `cost`
/// let costs = costs.rule("bytes", 98_304); // but to this one
/// # let _ = costs;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    all: Option<u64>,
    by_rule: SmallVec<[(String, u64); 2]>,
}

impl Settled {
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

impl Settled {
    /// What it says about a rule.
    fn of(&self, rule: &Rule) -> Option<u64> {
        let named = self.by_rule.iter().rev().find(|(name, _)| *name == rule.name).map(|(_, cost)| *cost);
        named.or_else(|| self.all.filter(|_| rule.cost != CostOf::Request))
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
    emptied: SmallVec<[(Part, usize); 2]>,
    /// The decision as it is afterwards.
    after: SmallVec<[Answer; 8]>,
}

impl<'a> Corrections<'a> {
    fn of(verdict: &'a Verdict, part: Part, made: &Decision, costs: &Settled) -> Self {
        let mut all = Self::default();
        let emptied = &verdict.made().emptied;
        for (nth, ((applied, limit), answer)) in Asks::places(verdict, part).zip(made.answers()).enumerate() {
            let rule = verdict.rules().rule(applied.rule).map(diana_rules::RuleInForce::rule);
            // What is in flight comes back as it went out. An interval is kept by one grant, whatever it costs.
            let is_settled = !limit.is_returned && limit.limit.algorithm::<MinInterval>().is_none();
            let cost = rule.filter(|_| is_settled).and_then(|rule| costs.of(rule));
            let is_empty = emptied.contains(&(part, nth));
            let (Some(cost), Outcome::Granted { wait, receipt }) = (cost, answer.outcome) else {
                all.emptied.extend(is_empty.then_some((part, nth)));
                all.after.push(*answer);
                continue;
            };
            let granted = |cost| {
                let receipt = Receipt::new(cost, receipt.at()).with_mark(receipt.mark());
                Answer { outcome: Outcome::Granted { wait, receipt }, standing: answer.standing }
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
            // What is told to the client is what is left now, as far as nobody else came meanwhile.
            let mut standing = answer.standing;
            standing.remaining = (standing.remaining.saturating_add(taken)).saturating_sub(cost).min(standing.limit);
            match Cost::new(cost.min(diana_core::MAX_PERMITS)) {
                Ok(cost) => all.after.push(Answer { standing, ..granted(cost) }),
                Err(_) => {
                    all.emptied.push((part, nth));
                    all.after.push(Answer { standing, ..*answer });
                }
            }
        }
        all
    }
}

impl<S: Store> Engine<S> {
    /// Corrects what a granted request cost, now that it is known. What was too little is charged, even beyond the limit; what
    /// was too much is given back, as far as time has not: nothing, if the window is over.
    ///
    /// What is held while the request runs (`concurrent`) stays as it is, and so does an interval (`every`). Of a `smooth_*`
    /// limit, too much is given back only if all of it is, and nobody came since. What a bucket was charged on top of what it had
    /// granted is given back by a second correction only in part.
    pub async fn settle(&self, verdict: &mut Verdict, costs: &Settled) {
        if costs.is_empty() || !verdict.is_granted() {
            return;
        }
        let (now, here) = (self.now(), verdict.made().here);
        if let Some(made) = verdict.made().local.clone() {
            let settled = self.settle_part(verdict, here, made, costs, now, true).await;
            verdict.made_mut().local = Some(settled);
        }
        if let Some((made, here)) = verdict.made().shared.as_ref().map(|made| (made.decision.clone(), made.here)) {
            let decision = self.settle_part(verdict, Part::Shared, made, costs, now, here).await;
            verdict.made_mut().shared = Some(Box::new(SharedDecision { decision, here }));
        }
        for place in 0..verdict.made().shadows.len() {
            let shadow = &verdict.made().shadows[place];
            let (part, made, here) = (Part::Shadow(shadow.nth), shadow.decision.clone(), shadow.here);
            if made.is_granted() {
                let settled = self.settle_part(verdict, part, made, costs, now, here).await;
                verdict.made_mut().shadows[place].decision = settled;
            }
        }
    }

    /// Corrects one decision, where it was made; says what it is afterwards.
    async fn settle_part(
        &self,
        verdict: &mut Verdict,
        part: Part,
        made: Decision,
        costs: &Settled,
        now: Timestamp,
        here: bool,
    ) -> Decision {
        let Corrections { charged, returned, answers, emptied, after } = Corrections::of(verdict, part, &made, costs);
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
}
