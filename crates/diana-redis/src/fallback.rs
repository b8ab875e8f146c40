//! Answers requests while Redis is unreachable.
//!
//! With local counts, each instance enforces its share: the limit divided by the number of instances that were last
//! seen alive, and at least one. (With [`WhenDown::LocalFull`], the whole limit.) Together they grant about the limit, but the usage on Redis just before the outage is
//! unknown. So in a window in which Redis becomes unreachable or reachable again, up to twice the limit may be granted,
//! or once per instance if there are more instances than permits.
//!
//! Permits that this process granted are owed: when Redis is reachable again, they are charged to it, before the next
//! request for the key, and in the background for keys without requests. Only permits that are still in use are
//! charged, which is at most the share. [`Debts`] records them.

mod debts;

use crate::direct_store::StateReceipt;
use crate::limit_config_versions::LimitConfig;
use crate::options::WhenDown;
use crate::script_call::{Item, Op};
use debts::Debts;
pub(crate) use debts::PendingCharges;
use diana_core::{Ask, Decision, Limit, LimitId, LocalStore, MaxWait, MemoryStore, Outcome, Receipt, Retry, Timestamp};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The retry time of requests that are denied only because Redis is unreachable: it may be reachable again in a second.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Counts of this process alone, used during an outage.
#[derive(Debug)]
pub(crate) struct Fallback {
    when_down: WhenDown,
    counts: MemoryStore,
    shares: Mutex<HashMap<LimitId, Share>>,
    debts: Debts,
}

/// A limit divided among instances.
#[derive(Debug)]
struct Share {
    config: Arc<LimitConfig>,
    instances: u64,
    limit: Limit,
}

impl Fallback {
    pub(crate) fn new(when_down: WhenDown) -> Self {
        Self { when_down, counts: MemoryStore::default(), shares: Mutex::default(), debts: Debts::default() }
    }

    /// Answers `items` as one of `instances`. Returns the decision and the number by which a grant is
    /// [refunded](Self::refund).
    pub(crate) fn answer(&self, items: &[Item], op: Op, instances: u64, now: Timestamp) -> (Decision, u64) {
        let limits = self.limits(items, instances);
        let asks = asks(items, &limits);
        // Each item has its own maximum wait.
        let max_wait = MaxWait::FOREVER;
        match (self.when_down, op) {
            (policy, Op::Take) if policy.is_local() => {
                let decision = self.counts.decide(&asks, now, max_wait);
                let number = if decision.is_granted() { self.debts.add(items) } else { 0 };
                (decision, number)
            }
            (policy, _) if policy.is_local() => (self.counts.peek(&asks, now, max_wait), 0),
            (policy, _) => {
                // Nothing is counted, so each status is that of a new key.
                let statuses = self.counts.peek(&asks, now, max_wait);
                let answers = statuses.answers().iter().zip(items).map(|(answer, item)| {
                    answer.with_outcome(match policy {
                        WhenDown::Deny => Outcome::Denied { retry: Retry::After(RETRY_AFTER) },
                        _ => Outcome::granted(Receipt::new(item.ask.cost, now)),
                    })
                });
                (Decision::new(answers), 0)
            }
        }
    }

    /// Refunds the local decision with this number. Returns the permits of it that were charged to Redis since, and so
    /// are to be refunded on Redis.
    pub(crate) fn refund(
        &self,
        items: &[Item],
        (decision, number): (&Decision, u64),
        instances: u64,
        now: Timestamp,
    ) -> Vec<StateReceipt> {
        if !self.when_down.is_local() {
            return Vec::new();
        }
        let limits = self.limits(items, instances);
        self.counts.refund(&asks(items, &limits), decision, now);
        let refunds = items.iter().zip(decision.answers()).filter_map(|(item, answer)| {
            let charged = self.debts.refund(&item.name, answer.receipt()?.cost(), number)?;
            Some((Arc::clone(&item.config), item.name.clone(), charged))
        });
        refunds.collect()
    }

    /// Charges the local count.
    pub(crate) fn charge(&self, item: &Item, instances: u64, now: Timestamp) {
        if self.when_down.is_local() {
            let limit = self.limit(&item.config, instances);
            self.counts.charge(Ask::new(&limit, &item.name, item.ask.cost), now);
            self.debts.add(std::slice::from_ref(item));
        }
    }

    /// Resets the local count.
    pub(crate) fn reset(&self, config: &Arc<LimitConfig>, name: &[u8], instances: u64, now: Timestamp) {
        self.counts.reset(&self.limit(config, instances), name, now);
        self.debts.reset(name);
    }

    /// Returns `true` if any key owes permits.
    pub(crate) fn has_debts(&self) -> bool {
        !self.debts.is_empty()
    }

    /// Begins to charge the debts of the keys with these names.
    pub(crate) fn begin_charges(&self, names: &[Vec<u8>], instances: u64, now: Timestamp) -> PendingCharges<'_> {
        self.debts.begin_charges(names, |config, name| self.used(config, name, instances, now))
    }

    /// Returns the names of all keys that owe permits, are not being charged, and match `filter`.
    pub(crate) fn keys_with_debts(&self, filter: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        self.debts.keys(filter)
    }

    /// Removes the debts of keys that have no permits in use any more, to make room for others.
    pub(crate) fn prune_debts(&self, instances: u64, now: Timestamp) {
        self.debts.prune(|config, name| self.used(config, name, instances, now));
    }

    /// Returns how much of the local count is in use.
    fn used(&self, config: &Arc<LimitConfig>, name: &[u8], instances: u64, now: Timestamp) -> u64 {
        let share = self.shares.lock().get(&config.limit.id()).map(|share| share.limit.clone());
        let limit = share.unwrap_or_else(|| self.limit(config, instances));
        let peeked = self.counts.peek(&[Ask::one(&limit, name)], now, MaxWait::NONE);
        peeked.answers().first().map_or(0, |answer| answer.status().limit.saturating_sub(answer.status().remaining))
    }

    /// Removes the share of a limit that is no longer used.
    pub(crate) fn forget(&self, limit: LimitId) {
        self.shares.lock().remove(&limit);
    }

    fn limits(&self, items: &[Item], instances: u64) -> SmallVec<[Limit; 2]> {
        items.iter().map(|item| self.limit(&item.config, instances)).collect()
    }

    /// Returns the share of a limit. It is created again only when the limit or the number of instances changes, since
    /// the counts must be migrated each time.
    fn limit(&self, config: &Arc<LimitConfig>, instances: u64) -> Limit {
        let instances = self.when_down.shares(instances);
        let mut shares = self.shares.lock();
        match shares.get(&config.limit.id()) {
            Some(share) if Arc::ptr_eq(&share.config, config) && share.instances == instances => share.limit.clone(),
            _ => {
                let limit = config.algorithm.divided(&config.limit, instances);
                shares.insert(config.limit.id(), Share { config: Arc::clone(config), instances, limit: limit.clone() });
                limit
            }
        }
    }
}

/// The names of states identify keys in the local store as they do on Redis.
fn asks<'a>(items: &'a [Item], limits: &'a [Limit]) -> SmallVec<[Ask<'a>; 2]> {
    let each = items.iter().zip(limits);
    each.map(|(item, limit)| Ask::new(limit, &item.name, item.ask.cost).with_max_wait(item.ask.max_wait)).collect()
}
