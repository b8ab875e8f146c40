//! Refunds, and queries while a refund is in flight.

use super::charge_back::CALLS_AT_ONCE;
use super::{Inner, MadeBy, RedisStore};
use crate::client::{Taken, Under};
use crate::invalidation::Invalidation;
use crate::link::{Budget, CallError};
use crate::options::Times;
use crate::releases::ReleaseGuard;
use crate::request::{Item, Op};
use crate::script_runner::CallContext;
use diana_core::{Answer, Ask, Decision, MaxWait, Receipt, RefundFuture, StoreError, Timestamp};
use futures_util::stream::{self, StreamExt};
use std::sync::Arc;

/// The maximum number of releases that wait until Redis is reachable again.
const MOST_UNRETURNED: usize = 65_536;

/// Permits to refund on Redis.
#[derive(Debug)]
pub(super) struct PendingRefund {
    receipts: Vec<Taken>,
    /// The budget until whose end the permits may still be taken: they can be released only after it.
    after: Option<Budget>,
    /// Dropped when the refund is done.
    _release: Option<ReleaseGuard>,
}

impl Inner {
    /// Refunds permits that were not taken from Redis. Returns those to refund on Redis, which later decisions take
    /// into account.
    pub(super) fn take_back(
        &self,
        asks: &[Ask<'_>],
        decision: &Decision,
        now: Timestamp,
    ) -> Result<Option<PendingRefund>, StoreError> {
        if !decision.is_granted() {
            return Ok(None);
        }
        let items = self.client.items(asks, now, MaxWait::NONE)?;
        let own = items.gather(decision);
        let receipts = match (MadeBy::noted(decision), &self.leases) {
            (MadeBy::LocalCounts(number), _) => {
                self.fallback.refund(&items.items, (&own, number), self.instances(), now)
            }
            (MadeBy::Lease, Some(leases)) => {
                leases.put_back(&items.items, &own);
                Vec::new()
            }
            _ => {
                let taken = items.items.into_iter().zip(own.answers());
                taken.filter_map(|(item, answer)| Some((item.config, item.name, answer.receipt()?))).collect()
            }
        };
        Ok((!receipts.is_empty()).then(|| self.returned(receipts)))
    }

    /// Creates a refund on Redis, which later decisions take into account.
    fn returned(&self, receipts: Vec<Taken>) -> PendingRefund {
        for (config, name, _) in &receipts {
            self.forget(config, name);
        }
        let held = receipts.iter().filter(|(config, ..)| config.erased.holds());
        let release = self.releases.begin(held.map(|(_, name, _)| name.clone()));
        PendingRefund { receipts, after: None, _release: release }
    }

    /// Refunds on Redis. Held permits that could not be released are released when Redis is reachable again.
    pub(super) async fn hand_in(
        self: &Arc<Self>,
        mut returned: PendingRefund,
        now: Timestamp,
    ) -> Result<(), CallError> {
        let moment = self.client.moment(now);
        let done = self.client.hand_in(Op::Refund, &mut returned.receipts, Under::Ours, moment).await;
        for (config, name, _) in &returned.receipts {
            // Again, since a request may have been denied in the meantime.
            self.forget(config, name);
        }
        let used = returned.receipts.iter().filter(|(config, ..)| !config.erased.holds());
        self.tell(Invalidation::Refunded, used.map(|(_, name, _)| name.clone()));
        if matches!(&done, Err(error) if error.may_pass()) {
            returned.receipts.retain(|(config, ..)| config.erased.holds());
            self.return_later(returned);
        }
        done
    }

    /// Refunds on Redis in the background.
    pub(super) fn hand_in_in_background(self: &Arc<Self>, receipts: Vec<Taken>, now: Timestamp) {
        let (inner, returned) = (Arc::clone(self), self.returned(receipts));
        self.runtime.spawn(async move {
            if let Err(error) = inner.hand_in(returned, now).await {
                inner.client.runner.link.complain_of_refund(&error.to_string());
            }
        });
    }

    /// Releases permits that `items` may hold although the answer was lost: after the time when they could still be
    /// taken.
    fn release_unknown(self: &Arc<Self>, items: &[Item], budget: Budget) {
        let held = items.iter().filter(|item| item.config.erased.holds()).map(|item| {
            // The request was not served, which the release shows by a time before the receipt's.
            let receipt = Receipt::new(item.asking.cost, Timestamp::MAX).with_mark(item.asking.ticket);
            (Arc::clone(&item.config), item.name.clone(), receipt)
        });
        self.return_later(PendingRefund { after: Some(budget), ..self.returned(held.collect()) });
    }

    /// Schedules the release of held permits for when Redis is up.
    fn return_later(self: &Arc<Self>, returned: PendingRefund) {
        // If the caller provides the time, the time of a later release is unknown.
        if !returned.receipts.is_empty() && self.times == Times::OfRedis {
            self.keep_unreturned(returned);
            self.settle_later();
        }
    }

    fn keep_unreturned(&self, returned: PendingRefund) {
        let mut all = self.unreturned.lock();
        // If there is no room, the permits are released when they expire.
        if all.len() < MOST_UNRETURNED {
            all.push_back(returned);
        }
    }

    /// Sends the pending releases for parts of Redis that are up. To release twice has no effect.
    pub(super) async fn return_rest(&self) {
        let link = &self.client.runner.link;
        let is_due = |returned: &PendingRefund| {
            returned.after.is_none_or(Budget::is_over)
                && returned.receipts.iter().all(|(_, name, _)| link.is_up(link.part(name)))
        };
        let due = {
            let mut all = self.unreturned.lock();
            let (due, rest) = all.drain(..).partition::<Vec<_>, _>(is_due);
            all.extend(rest);
            due
        };
        let released = stream::iter(due).for_each_concurrent(CALLS_AT_ONCE, |mut returned| async move {
            let moment = self.client.moment(link.now());
            let done = self.client.hand_in(Op::Refund, &mut returned.receipts, Under::Found, moment).await;
            if matches!(&done, Err(error) if error.may_pass()) {
                self.keep_unreturned(returned);
            }
        });
        released.await;
    }

    /// Queries Redis. Releases a permit that Redis may have granted without its answer arriving.
    pub(super) async fn ask_redis(
        self: &Arc<Self>,
        op: Op,
        items: &mut [Item],
        moment: CallContext,
    ) -> Result<Decision, CallError> {
        let asked = self.ask_after_releases(op, items, moment).await;
        if op == Op::Take && matches!(&asked, Err(error) if error.may_have_run()) {
            self.release_unknown(items, moment.budget);
        }
        asked
    }

    /// A release that is in flight when Redis is queried may arrive after the query: a request that is denied for that
    /// reason is retried when the release is done.
    async fn ask_after_releases(
        self: &Arc<Self>,
        op: Op,
        items: &mut [Item],
        moment: CallContext,
    ) -> Result<Decision, CallError> {
        let released = self.releases.of(items);
        let decision = self.ask_all(op, items, moment).await?;
        let is_in_the_way = |(item, answer): (&Item, &Answer)| item.config.erased.holds() && !answer.is_granted();
        if released.is_empty() || !items.iter().zip(decision.answers()).any(is_in_the_way) {
            return Ok(decision);
        }
        if moment.budget.wait_for(released.done()).await.is_none() {
            return Ok(decision);
        }
        for item in items.iter_mut() {
            // Permits that a cluster's nodes granted under the first ticket may still be in the process of being
            // refunded.
            item.asking.ticket = self.client.ticket();
        }
        self.ask_all(op, items, moment).await
    }
}

impl RedisStore {
    /// Starts the refund to the source of the permits, in the store's runtime.
    pub(crate) fn spawn_refund(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> RefundFuture {
        let returned = match self.inner.take_back(asks, decision, now) {
            Ok(Some(returned)) => returned,
            done => return Box::pin(std::future::ready(done.map(drop))),
        };
        let (store, inner) = (self.clone(), Arc::clone(&self.inner));
        let handed_in = self.inner.runtime.spawn(async move { inner.hand_in(returned, now).await });
        Box::pin(async move {
            // Without its runtime there is no connection either.
            handed_in.await.unwrap_or(Err(CallError::Open)).map_err(|error| store.failed(&error))
        })
    }
}
