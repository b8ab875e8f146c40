//! What is answered while Redis is away.
//!
//! By local counts, each instance takes its share: the limit divided by how many instances were last seen alive, and not
//! less than one. Together they grant about the limit; but nobody knows what was used on Redis just before. So in a window
//! in which Redis goes or comes back, up to the limit may pass twice, or once for each instance where there are more
//! instances than permits.
//!
//! What was granted here is owed: when Redis is back it is charged there, before the key is next asked for, and behind requests
//! for keys that nobody asks for. No more is charged than is still in use, which is at most the share. The
//! [ledger](ledger) keeps the books.

mod ledger;

use crate::client::Taken;
use crate::limit_config::LimitConfig;
use crate::options::WhenDown;
use crate::request::Item;
use diana_core::{
    Answer, Ask, Decision, Limit, LimitId, LocalStore, MaxWait, MemoryStore, Outcome, Receipt, Retry, Timestamp,
};
pub(crate) use ledger::Debts;
use ledger::Ledger;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// When to come again, of those who are denied only because Redis is away: it may be back in a second.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// Counts of this process alone, for the time being.
#[derive(Debug)]
pub(crate) struct Fallback {
    when_down: WhenDown,
    counts: MemoryStore,
    shares: Mutex<HashMap<LimitId, Share>>,
    ledger: Ledger,
}

/// A limit divided among instances.
#[derive(Debug)]
struct Share {
    of: Arc<LimitConfig>,
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
        Self { when_down, counts: MemoryStore::default(), shares: Mutex::default(), ledger: Ledger::default() }
    }

    /// Answers `items` as one of `instances`; with a number by which a grant is [given back](Self::refund).
    pub(crate) fn answer(&self, items: &[Item], looking: Looking, instances: u64, now: Timestamp) -> (Decision, u64) {
        let limits = self.limits(items, instances);
        let asks = asks(items, &limits);
        // Each item has its own.
        let max_wait = MaxWait::FOREVER;
        match (self.when_down, looking) {
            (WhenDown::Local, Looking::AndTaking) => {
                let decision = self.counts.decide(&asks, now, max_wait);
                let number = if decision.is_granted() { self.ledger.owe(items) } else { 0 };
                (decision, number)
            }
            (WhenDown::Local, Looking::Only) => (self.counts.peek(&asks, now, max_wait), 0),
            (policy, _) => {
                // Nothing is counted, so each stands where a fresh key does.
                let statuses = self.counts.peek(&asks, now, max_wait);
                let answers = statuses.answers().iter().zip(items).map(|(answer, item)| Answer {
                    outcome: match policy {
                        WhenDown::Deny => Outcome::Denied { retry: Retry::After(COME_AGAIN) },
                        _ => Outcome::granted(Receipt::new(item.asking.cost, now)),
                    },
                    status: answer.status,
                });
                (Decision::new(answers), 0)
            }
        }
    }

    /// Gives back what a decision of this process's own counts took, which has this number: what of it was charged to Redis since,
    /// and so is to be refunded there.
    pub(crate) fn refund(
        &self,
        items: &[Item],
        (decision, number): (&Decision, u64),
        instances: u64,
        now: Timestamp,
    ) -> Vec<Taken> {
        if self.when_down != WhenDown::Local {
            return Vec::new();
        }
        let limits = self.limits(items, instances);
        self.counts.refund(&asks(items, &limits), decision, now);
        let returned = items.iter().zip(decision.answers()).filter_map(|(item, answer)| {
            let charged = self.ledger.give_back(&item.name, answer.receipt()?.cost(), number)?;
            Some((Arc::clone(&item.config), item.name.clone(), charged))
        });
        returned.collect()
    }

    /// Charges this process's own count.
    pub(crate) fn charge(&self, item: &Item, instances: u64, now: Timestamp) {
        if self.when_down == WhenDown::Local {
            let limit = self.limit(&item.config, instances);
            self.counts.charge(Ask::new(&limit, &item.name, item.asking.cost), now);
            self.ledger.owe(std::slice::from_ref(item));
        }
    }

    /// Makes this process's own count as good as new.
    pub(crate) fn reset(&self, config: &Arc<LimitConfig>, name: &[u8], instances: u64, now: Timestamp) {
        self.counts.reset(&self.limit(config, instances), name, now);
        self.ledger.reset(name);
    }

    /// Whether something is owed, by any key.
    pub(crate) fn owes(&self) -> bool {
        self.ledger.owes()
    }

    /// What the keys with these names owe, to charge it.
    pub(crate) fn debts(&self, names: &[Vec<u8>], instances: u64, now: Timestamp) -> Debts<'_> {
        self.ledger.debts(names, |config, name| self.used(config, name, instances, now))
    }

    /// The names of all keys that owe something and are not being charged, for which `is_meant`.
    pub(crate) fn owing(&self, is_meant: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        self.ledger.owing(is_meant)
    }

    /// Forgets what keys owe of which nothing is in use any more, so that there is room for others.
    pub(crate) fn forgive(&self, instances: u64, now: Timestamp) {
        self.ledger.forgive(|config, name| self.used(config, name, instances, now));
    }

    /// How much of this process's own count is in use.
    fn used(&self, config: &Arc<LimitConfig>, name: &[u8], instances: u64, now: Timestamp) -> u64 {
        let share = self.shares.lock().get(&config.limit.id()).map(|share| share.limit.clone());
        let limit = share.unwrap_or_else(|| self.limit(config, instances));
        let seen = self.counts.peek(&[Ask::one(&limit, name)], now, MaxWait::NONE);
        seen.answers().first().map_or(0, |answer| answer.status.limit.saturating_sub(answer.status.remaining))
    }

    /// Forgets the share of a limit that nobody asks for any more.
    pub(crate) fn forget(&self, limit: LimitId) {
        self.shares.lock().remove(&limit);
    }

    fn limits(&self, items: &[Item], instances: u64) -> SmallVec<[Limit; 2]> {
        items.iter().map(|item| self.limit(&item.config, instances)).collect()
    }

    /// The share of a limit. Made anew only when the limit or the number of instances changes, since each making is a
    /// change that the counts are carried over to.
    fn limit(&self, config: &Arc<LimitConfig>, instances: u64) -> Limit {
        let mut shares = self.shares.lock();
        match shares.get(&config.limit.id()) {
            Some(share) if Arc::ptr_eq(&share.of, config) && share.instances == instances => share.limit.clone(),
            _ => {
                let limit = config.erased.divided(&config.limit, instances);
                shares.insert(config.limit.id(), Share { of: Arc::clone(config), instances, limit: limit.clone() });
                limit
            }
        }
    }
}

/// The names of states tell keys apart here as well as they do on Redis.
fn asks<'a>(items: &'a [Item], limits: &'a [Limit]) -> SmallVec<[Ask<'a>; 2]> {
    let each = items.iter().zip(limits);
    each.map(|(item, limit)| Ask::new(limit, &item.name, item.asking.cost).with_max_wait(item.asking.max_wait))
        .collect()
}
