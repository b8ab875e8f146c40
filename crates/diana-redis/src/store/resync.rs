//! Charges the grants of local counts when Redis is reachable again: before the next query for their key, and in the
//! background for all other keys. Also releases permits that were held when Redis became unreachable.

use super::RedisStoreInner;
use crate::direct_store::ParameterSource;
use crate::fallback::PendingCharges;
use crate::link::CallError;
use crate::options::TimeSource;
use crate::script_call::Item;
use crate::script_runner::CallContext;
use futures_util::stream::{self, StreamExt};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// The polling interval for Redis to be up, while permits are owed.
const RESYNC_EVERY: Duration = Duration::from_millis(50);
/// The number of polls between two checks whether owed permits are still in use: 5 s.
const PRUNE_EVERY: u32 = 100;
/// The maximum number of keys that are charged in one call.
const MAX_KEYS_PER_CALL: usize = 64;
/// The maximum number of concurrent calls: a cluster needs one for each slot.
pub(super) const MAX_CALLS: usize = 8;
/// The maximum time that closing a store takes for pending releases and charges.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The polling interval for their completion.
const POLL_EVERY: Duration = Duration::from_millis(5);

impl RedisStoreInner {
    /// Charges the local grants of these keys to Redis, before it is queried for them.
    pub(super) async fn charge_debts_of(
        self: &Arc<Self>,
        items: &[Item],
        context: CallContext,
    ) -> Result<(), CallError> {
        if !self.fallback.has_debts() {
            return Ok(());
        }
        let mut names = items.iter().map(|item| item.name.clone()).collect::<Vec<_>>();
        for names in self.client.groups(&mut names, |name| name) {
            self.charge_debts(names, || context).await?;
        }
        Ok(())
    }

    /// Charges the debts of the keys with these names, which are on one node. If one of them makes the call fail, each
    /// is charged separately.
    async fn charge_debts(
        self: &Arc<Self>,
        names: &[Vec<u8>],
        context: impl Fn() -> CallContext + Send,
    ) -> Result<(), CallError> {
        match self.charge_in_one_call(names, context()).await {
            Err(error) if names.len() > 1 && error.is_caused_by_keys() => {
                let mut all = Ok(());
                for name in names {
                    all = all.and(self.charge_in_one_call(std::slice::from_ref(name), context()).await);
                }
                all
            }
            done => done,
        }
    }

    async fn charge_in_one_call(self: &Arc<Self>, names: &[Vec<u8>], context: CallContext) -> Result<(), CallError> {
        loop {
            let pending = self.fallback.begin_charges(names, self.instances(), context.now);
            let others = self.charge_pending(pending, context).await?;
            if others.is_empty() {
                return Ok(());
            }
            let ended = async {
                for mut other in others {
                    // No value is ever sent: this fails when the sender is dropped.
                    while other.changed().await.is_ok() {}
                }
            };
            // The releases may have failed, so the loop checks again.
            context.budget.wait_for(ended).await.ok_or_else(|| self.client.runner.link.timed_out())?;
        }
    }

    /// Makes the `pending` charges. Returns the charges of the same keys by other tasks.
    async fn charge_pending(
        self: &Arc<Self>,
        pending: PendingCharges<'_>,
        context: CallContext,
    ) -> Result<Vec<watch::Receiver<()>>, CallError> {
        let charges = pending.charges().map(|(config, name, cost)| self.client.item(config, name, cost, context.now));
        let mut charges = charges.collect::<Vec<_>>();
        let mut receipts = Vec::new();
        if !charges.is_empty() {
            let done = self.client.charge(&mut charges, ParameterSource::Stored, context).await;
            for item in &charges {
                self.invalidate(&item.config, &item.name);
            }
            receipts = match done {
                // A key that does not hold a Diana state can never be charged.
                Err(error) if charges.len() == 1 && !error.is_transient() => Vec::new(),
                done => done?,
            };
        }
        let (refunds, others) = pending.complete(receipts);
        if !refunds.is_empty() {
            self.refund_in_background(refunds, context.now);
        }
        Ok(others)
    }

    /// Starts a task that charges owed permits when Redis is up, also for keys without requests.
    pub(super) fn resync_later(self: &Arc<Self>) {
        // If the caller provides the time, the task does not know it.
        let is_due = self.has_pending() && self.times != TimeSource::Caller;
        if is_due && !self.resyncing.swap(true, Ordering::AcqRel) {
            self.runtime.spawn(resync_task(Arc::downgrade(self)));
        }
    }

    /// Returns `true` if there are pending releases or charges for Redis.
    fn has_pending(&self) -> bool {
        self.fallback.has_debts() || !self.pending_releases.lock().is_empty()
    }

    /// Charges the debts of keys whose part of Redis is up, each key once: failures are retried at the next poll.
    async fn charge_all_debts(self: &Arc<Self>) {
        let link = &self.client.runner.link;
        let mut names = self.fallback.keys_with_debts(|name| link.is_up(link.part(name)));
        let groups = self.client.groups(&mut names, |name| name).flat_map(|group| group.chunks(MAX_KEYS_PER_CALL));
        let charged = stream::iter(groups).for_each_concurrent(MAX_CALLS, |names| async move {
            // Each call has its own budget, however long those before it took.
            let _ = self.charge_debts(names, || self.client.context(link.now())).await;
        });
        charged.await;
    }

    /// Sends pending releases and charges, as far as possible at once.
    pub(super) async fn resync_now(self: &Arc<Self>) {
        if self.times == TimeSource::Caller {
            return;
        }
        let done = async {
            while self.has_pending() || !self.releases.is_empty() {
                self.send_pending_releases().await;
                self.charge_all_debts().await;
                tokio::time::sleep(POLL_EVERY).await;
            }
        };
        let timeout = self.client.runner.link.timeout().min(CLOSE_TIMEOUT);
        // Releases that are not sent by then are lost.
        let _ = tokio::time::timeout(timeout, done).await;
    }
}

/// Sends pending releases and charges as soon as Redis is up, until there are none.
async fn resync_task(store: Weak<RedisStoreInner>) {
    let mut polls = 0_u32;
    loop {
        tokio::time::sleep(RESYNC_EVERY).await;
        let Some(inner) = store.upgrade() else { return };
        inner.send_pending_releases().await;
        inner.charge_all_debts().await;
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(PRUNE_EVERY) {
            inner.fallback.prune_debts(inner.instances(), inner.client.runner.link.now());
        }
        if !inner.has_pending() {
            inner.resyncing.store(false, Ordering::Release);
            // A debt may have been added just before that.
            if !inner.has_pending() || inner.resyncing.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}
