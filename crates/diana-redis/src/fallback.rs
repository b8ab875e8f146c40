//! What is answered while Redis is away.
//!
//! By local counts, each instance takes its share: the limit divided by how many instances were last seen alive, and not
//! less than one. Together they grant about the limit; but nobody knows what was used on Redis just before. So in a window
//! in which Redis goes or comes back, up to the limit may pass twice, or once for each instance where there are more
//! instances than permits.
//!
//! What was granted here is [owed](Owed): when Redis is back it is charged there, before the key is next asked for, and behind
//! requests for keys that nobody asks for. No more is charged than is still in use, which is at most the share.

use crate::options::WhenDown;
use crate::plans::Plan;
use crate::request::Item;
use diana_core::{
    Answer, Ask, Cost, Decision, Limit, LimitId, LocalStore, MemoryStore, Outcome, Patience, Receipt, Retry, Timestamp,
};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// When to come again, of those who are denied only because Redis is away: it may be back in a second.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// The most keys whose grants are charged on Redis when it is back. What others were granted beyond that, it never hears of.
const MOST_OWING: usize = 65_536;

/// Counts of this process alone, for the time being.
#[derive(Debug)]
pub(crate) struct Fallback {
    when_down: WhenDown,
    counts: MemoryStore,
    shares: Mutex<HashMap<LimitId, Share>>,
    owed: Mutex<HashMap<Vec<u8>, Owed>>,
    /// How many keys owe something, so that most of the time nobody needs the lock.
    owing: AtomicUsize,
}

/// What a key was granted here and Redis does not know of.
#[derive(Debug)]
struct Owed {
    plan: Arc<Plan>,
    granted: u64,
    /// Ends when this is charged, or could not be.
    charging: Option<watch::Receiver<()>>,
}

/// Debts that are being charged on Redis. Dropped before they are [paid](Self::paid), they are owed as before.
#[derive(Debug)]
pub(crate) struct Debts<'a> {
    fallback: &'a Fallback,
    debts: Vec<Debt>,
    /// Debts of the same keys that others are charging.
    others: Vec<watch::Receiver<()>>,
    _ends: watch::Sender<()>,
}

/// What one key owes.
#[derive(Debug)]
struct Debt {
    plan: Arc<Plan>,
    name: Vec<u8>,
    /// What it was granted.
    granted: u64,
    /// What of that is still in use; nothing if time has given all of it back.
    cost: Option<Cost>,
}

/// A limit divided among instances.
#[derive(Debug)]
struct Share {
    of: Arc<Plan>,
    instances: u64,
    limit: Limit,
}

/// Whether an answer is to have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looking {
    Only,
    AndTaking,
}

impl Fallback {
    pub(crate) fn new(when_down: WhenDown) -> Self {
        let (owed, owing) = (Mutex::default(), AtomicUsize::new(0));
        Self { when_down, counts: MemoryStore::default(), shares: Mutex::default(), owed, owing }
    }

    /// Answers `items` as one of `instances`.
    pub(crate) fn answer(&self, items: &[Item], looking: Looking, instances: u64, now: Timestamp) -> Decision {
        let limits = self.limits(items, instances);
        let asks = asks(items, &limits);
        // Each item has its own.
        let patience = Patience::FOREVER;
        match (self.when_down, looking) {
            (WhenDown::Local, Looking::AndTaking) => {
                let decision = self.counts.decide(&asks, now, patience);
                if decision.is_granted() {
                    items.iter().for_each(|item| self.owe(item));
                }
                decision
            }
            (WhenDown::Local, Looking::Only) => self.counts.peek(&asks, now, patience),
            (policy, _) => {
                // Nothing is counted, so each stands where a fresh key does.
                let standings = self.counts.peek(&asks, now, patience);
                let answers = standings.answers().iter().zip(items).map(|(answer, item)| Answer {
                    outcome: match policy {
                        WhenDown::Deny => Outcome::Denied { retry: Retry::After(COME_AGAIN) },
                        _ => Outcome::granted(Receipt::new(item.asking.cost, now)),
                    },
                    standing: answer.standing,
                });
                Decision::new(answers)
            }
        }
    }

    /// Gives back what a decision of this process's own counts took.
    pub(crate) fn refund(&self, items: &[Item], decision: &Decision, instances: u64, now: Timestamp) {
        if self.when_down == WhenDown::Local {
            let limits = self.limits(items, instances);
            self.counts.refund(&asks(items, &limits), decision, now);
            let mut owed = self.owed.lock();
            for (item, answer) in items.iter().zip(decision.answers()) {
                let returned = answer.receipt().map_or(0, |receipt| receipt.cost().get());
                if let Some(owed) = owed.get_mut(&item.name) {
                    owed.granted = owed.granted.saturating_sub(returned);
                }
            }
        }
    }

    /// Charges this process's own count.
    pub(crate) fn charge(&self, item: &Item, instances: u64, now: Timestamp) {
        if self.when_down == WhenDown::Local {
            let limit = self.limit(&item.plan, instances);
            self.counts.charge(Ask::new(&limit, &item.name, item.asking.cost), now);
            self.owe(item);
        }
    }

    /// Makes this process's own count as good as new.
    pub(crate) fn reset(&self, plan: &Arc<Plan>, name: &[u8], instances: u64, now: Timestamp) {
        self.counts.reset(&self.limit(plan, instances), name, now);
        let mut owed = self.owed.lock();
        owed.remove(name);
        self.owing.store(owed.len(), Ordering::Release);
    }

    /// Notes that Redis does not know of what `item` was granted.
    fn owe(&self, item: &Item) {
        // What is in flight is released here, by those who hold it.
        if item.plan.kept.holds() {
            return;
        }
        let (mut all, granted) = (self.owed.lock(), item.asking.cost.get());
        let has_room = all.len() < MOST_OWING;
        if let Some(owed) = all.get_mut(&item.name) {
            owed.plan = Arc::clone(&item.plan);
            owed.granted = owed.granted.saturating_add(granted);
        } else if has_room {
            all.insert(item.name.clone(), Owed { plan: Arc::clone(&item.plan), granted, charging: None });
            self.owing.store(all.len(), Ordering::Release);
        }
    }

    /// Whether something is owed, by any key.
    pub(crate) fn owes(&self) -> bool {
        self.owing.load(Ordering::Acquire) > 0
    }

    /// What the keys with these names owe, to charge it. Nothing if nothing is owed, nor being charged by others.
    pub(crate) fn debts<'a>(
        &self,
        names: impl Iterator<Item = &'a [u8]>,
        instances: u64,
        now: Timestamp,
    ) -> Option<Debts<'_>> {
        let (ends, charging) = watch::channel(());
        let mut debts = Debts { fallback: self, debts: Vec::new(), others: Vec::new(), _ends: ends };
        let mut all = self.owed.lock();
        for name in names {
            let Some(owed) = all.get_mut(name) else { continue };
            match &owed.charging {
                Some(others) => debts.others.push(others.clone()),
                None => {
                    owed.charging = Some(charging.clone());
                    let (plan, granted) = (Arc::clone(&owed.plan), owed.granted);
                    let cost = Cost::new(granted.min(self.used(&plan, name, instances, now))).ok();
                    debts.debts.push(Debt { plan, name: name.to_vec(), granted, cost });
                }
            }
        }
        drop(all);
        (!debts.debts.is_empty() || !debts.others.is_empty()).then_some(debts)
    }

    /// The names of some keys that owe something and are not being charged, for which `is_meant`.
    pub(crate) fn owing(&self, most: usize, is_meant: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let all = self.owed.lock();
        let owing = all.iter().filter(|(name, owed)| owed.charging.is_none() && is_meant(name));
        owing.map(|(name, _)| name.clone()).take(most).collect()
    }

    /// Forgets what keys owe of which nothing is in use any more, so that there is room for others.
    pub(crate) fn forgive(&self, instances: u64, now: Timestamp) {
        let mut all = self.owed.lock();
        // As long as there is room, all of it may wait.
        if all.len() < MOST_OWING / 2 {
            return;
        }
        all.retain(|name, owed| owed.charging.is_some() || self.used(&owed.plan, name, instances, now) > 0);
        self.owing.store(all.len(), Ordering::Release);
    }

    /// How much of this process's own count is in use.
    fn used(&self, plan: &Arc<Plan>, name: &[u8], instances: u64, now: Timestamp) -> u64 {
        let share = self.shares.lock().get(&plan.limit.id()).map(|share| share.limit.clone());
        let limit = share.unwrap_or_else(|| self.limit(plan, instances));
        let seen = self.counts.peek(&[Ask::one(&limit, name)], now, Patience::NONE);
        seen.answers().first().map_or(0, |answer| answer.standing.limit.saturating_sub(answer.standing.remaining))
    }

    /// Forgets the share of a limit that nobody asks for any more.
    pub(crate) fn forget(&self, limit: LimitId) {
        self.shares.lock().remove(&limit);
    }

    fn limits(&self, items: &[Item], instances: u64) -> SmallVec<[Limit; 2]> {
        items.iter().map(|item| self.limit(&item.plan, instances)).collect()
    }

    /// The share of a limit. Made anew only when the limit or the number of instances changes, since each making is a
    /// change that the counts are carried over to.
    fn limit(&self, plan: &Arc<Plan>, instances: u64) -> Limit {
        let mut shares = self.shares.lock();
        match shares.get(&plan.limit.id()) {
            Some(share) if Arc::ptr_eq(&share.of, plan) && share.instances == instances => share.limit.clone(),
            _ => {
                let limit = plan.kept.divided(&plan.limit, instances);
                shares.insert(plan.limit.id(), Share { of: Arc::clone(plan), instances, limit: limit.clone() });
                limit
            }
        }
    }
}

/// The names of states tell keys apart here as well as they do on Redis.
fn asks<'a>(items: &'a [Item], limits: &'a [Limit]) -> SmallVec<[Ask<'a>; 2]> {
    let each = items.iter().zip(limits);
    each.map(|(item, limit)| Ask::new(limit, &item.name, item.asking.cost).with_patience(item.asking.patience))
        .collect()
}

impl Debts<'_> {
    /// What is to be charged: the plan, the name and the cost of each.
    pub(crate) fn charges(&self) -> impl Iterator<Item = (Arc<Plan>, Vec<u8>, Cost)> {
        self.debts.iter().filter_map(|debt| Some((Arc::clone(&debt.plan), debt.name.clone(), debt.cost?)))
    }

    /// They are charged, or never can be. Waits until those are, too, that others were charging.
    pub(crate) async fn paid(mut self) {
        self.strike_out();
        let others = std::mem::take(&mut self.others);
        drop(self);
        for mut other in others {
            // Nothing is ever sent: it fails when the sender is dropped.
            while other.changed().await.is_ok() {}
        }
    }

    fn strike_out(&mut self) {
        let mut all = self.fallback.owed.lock();
        for debt in self.debts.drain(..) {
            if let Some(owed) = all.get_mut(&debt.name) {
                owed.granted = owed.granted.saturating_sub(debt.granted);
                owed.charging = None;
                if owed.granted == 0 {
                    all.remove(&debt.name);
                }
            }
        }
        self.fallback.owing.store(all.len(), Ordering::Release);
    }
}

impl Drop for Debts<'_> {
    fn drop(&mut self) {
        let mut all = self.fallback.owed.lock();
        for debt in &self.debts {
            if let Some(owed) = all.get_mut(&debt.name) {
                owed.charging = None;
            }
        }
    }
}
