//! Grants by local counts: those that are not charged to Redis yet, and the charges that were made.
//!
//! ```text
//!   granted ──▶ owed ──▶ being charged ──▶ charged
//!                 ▲            │ failed
//!                 └────────────┘
//! ```
//!
//! A grant may be refunded at any time, before its charge, during it, or after it: then there is less to charge, or a
//! refund on Redis is due. To distinguish these cases, charges are numbered, and a grant stores the last number that
//! was issued before it: the first completed charge of its key with a higher number is its own.
//!
//! What always holds: of each charge no more is refunded than was charged.

use crate::direct_store::StateReceipt;
use crate::limit_config_versions::LimitConfig;
use crate::script_call::Item;
use diana_core::{Cost, Receipt};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// The maximum number of keys whose grants are charged when Redis is reachable again. Grants to further keys are never charged.
const MAX_DEBTS: usize = 65_536;
/// The maximum number of keys whose charges are stored, for grants that are refunded later.
const MAX_CHARGED_KEYS: usize = 65_536;
/// The maximum number of charges that are stored for one key: one for each outage.
const MAX_CHARGES_PER_KEY: usize = 4;

/// The debts and charges of keys.
#[derive(Debug, Default)]
pub(super) struct Debts {
    records: Mutex<Records>,
    /// The number of keys that owe permits, so that the lock is rarely needed.
    count: AtomicUsize,
}

/// The debts and charges by key.
#[derive(Debug, Default)]
struct Records {
    /// The number of the last charge that was begun.
    last: u64,
    owed: HashMap<Vec<u8>, Owed>,
    /// The newest last.
    charged: HashMap<Vec<u8>, SmallVec<[Charged; 1]>>,
}

/// Local grants to a key that are not charged to Redis.
#[derive(Debug)]
struct Owed {
    config: Arc<LimitConfig>,
    granted: u64,
    charging: Option<Charging>,
}

/// A charge in flight.
#[derive(Debug)]
struct Charging {
    number: u64,
    /// The permits of this charge that were refunded in the meantime.
    refunded: u64,
    /// Closed when the charge has completed or failed.
    ends: watch::Receiver<()>,
}

/// A completed charge.
#[derive(Clone, Copy, Debug)]
struct Charged {
    number: u64,
    /// The receipt for the part that is not refunded. `None` if there is none, or if the algorithm can't refund a charge.
    receipt: Option<Receipt>,
}

/// Debts that are being charged to Redis. If dropped before they are [complete](Self::complete), they are owed as before.
#[derive(Debug)]
pub(crate) struct PendingCharges<'a> {
    debts: &'a Debts,
    number: u64,
    charges: Vec<PendingCharge>,
    /// Charges of the same keys by other tasks.
    others: Vec<watch::Receiver<()>>,
    _ends: watch::Sender<()>,
}

/// The charge of one key's debt.
#[derive(Debug)]
struct PendingCharge {
    config: Arc<LimitConfig>,
    name: Vec<u8>,
    /// The granted permits.
    granted: u64,
    /// The part of them that is still in use; `None` if time has refilled all of it.
    cost: Option<Cost>,
}

impl Debts {
    /// Records that Redis does not know the grants to `items`. Returns the number to [refund](Self::refund) them with.
    pub(super) fn add(&self, items: &[Item]) -> u64 {
        let records = &mut *self.records.lock();
        // Held permits are released locally, by their holders.
        for item in items.iter().filter(|item| !item.config.algorithm.holds()) {
            let granted = item.ask.cost.get();
            let has_room = records.owed.len() < MAX_DEBTS;
            if let Some(owed) = records.owed.get_mut(&item.name) {
                owed.config = Arc::clone(&item.config);
                owed.granted = owed.granted.saturating_add(granted);
            } else if has_room {
                let owed = Owed { config: Arc::clone(&item.config), granted, charging: None };
                records.owed.insert(item.name.clone(), owed);
            }
        }
        self.count.store(records.owed.len(), Ordering::Release);
        records.last
    }

    /// Refunds `cost` of a grant that was made after charge `number` was begun. Returns a receipt for the part of it
    /// that was charged since.
    pub(super) fn refund(&self, name: &[u8], cost: Cost, number: u64) -> Option<Receipt> {
        let records = &mut *self.records.lock();
        let mut charged = records.charged.get_mut(name).into_iter().flatten();
        if let Some(charged) = charged.find(|charged| charged.number > number) {
            return charged.refund(cost.get());
        }
        let owed = records.owed.get_mut(name)?;
        match &mut owed.charging {
            Some(charging) if charging.number > number => {
                charging.refunded = charging.refunded.saturating_add(cost.get());
            }
            _ => owed.granted = owed.granted.saturating_sub(cost.get()),
        }
        None
    }

    /// Removes all debts and charges of a key.
    pub(super) fn reset(&self, name: &[u8]) {
        let mut records = self.records.lock();
        records.charged.remove(name);
        records.owed.remove(name);
        self.count.store(records.owed.len(), Ordering::Release);
    }

    /// Returns `true` if no key owes permits.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Begins to charge the debts of the keys with these names, as far as the permits are in use.
    pub(super) fn begin_charges(
        &self,
        names: &[Vec<u8>],
        used: impl Fn(&Arc<LimitConfig>, &[u8]) -> u64,
    ) -> PendingCharges<'_> {
        let (ends, charging) = watch::channel(());
        let records = &mut *self.records.lock();
        records.last += 1;
        let number = records.last;
        let mut pending = PendingCharges { debts: self, number, charges: Vec::new(), others: Vec::new(), _ends: ends };
        for name in names {
            let Some(owed) = records.owed.get_mut(name) else { continue };
            match &owed.charging {
                Some(others) => pending.others.push(others.ends.clone()),
                None => {
                    owed.charging = Some(Charging { number, refunded: 0, ends: charging.clone() });
                    let (config, granted) = (Arc::clone(&owed.config), owed.granted);
                    let cost = Cost::new(granted.min(used(&config, name))).ok();
                    pending.charges.push(PendingCharge { config, name: name.clone(), granted, cost });
                }
            }
        }
        pending
    }

    /// Returns the names of all keys that owe permits, are not being charged, and match `filter`.
    pub(super) fn keys(&self, filter: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let records = self.records.lock();
        let chargeable = records.owed.iter().filter(|(name, owed)| owed.charging.is_none() && filter(name));
        chargeable.map(|(name, _)| name.clone()).collect()
    }

    /// Removes the debts of keys that have no permits in use any more, to make room for others.
    pub(super) fn prune(&self, used: impl Fn(&Arc<LimitConfig>, &[u8]) -> u64) {
        let mut records = self.records.lock();
        // Pruning is not necessary while there is enough room.
        if records.owed.len() < MAX_DEBTS / 2 {
            return;
        }
        records.owed.retain(|name, owed| owed.charging.is_some() || used(&owed.config, name) > 0);
        self.count.store(records.owed.len(), Ordering::Release);
    }
}

impl Records {
    /// Ends a charge of a key. Returns its debt, and the permits refunded in the meantime; `None` if the key was reset.
    fn end_charge(&mut self, name: &[u8], number: u64) -> Option<(&mut Owed, u64)> {
        let owed = self.owed.get_mut(name)?;
        let charging = owed.charging.take_if(|charging| charging.number == number)?;
        Some((owed, charging.refunded))
    }

    /// Records a completed charge.
    fn add_charged(&mut self, name: Vec<u8>, charged: Charged) {
        if self.charged.len() >= MAX_CHARGED_KEYS && !self.charged.contains_key(&name) {
            // From then on grants of former outages can't be refunded; time alone refills them.
            self.charged.clear();
        }
        let of_key = self.charged.entry(name).or_default();
        if of_key.len() >= MAX_CHARGES_PER_KEY {
            of_key.remove(0);
        }
        of_key.push(charged);
    }
}

impl Charged {
    /// Refunds up to `cost` of the remaining charge. Returns a receipt for that part.
    fn refund(&mut self, cost: u64) -> Option<Receipt> {
        let receipt = self.receipt?;
        let with = |cost| Cost::new(cost).ok().map(|cost| Receipt::new(cost, receipt.at()).with_mark(receipt.mark()));
        let remaining = receipt.cost().get();
        self.receipt = with(remaining.saturating_sub(cost));
        with(remaining.min(cost))
    }
}

impl PendingCharges<'_> {
    /// Returns the charges to make: the config, the name and the cost of each.
    pub(crate) fn charges(&self) -> impl Iterator<Item = (Arc<LimitConfig>, Vec<u8>, Cost)> {
        self.charges.iter().filter_map(|charge| Some((Arc::clone(&charge.config), charge.name.clone(), charge.cost?)))
    }

    /// Completes the [charges](Self::charges) with these receipts; there are none if the charges can never be made.
    /// Returns the permits that were refunded in the meantime, to refund them on Redis, and the charges of the same
    /// keys by other tasks, which may fail.
    pub(crate) fn complete(mut self, receipts: Vec<Option<Receipt>>) -> (Vec<StateReceipt>, Vec<watch::Receiver<()>>) {
        let (mut receipts, mut refunds) = (receipts.into_iter(), Vec::new());
        let records = &mut *self.debts.records.lock();
        for PendingCharge { config, name, granted, cost } in self.charges.drain(..) {
            let receipt = cost.and_then(|_| receipts.next()?);
            let Some((owed, refunded)) = records.end_charge(&name, self.number) else { continue };
            owed.granted = owed.granted.saturating_sub(granted);
            if owed.granted == 0 {
                records.owed.remove(&name);
            }
            let mut charged = Charged { number: self.number, receipt };
            refunds.extend(charged.refund(refunded).map(|receipt| (config, name.clone(), receipt)));
            records.add_charged(name, charged);
        }
        self.debts.count.store(records.owed.len(), Ordering::Release);
        (refunds, std::mem::take(&mut self.others))
    }
}

impl Drop for PendingCharges<'_> {
    fn drop(&mut self) {
        if self.charges.is_empty() {
            return;
        }
        let mut records = self.debts.records.lock();
        for charge in &self.charges {
            if let Some((owed, refunded)) = records.end_charge(&charge.name, self.number) {
                owed.granted = owed.granted.saturating_sub(refunded);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit_config_versions::LimitConfigs;
    use crate::scripted_algorithm::AskArgs;
    use diana_core::{Limit, MaxWait, Timestamp, Total};
    use std::time::Duration;

    fn cost(cost: u64) -> Cost {
        Cost::new(cost).unwrap()
    }

    /// Grants this many permits to a key of a total. Returns the number of the grant.
    fn grant(debts: &Debts, granted: u64) -> u64 {
        let config = LimitConfigs::new("test").find(&Limit::new("total", Total::new(20).unwrap()), None).unwrap();
        let (max_wait, local_now, permits_for) = (MaxWait::NONE, Timestamp::EPOCH, Duration::ZERO);
        let min_expiry = Duration::ZERO;
        let ask =
            AskArgs { cost: cost(granted), max_wait, local_now, ticket: 0, permits_for, stored: None, min_expiry };
        debts.add(&[Item { config, name: b"x".to_vec(), ask, view: None }])
    }

    /// Begins to charge the key.
    fn begin(debts: &Debts) -> PendingCharges<'_> {
        debts.begin_charges(&[b"x".to_vec()], |_, _| 20)
    }

    fn charges(pending: &PendingCharges<'_>) -> Vec<u64> {
        pending.charges().map(|(_, _, cost)| cost.get()).collect()
    }

    fn receipts(pending: &PendingCharges<'_>) -> Vec<Option<Receipt>> {
        pending.charges().map(|(_, _, cost)| Some(Receipt::new(cost, Timestamp::EPOCH).with_mark(7))).collect()
    }

    fn refund(debts: &Debts, permits: u64, number: u64) -> Option<u64> {
        debts.refund(b"x", cost(permits), number).map(|receipt| receipt.cost().get())
    }

    #[test]
    fn a_failed_charge_stays_owed_and_a_task_that_waited_for_it_makes_it() {
        let debts = Debts::default();
        let number = grant(&debts, 5);
        let first = begin(&debts);
        assert_eq!(charges(&first), [5]);
        let second = begin(&debts);
        assert_eq!((charges(&second), second.others.len()), (vec![], 1));
        // Permits that are refunded in the meantime are not charged later.
        assert_eq!(refund(&debts, 2, number), None);
        drop(first);
        assert!(second.complete(Vec::new()).1[0].has_changed().is_err(), "the charge has ended");
        assert_eq!(charges(&begin(&debts)), [3]);
        assert!(!debts.is_empty());
    }

    #[test]
    fn a_grant_is_refunded_from_its_own_charge() {
        let debts = Debts::default();
        let first = grant(&debts, 5);
        let pending = begin(&debts);
        // Granted during the charge, so it belongs to the next one.
        let second = grant(&debts, 4);
        assert_eq!(refund(&debts, 1, first), None);
        let charged = receipts(&pending);
        let (refunds, _) = pending.complete(charged);
        assert_eq!(refunds.iter().map(|(.., receipt)| receipt.cost().get()).collect::<Vec<_>>(), [1]);
        assert_eq!(refund(&debts, 1, second), None, "it is not charged yet");
        let pending = begin(&debts);
        assert_eq!(charges(&pending), [3]);
        let charged = receipts(&pending);
        assert!(pending.complete(charged).0.is_empty());
        assert!(debts.is_empty());
        // A refund returns no more than was charged, for each.
        assert_eq!([refund(&debts, 3, first), refund(&debts, 3, first)], [Some(3), Some(1)]);
        assert_eq!([refund(&debts, 3, second), refund(&debts, 3, second)], [Some(3), None]);
        debts.reset(b"x");
        assert_eq!(refund(&debts, 1, first), None);
    }
}
