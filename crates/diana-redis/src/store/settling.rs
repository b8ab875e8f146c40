//! What local counts granted while Redis was away is charged when it is back: of a key that is asked for before it is asked for,
//! and of all others in the background. So is released what was held when Redis went away.

use super::Inner;
use crate::caller::Moment;
use crate::fallback::Debts;
use crate::link::CallError;
use crate::options::Times;
use crate::request::Item;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often it is looked whether Redis is back, while something is owed.
const SETTLE_EVERY: Duration = Duration::from_millis(50);
/// How many of these looks there are between two at whether what is owed is still in use: 5 s.
const FORGIVE_EVERY: u32 = 100;
/// How many keys are charged in one call.
const SETTLED_AT_ONCE: usize = 64;

impl Inner {
    /// Charges on Redis what these keys were granted without it, before they are asked for.
    pub(super) async fn settle(&self, items: &[Item], moment: Moment) -> Result<(), CallError> {
        if !self.fallback.owes() {
            return Ok(());
        }
        let names = items.iter().map(|item| &item.name[..]);
        match self.fallback.debts(names, self.instances(), moment.now) {
            Some(debts) => self.pay(debts, moment).await,
            None => Ok(()),
        }
    }

    async fn pay(&self, debts: Debts<'_>, moment: Moment) -> Result<(), CallError> {
        let charges = debts.charges().map(|(plan, name, cost)| self.remote.item(plan, name, cost, moment.now));
        let mut charges = charges.collect::<Vec<_>>();
        if !charges.is_empty() {
            let done = self.remote.charge(&mut charges, moment).await;
            for item in &charges {
                self.forget(&item.plan, &item.name);
            }
            // A key that is none of ours can't be charged, today or tomorrow.
            if let Err(error) = done
                && error.may_pass()
            {
                return Err(error);
            }
        }
        moment.budget.wait_for(debts.paid()).await.ok_or_else(|| self.remote.caller.link.timed_out())
    }

    /// Sees to it that what is owed is charged when Redis is back, also for keys that nobody asks for then.
    pub(super) fn settle_later(self: &Arc<Self>) {
        // Where the time is handed in, nobody knows it here.
        let is_due = self.is_owing() && self.times == Times::OfRedis;
        if is_due && !self.settling.swap(true, Ordering::AcqRel) {
            self.runtime.spawn(settle_all(Arc::downgrade(self)));
        }
    }

    /// Whether Redis has to hear of something when it is back.
    fn is_owing(&self) -> bool {
        self.fallback.owes() || !self.unreturned.lock().is_empty()
    }

    /// Charges what some keys owe whose part of Redis is up; how many.
    async fn settle_some(&self) -> usize {
        let link = &self.remote.caller.link;
        let names = self.fallback.owing(SETTLED_AT_ONCE, |name| link.is_up(link.part(name)));
        let moment = self.remote.moment(link.now());
        let names_of = names.iter().map(|name| &name[..]);
        let Some(debts) = self.fallback.debts(names_of, self.instances(), moment.now) else { return 0 };
        match self.pay(debts, moment).await {
            Ok(()) => names.len(),
            Err(_) => 0,
        }
    }
}

/// Releases and charges what Redis does not know of as soon as it is up, until it knows all.
async fn settle_all(store: Weak<Inner>) {
    let mut looked = 0_u32;
    loop {
        tokio::time::sleep(SETTLE_EVERY).await;
        let Some(inner) = store.upgrade() else { return };
        inner.return_rest().await;
        while inner.settle_some().await > 0 {}
        looked = looked.wrapping_add(1);
        if looked.is_multiple_of(FORGIVE_EVERY) {
            inner.fallback.forgive(inner.instances(), inner.remote.caller.link.now());
        }
        if !inner.is_owing() {
            inner.settling.store(false, Ordering::Release);
            // Somebody may have come to owe just before that.
            if !inner.is_owing() || inner.settling.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}
