//! What is answered while Redis is away.
//!
//! By local counts, each instance takes its share: the limit divided by how many instances were last seen alive, and not
//! less than one. Together they grant about the limit; but nobody knows what was used on Redis just before, nor will Redis
//! know what was granted here. So in a window in which Redis goes or comes back, up to the limit may pass twice, or once
//! for each instance where there are more instances than permits.

use crate::options::WhenDown;
use crate::plans::Plan;
use crate::request::Item;
use diana_core::{
    Answer, Ask, Decision, Limit, LimitId, LocalStore, MemoryStore, Outcome, Patience, Receipt, Retry, Timestamp,
};
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
        Self { when_down, counts: MemoryStore::default(), shares: Mutex::default() }
    }

    /// Answers `items` as one of `instances`.
    pub(crate) fn answer(&self, items: &[Item], looking: Looking, instances: u64, now: Timestamp) -> Decision {
        let limits = self.limits(items, instances);
        let asks = asks(items, &limits);
        // Each item has its own.
        let patience = Patience::FOREVER;
        match (self.when_down, looking) {
            (WhenDown::Local, Looking::AndTaking) => self.counts.decide(&asks, now, patience),
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
        }
    }

    /// Charges this process's own count.
    pub(crate) fn charge(&self, item: &Item, instances: u64, now: Timestamp) {
        if self.when_down == WhenDown::Local {
            let limit = self.limit(&item.plan, instances);
            self.counts.charge(Ask::new(&limit, &item.name, item.asking.cost), now);
        }
    }

    /// Makes this process's own count as good as new.
    pub(crate) fn reset(&self, plan: &Arc<Plan>, name: &[u8], instances: u64, now: Timestamp) {
        self.counts.reset(&self.limit(plan, instances), name, now);
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
