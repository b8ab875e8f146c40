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

use crate::client::Taken;
use crate::limit_config::LimitConfig;
use crate::request::Item;
use diana_core::{Cost, Receipt};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// The maximum number of keys whose grants are charged when Redis is reachable again. Grants to further keys are never
/// charged.
const MOST_OWING: usize = 65_536;
/// The maximum number of keys whose charges are stored, for grants that are refunded later.
const MOST_CHARGED: usize = 65_536;
/// The maximum number of charges that are stored for one key: one for each outage.
const MOST_OF_KEY: usize = 4;

/// The debts and charges of keys.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: Mutex<Accounts>,
    /// The number of keys that owe permits, so that the lock is rarely needed.
    owing: AtomicUsize,
}

#[derive(Debug, Default)]
struct Accounts {
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
    returned: u64,
    /// Closed when the charge has completed or failed.
    ends: watch::Receiver<()>,
}

/// A completed charge.
#[derive(Clone, Copy, Debug)]
struct Charged {
    number: u64,
    /// For the part that is not refunded. `None` if there is none, or if the algorithm can't refund a charge.
    receipt: Option<Receipt>,
}

/// Debts that are being charged to Redis. If dropped before they are [paid](Self::paid), they are owed as before.
#[derive(Debug)]
pub(crate) struct Debts<'a> {
    ledger: &'a Ledger,
    number: u64,
    debts: Vec<Debt>,
    /// Charges of the same keys by other tasks.
    others: Vec<watch::Receiver<()>>,
    _ends: watch::Sender<()>,
}

/// The debt of one key.
#[derive(Debug)]
struct Debt {
    config: Arc<LimitConfig>,
    name: Vec<u8>,
    /// The granted permits.
    granted: u64,
    /// The part of them that is still in use; `None` if time has refilled all of it.
    cost: Option<Cost>,
}

impl Ledger {
    /// Records that Redis does not know the grants to `items`. Returns the number to [refund](Self::give_back) them
    /// with.
    pub(super) fn owe(&self, items: &[Item]) -> u64 {
        let accounts = &mut *self.accounts.lock();
        // Held permits are released locally, by their holders.
        for item in items.iter().filter(|item| !item.config.erased.holds()) {
            let granted = item.asking.cost.get();
            let has_room = accounts.owed.len() < MOST_OWING;
            if let Some(owed) = accounts.owed.get_mut(&item.name) {
                owed.config = Arc::clone(&item.config);
                owed.granted = owed.granted.saturating_add(granted);
            } else if has_room {
                let owed = Owed { config: Arc::clone(&item.config), granted, charging: None };
                accounts.owed.insert(item.name.clone(), owed);
            }
        }
        self.owing.store(accounts.owed.len(), Ordering::Release);
        accounts.last
    }

    /// Refunds `cost` of a grant that was made after charge `number` was begun. Returns a receipt for the part of it
    /// that was charged since.
    pub(super) fn give_back(&self, name: &[u8], cost: Cost, number: u64) -> Option<Receipt> {
        let accounts = &mut *self.accounts.lock();
        let mut charged = accounts.charged.get_mut(name).into_iter().flatten();
        if let Some(charged) = charged.find(|charged| charged.number > number) {
            return charged.give_back(cost.get());
        }
        let owed = accounts.owed.get_mut(name)?;
        match &mut owed.charging {
            Some(charging) if charging.number > number => {
                charging.returned = charging.returned.saturating_add(cost.get());
            }
            _ => owed.granted = owed.granted.saturating_sub(cost.get()),
        }
        None
    }

    /// Removes all debts and charges of a key.
    pub(super) fn reset(&self, name: &[u8]) {
        let mut accounts = self.accounts.lock();
        accounts.charged.remove(name);
        accounts.owed.remove(name);
        self.owing.store(accounts.owed.len(), Ordering::Release);
    }

    /// Returns `true` if any key owes permits.
    pub(super) fn owes(&self) -> bool {
        self.owing.load(Ordering::Acquire) > 0
    }

    /// Begins to charge the debts of the keys with these names, as far as the permits are in use.
    pub(super) fn debts(&self, names: &[Vec<u8>], used: impl Fn(&Arc<LimitConfig>, &[u8]) -> u64) -> Debts<'_> {
        let (ends, charging) = watch::channel(());
        let accounts = &mut *self.accounts.lock();
        accounts.last += 1;
        let number = accounts.last;
        let mut debts = Debts { ledger: self, number, debts: Vec::new(), others: Vec::new(), _ends: ends };
        for name in names {
            let Some(owed) = accounts.owed.get_mut(name) else { continue };
            match &owed.charging {
                Some(others) => debts.others.push(others.ends.clone()),
                None => {
                    owed.charging = Some(Charging { number, returned: 0, ends: charging.clone() });
                    let (config, granted) = (Arc::clone(&owed.config), owed.granted);
                    let cost = Cost::new(granted.min(used(&config, name))).ok();
                    debts.debts.push(Debt { config, name: name.clone(), granted, cost });
                }
            }
        }
        debts
    }

    /// Returns the names of all keys that owe permits, are not being charged, and satisfy `is_meant`.
    pub(super) fn owing(&self, is_meant: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let accounts = self.accounts.lock();
        let owing = accounts.owed.iter().filter(|(name, owed)| owed.charging.is_none() && is_meant(name));
        owing.map(|(name, _)| name.clone()).collect()
    }

    /// Removes the debts of keys that have no permits in use any more, to make room for others.
    pub(super) fn forgive(&self, used: impl Fn(&Arc<LimitConfig>, &[u8]) -> u64) {
        let mut accounts = self.accounts.lock();
        // Not necessary while there is enough room.
        if accounts.owed.len() < MOST_OWING / 2 {
            return;
        }
        accounts.owed.retain(|name, owed| owed.charging.is_some() || used(&owed.config, name) > 0);
        self.owing.store(accounts.owed.len(), Ordering::Release);
    }
}

impl Accounts {
    /// Ends a charge of a key. Returns its debt, and the permits refunded in the meantime; `None` if the key was reset.
    fn end(&mut self, name: &[u8], number: u64) -> Option<(&mut Owed, u64)> {
        let owed = self.owed.get_mut(name)?;
        let charging = owed.charging.take_if(|charging| charging.number == number)?;
        Some((owed, charging.returned))
    }

    /// Records a completed charge.
    fn note(&mut self, name: Vec<u8>, charged: Charged) {
        if self.charged.len() >= MOST_CHARGED && !self.charged.contains_key(&name) {
            // From then on grants of former outages can't be refunded; time alone refills them.
            self.charged.clear();
        }
        let of_key = self.charged.entry(name).or_default();
        if of_key.len() >= MOST_OF_KEY {
            of_key.remove(0);
        }
        of_key.push(charged);
    }
}

impl Charged {
    /// Refunds up to `cost` of the remaining charge. Returns a receipt for that part.
    fn give_back(&mut self, cost: u64) -> Option<Receipt> {
        let receipt = self.receipt?;
        let of = |cost| Cost::new(cost).ok().map(|cost| Receipt::new(cost, receipt.at()).with_mark(receipt.mark()));
        let left = receipt.cost().get();
        self.receipt = of(left.saturating_sub(cost));
        of(left.min(cost))
    }
}

impl Debts<'_> {
    /// Returns the charges to make: the config, the name and the cost of each.
    pub(crate) fn charges(&self) -> impl Iterator<Item = (Arc<LimitConfig>, Vec<u8>, Cost)> {
        self.debts.iter().filter_map(|debt| Some((Arc::clone(&debt.config), debt.name.clone(), debt.cost?)))
    }

    /// Completes the [charges](Self::charges) with these receipts; there are none if the charges can never be made.
    /// Returns the permits that were refunded in the meantime, to refund them on Redis, and the charges of the same
    /// keys by other tasks, which may fail.
    pub(crate) fn paid(mut self, receipts: Vec<Option<Receipt>>) -> (Vec<Taken>, Vec<watch::Receiver<()>>) {
        let (mut receipts, mut returned) = (receipts.into_iter(), Vec::new());
        let accounts = &mut *self.ledger.accounts.lock();
        for Debt { config, name, granted, cost } in self.debts.drain(..) {
            let receipt = cost.and_then(|_| receipts.next()?);
            let Some((owed, given_back)) = accounts.end(&name, self.number) else { continue };
            owed.granted = owed.granted.saturating_sub(granted);
            if owed.granted == 0 {
                accounts.owed.remove(&name);
            }
            let mut charged = Charged { number: self.number, receipt };
            returned.extend(charged.give_back(given_back).map(|receipt| (config, name.clone(), receipt)));
            accounts.note(name, charged);
        }
        self.ledger.owing.store(accounts.owed.len(), Ordering::Release);
        (returned, std::mem::take(&mut self.others))
    }
}

impl Drop for Debts<'_> {
    fn drop(&mut self) {
        if self.debts.is_empty() {
            return;
        }
        let mut accounts = self.ledger.accounts.lock();
        for debt in &self.debts {
            if let Some((owed, given_back)) = accounts.end(&debt.name, self.number) {
                owed.granted = owed.granted.saturating_sub(given_back);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit_config::LimitConfigs;
    use crate::scripted::Asking;
    use diana_core::{Limit, MaxWait, Timestamp, Total};
    use std::time::Duration;

    fn cost(cost: u64) -> Cost {
        Cost::new(cost).unwrap()
    }

    /// Grants this many permits to a key of a total. Returns the number of the grant.
    fn grant(ledger: &Ledger, granted: u64) -> u64 {
        let config = LimitConfigs::new("test").find(&Limit::new("total", Total::new(20).unwrap()), None).unwrap();
        let (max_wait, about, permits_for) = (MaxWait::NONE, Timestamp::EPOCH, Duration::ZERO);
        let keeps = Duration::ZERO;
        let asking = Asking { cost: cost(granted), max_wait, about, ticket: 0, permits_for, stored: None, keeps };
        ledger.owe(&[Item { config, name: b"x".to_vec(), asking, seen: None }])
    }

    /// Begins to charge the key.
    fn begin(ledger: &Ledger) -> Debts<'_> {
        ledger.debts(&[b"x".to_vec()], |_, _| 20)
    }

    fn charges(debts: &Debts<'_>) -> Vec<u64> {
        debts.charges().map(|(_, _, cost)| cost.get()).collect()
    }

    fn receipts(debts: &Debts<'_>) -> Vec<Option<Receipt>> {
        debts.charges().map(|(_, _, cost)| Some(Receipt::new(cost, Timestamp::EPOCH).with_mark(7))).collect()
    }

    fn give_back(ledger: &Ledger, returned: u64, number: u64) -> Option<u64> {
        ledger.give_back(b"x", cost(returned), number).map(|receipt| receipt.cost().get())
    }

    #[test]
    fn a_charge_that_fails_is_owed_as_before_and_whoever_waited_for_it_makes_it() {
        let ledger = Ledger::default();
        let number = grant(&ledger, 5);
        let first = begin(&ledger);
        assert_eq!(charges(&first), [5]);
        let second = begin(&ledger);
        assert_eq!((charges(&second), second.others.len()), (vec![], 1));
        // Permits that are refunded in the meantime are not charged later.
        assert_eq!(give_back(&ledger, 2, number), None);
        drop(first);
        assert!(second.paid(Vec::new()).1[0].has_changed().is_err(), "it has ended");
        assert_eq!(charges(&begin(&ledger)), [3]);
        assert!(ledger.owes());
    }

    #[test]
    fn a_grant_is_given_back_by_the_charge_that_it_was_charged_with() {
        let ledger = Ledger::default();
        let first = grant(&ledger, 5);
        let debts = begin(&ledger);
        // Granted during the charge, so it belongs to the next one.
        let second = grant(&ledger, 4);
        assert_eq!(give_back(&ledger, 1, first), None);
        let paid = receipts(&debts);
        let (returned, _) = debts.paid(paid);
        assert_eq!(returned.iter().map(|(.., receipt)| receipt.cost().get()).collect::<Vec<_>>(), [1]);
        assert_eq!(give_back(&ledger, 1, second), None, "it is not charged yet");
        let debts = begin(&ledger);
        assert_eq!(charges(&debts), [3]);
        let paid = receipts(&debts);
        assert!(debts.paid(paid).0.is_empty());
        assert!(!ledger.owes());
        // No more than was charged, for each.
        assert_eq!([give_back(&ledger, 3, first), give_back(&ledger, 3, first)], [Some(3), Some(1)]);
        assert_eq!([give_back(&ledger, 3, second), give_back(&ledger, 3, second)], [Some(3), None]);
        ledger.reset(b"x");
        assert_eq!(give_back(&ledger, 1, first), None);
    }
}
