//! Giving back, and what is asked while something is on its way back.

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

/// The most releases that wait for Redis to come back.
const MOST_UNRETURNED: usize = 65_536;

/// What goes back to Redis.
#[derive(Debug)]
pub(super) struct PendingRefund {
    receipts: Vec<Taken>,
    /// What may still be taken until this is over: only then it can be given back.
    after: Option<Budget>,
    /// Until it is there.
    _release: Option<ReleaseGuard>,
}

impl Inner {
    /// Gives back what was not taken on Redis; what is left to give back there, of which decisions from now on know.
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

    /// What goes back to Redis, of which decisions from now on know.
    fn returned(&self, receipts: Vec<Taken>) -> PendingRefund {
        for (config, name, _) in &receipts {
            self.forget(config, name);
        }
        let held = receipts.iter().filter(|(config, ..)| config.erased.holds());
        let release = self.releases.begin(held.map(|(_, name, _)| name.clone()));
        PendingRefund { receipts, after: None, _release: release }
    }

    /// Gives back on Redis. What is held and could not be released is released when Redis is back.
    pub(super) async fn hand_in(
        self: &Arc<Self>,
        mut returned: PendingRefund,
        now: Timestamp,
    ) -> Result<(), CallError> {
        let moment = self.client.moment(now);
        let done = self.client.hand_in(Op::Refund, &mut returned.receipts, Under::Ours, moment).await;
        for (config, name, _) in &returned.receipts {
            // Again, since somebody may have been refused meanwhile.
            self.forget(config, name);
        }
        let used = returned.receipts.iter().filter(|(config, ..)| !config.erased.holds());
        self.tell(Invalidation::PendingRefund, used.map(|(_, name, _)| name.clone()));
        if matches!(&done, Err(error) if error.may_pass()) {
            returned.receipts.retain(|(config, ..)| config.erased.holds());
            self.return_later(returned);
        }
        done
    }

    /// Gives back on Redis, behind whoever took it.
    pub(super) fn hand_in_behind(self: &Arc<Self>, receipts: Vec<Taken>, now: Timestamp) {
        let (inner, returned) = (Arc::clone(self), self.returned(receipts));
        self.runtime.spawn(async move {
            if let Err(error) = inner.hand_in(returned, now).await {
                inner.client.runner.link.complain_of_refund(&error.to_string());
            }
        });
    }

    /// Releases what `items` may hold without that anybody knows, since the answer was lost: when it can't be taken any more.
    fn release_unknown(self: &Arc<Self>, items: &[Item], budget: Budget) {
        let held = items.iter().filter(|item| item.config.erased.holds()).map(|item| {
            // Served it was not, which a release shows that comes before its time.
            let receipt = Receipt::new(item.asking.cost, Timestamp::MAX).with_mark(item.asking.ticket);
            (Arc::clone(&item.config), item.name.clone(), receipt)
        });
        self.return_later(PendingRefund { after: Some(budget), ..self.returned(held.collect()) });
    }

    /// Sees to it that held permits are released, as soon as Redis is up.
    fn return_later(self: &Arc<Self>, returned: PendingRefund) {
        // Where the time is handed in, nobody knows it when Redis is back.
        if !returned.receipts.is_empty() && self.times == Times::OfRedis {
            self.keep_unreturned(returned);
            self.settle_later();
        }
    }

    fn keep_unreturned(&self, returned: PendingRefund) {
        let mut all = self.unreturned.lock();
        // What has no room here comes back when its time limit ends.
        if all.len() < MOST_UNRETURNED {
            all.push_back(returned);
        }
    }

    /// Releases what could not be released before, as far as Redis is up. To release it twice does no harm.
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

    /// Asks Redis. A permit that it may have given out without that anybody heard of it is released.
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

    /// What this process was releasing when Redis is asked may come there after the question: who is denied for want of that asks
    /// once more when it is done.
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
            // What a cluster's nodes took under the first one may still be on its way back.
            item.asking.ticket = self.client.ticket();
        }
        self.ask_all(op, items, moment).await
    }
}

impl RedisStore {
    /// Begins to give back where it was taken from, in the store's runtime.
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
