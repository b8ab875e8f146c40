//! Charges the grants of local counts when Redis is reachable again: before the next query for their key, and in the
//! background for all other keys. Also releases permits that were held when Redis became unreachable.

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

/// The polling interval for Redis to be up, while permits are owed.
const SETTLE_EVERY: Duration = Duration::from_millis(50);
/// The number of polls between two checks whether owed permits are still in use: 5 s.
const FORGIVE_EVERY: u32 = 100;
/// The maximum number of keys that are charged in one call.
const SETTLED_AT_ONCE: usize = 64;
/// The maximum number of concurrent calls: a cluster needs one for each slot.
pub(super) const CALLS_AT_ONCE: usize = 8;
/// The maximum time that closing a store takes for pending releases and charges.
const LAST_CALLS: Duration = Duration::from_secs(1);
/// The polling interval for their completion.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Inner {
    /// Charges the local grants of these keys to Redis, before it is queried for them.
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

    /// Charges the debts of the keys with these names, which are on one node. If one of them makes the call fail, each
    /// is charged separately.
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
                    // No value is ever sent: this fails when the sender is dropped.
                    while other.changed().await.is_ok() {}
                }
            };
            // They may have failed, so the loop checks again.
            moment.budget.wait_for(ended).await.ok_or_else(|| self.client.runner.link.timed_out())?;
        }
    }

    /// Charges `debts`. Returns the charges of the same keys by other tasks.
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
                // A key that does not hold a Diana state can never be charged.
                Err(error) if charges.len() == 1 && !error.may_pass() => Vec::new(),
                done => done?,
            };
        }
        let (returned, others) = debts.paid(receipts);
        if !returned.is_empty() {
            self.hand_in_in_background(returned, moment.now);
        }
        Ok(others)
    }

    /// Starts a task that charges owed permits when Redis is up, also for keys without requests.
    pub(super) fn settle_later(self: &Arc<Self>) {
        // If the caller provides the time, the task does not know it.
        let is_due = self.is_owing() && self.times == Times::OfRedis;
        if is_due && !self.settling.swap(true, Ordering::AcqRel) {
            self.runtime.spawn(settle_all(Arc::downgrade(self)));
        }
    }

    /// Returns `true` if there are pending releases or charges for Redis.
    fn is_owing(&self) -> bool {
        self.fallback.owes() || !self.unreturned.lock().is_empty()
    }

    /// Charges the debts of keys whose part of Redis is up, each key once: failures are retried at the next poll.
    async fn settle_owed(self: &Arc<Self>) {
        let link = &self.client.runner.link;
        let mut names = self.fallback.owing(|name| link.is_up(link.part(name)));
        let groups = self.client.groups(&mut names, |name| name).flat_map(|group| group.chunks(SETTLED_AT_ONCE));
        let charged = stream::iter(groups).for_each_concurrent(CALLS_AT_ONCE, |names| async move {
            // Each call has its own budget, however long those before it took.
            let _ = self.charge_back(names, || self.client.moment(link.now())).await;
        });
        charged.await;
    }

    /// Sends pending releases and charges, as far as possible at once.
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
        // Those that are not sent by then are lost.
        let _ = tokio::time::timeout(at_most, settled).await;
    }
}

/// Sends pending releases and charges as soon as Redis is up, until there are none.
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
            // A debt may have been added just before that.
            if !inner.is_owing() || inner.settling.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}
