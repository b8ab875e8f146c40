//! What local counts granted while Redis was away is charged when it is back: of a key that is asked for before it is asked for,
//! and of all others in the background. So is released what was held when Redis went away.

use super::Inner;
use crate::client::Under;
use crate::fallback::Debts;
use crate::link::CallError;
use crate::options::Times;
use crate::request::Item;
use crate::script_runner::CallContext;
use futures_util::stream::{self, StreamExt};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// How often it is looked whether Redis is back, while something is owed.
const SETTLE_EVERY: Duration = Duration::from_millis(50);
/// How many of these looks there are between two at whether what is owed is still in use: 5 s.
const FORGIVE_EVERY: u32 = 100;
/// How many keys are charged in one call, at most.
const SETTLED_AT_ONCE: usize = 64;
/// How many calls are under way at once: a cluster needs one for each slot.
pub(super) const CALLS_AT_ONCE: usize = 8;
/// How long a store that is closed takes at most for what Redis does not know of yet.
const LAST_CALLS: Duration = Duration::from_secs(1);
/// How often it is looked then whether Redis knows all.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Inner {
    /// Charges on Redis what these keys were granted without it, before they are asked for.
    pub(super) async fn settle(self: &Arc<Self>, items: &[Item], moment: CallContext) -> Result<(), CallError> {
        if !self.fallback.owes() {
            return Ok(());
        }
        let mut names = items.iter().map(|item| item.name.clone()).collect::<Vec<_>>();
        for names in self.client.groups(&mut names, |name| name) {
            self.charge_back(names, || moment).await?;
        }
        Ok(())
    }

    /// Charges what the keys with these names owe, which are on one node. If one of them is in the way of the others, each is
    /// charged alone.
    async fn charge_back(
        self: &Arc<Self>,
        names: &[Vec<u8>],
        moment: impl Fn() -> CallContext + Send,
    ) -> Result<(), CallError> {
        match self.charge_together(names, moment()).await {
            Err(error) if names.len() > 1 && error.is_of_keys() => {
                let mut all = Ok(());
                for name in names {
                    all = all.and(self.charge_together(std::slice::from_ref(name), moment()).await);
                }
                all
            }
            done => done,
        }
    }

    async fn charge_together(self: &Arc<Self>, names: &[Vec<u8>], moment: CallContext) -> Result<(), CallError> {
        loop {
            let debts = self.fallback.debts(names, self.instances(), moment.now);
            let others = self.pay(debts, moment).await?;
            if others.is_empty() {
                return Ok(());
            }
            let ended = async {
                for mut other in others {
                    // Nothing is ever sent: it fails when the sender is dropped.
                    while other.changed().await.is_ok() {}
                }
            };
            // They may have failed, so it is looked again.
            moment.budget.wait_for(ended).await.ok_or_else(|| self.client.runner.link.timed_out())?;
        }
    }

    /// Charges `debts`; the charges of the same keys that others are making.
    async fn pay(
        self: &Arc<Self>,
        debts: Debts<'_>,
        moment: CallContext,
    ) -> Result<Vec<watch::Receiver<()>>, CallError> {
        let charges = debts.charges().map(|(config, name, cost)| self.client.item(config, name, cost, moment.now));
        let mut charges = charges.collect::<Vec<_>>();
        let mut receipts = Vec::new();
        if !charges.is_empty() {
            let done = self.client.charge(&mut charges, Under::Found, moment).await;
            for item in &charges {
                self.forget(&item.config, &item.name);
            }
            receipts = match done {
                // A key that is none of ours can't be charged, today or tomorrow.
                Err(error) if charges.len() == 1 && !error.may_pass() => Vec::new(),
                done => done?,
            };
        }
        let (returned, others) = debts.paid(receipts);
        if !returned.is_empty() {
            self.hand_in_behind(returned, moment.now);
        }
        Ok(others)
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

    /// Charges what keys owe whose part of Redis is up, each key once: what fails is tried again with the next look.
    async fn settle_owed(self: &Arc<Self>) {
        let link = &self.client.runner.link;
        let mut names = self.fallback.owing(|name| link.is_up(link.part(name)));
        let groups = self.client.groups(&mut names, |name| name).flat_map(|group| group.chunks(SETTLED_AT_ONCE));
        let charged = stream::iter(groups).for_each_concurrent(CALLS_AT_ONCE, |names| async move {
            // Each call has the time that calls have, whatever those before it took.
            let _ = self.charge_back(names, || self.client.moment(link.now())).await;
        });
        charged.await;
    }

    /// Releases and charges what Redis does not know of, as far as that can be done at once.
    pub(super) async fn settle_now(self: &Arc<Self>) {
        if self.times != Times::OfRedis {
            return;
        }
        let settled = async {
            while self.is_owing() || !self.releases.is_empty() {
                self.return_rest().await;
                self.settle_owed().await;
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let at_most = self.client.runner.link.timeout().min(LAST_CALLS);
        // What is not known by then, Redis never hears of.
        let _ = tokio::time::timeout(at_most, settled).await;
    }
}

/// Releases and charges what Redis does not know of as soon as it is up, until it knows all.
async fn settle_all(store: Weak<Inner>) {
    let mut looked = 0_u32;
    loop {
        tokio::time::sleep(SETTLE_EVERY).await;
        let Some(inner) = store.upgrade() else { return };
        inner.return_rest().await;
        inner.settle_owed().await;
        looked = looked.wrapping_add(1);
        if looked.is_multiple_of(FORGIVE_EVERY) {
            inner.fallback.forgive(inner.instances(), inner.client.runner.link.now());
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
