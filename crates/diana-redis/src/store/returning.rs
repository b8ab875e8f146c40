//! Giving back, and what is asked while something is on its way back.

use super::{DECIDED_HERE, FROM_A_LEASE, Inner, RedisStore};
use crate::caller::Moment;
use crate::link::CallError;
use crate::news::News;
use crate::options::Times;
use crate::releases::ReleaseGuard;
use crate::remote::Taken;
use crate::request::{Item, Op};
use diana_core::{Answer, Ask, Decision, Patience, RefundFuture, StoreError, Timestamp};
use std::sync::Arc;

/// The most releases that wait for Redis to come back.
const MOST_UNRETURNED: usize = 65_536;

/// What goes back to Redis.
#[derive(Debug)]
pub(super) struct Returned {
    receipts: Vec<Taken>,
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
    ) -> Result<Option<Returned>, StoreError> {
        if !decision.is_granted() {
            return Ok(None);
        }
        let items = self.remote.items(asks, now, Patience::NONE)?;
        let own = items.gather(decision);
        match (decision.note(), &self.leases) {
            (DECIDED_HERE, _) => {
                self.fallback.refund(&items.items, &own, self.instances(), now);
                return Ok(None);
            }
            (FROM_A_LEASE, Some(leases)) => {
                leases.put_back(&items.items, &own);
                return Ok(None);
            }
            _ => {}
        }
        let mut receipts = Vec::with_capacity(items.items.len());
        for (item, answer) in items.items.into_iter().zip(own.answers()) {
            self.forget(&item.plan, &item.name);
            receipts.extend(answer.receipt().map(|receipt| (item.plan, item.name, receipt)));
        }
        let held = receipts.iter().filter(|(plan, ..)| plan.kept.holds());
        let release = self.releases.begin(held.map(|(_, name, _)| name.clone()));
        Ok(Some(Returned { receipts, _release: release }))
    }

    /// Gives back on Redis. What is held and could not be released is released when Redis is back.
    pub(super) async fn hand_in(self: &Arc<Self>, mut returned: Returned, now: Timestamp) -> Result<(), CallError> {
        let moment = self.remote.moment(now);
        let done = self.remote.hand_in(Op::Refund, &mut returned.receipts, moment).await;
        for (plan, name, _) in &returned.receipts {
            // Again, since somebody may have been refused meanwhile.
            self.forget(plan, name);
        }
        let used = returned.receipts.iter().filter(|(plan, ..)| !plan.kept.holds());
        self.tell(News::Returned, used.map(|(_, name, _)| name.clone()));
        if matches!(&done, Err(error) if error.may_pass()) {
            returned.receipts.retain(|(plan, ..)| plan.kept.holds());
            // Where the time is handed in, nobody knows it when Redis is back.
            if !returned.receipts.is_empty() && self.times == Times::OfRedis {
                self.keep_unreturned(returned);
                self.settle_later();
            }
        }
        done
    }

    fn keep_unreturned(&self, returned: Returned) {
        let mut all = self.unreturned.lock();
        // What has no room here comes back when its time limit ends.
        if all.len() < MOST_UNRETURNED {
            all.push_back(returned);
        }
    }

    /// Releases what could not be released before, as far as Redis is up. To release it twice does no harm.
    pub(super) async fn return_rest(&self) {
        let link = &self.remote.caller.link;
        let count = self.unreturned.lock().len();
        for _ in 0..count {
            let Some(mut returned) = self.unreturned.lock().pop_front() else { return };
            let is_up = returned.receipts.iter().all(|(_, name, _)| link.is_up(link.part(name)));
            let done = if is_up {
                self.remote.hand_in(Op::Refund, &mut returned.receipts, self.remote.moment(link.now())).await
            } else {
                Err(CallError::Open)
            };
            if matches!(&done, Err(error) if error.may_pass()) {
                self.keep_unreturned(returned);
            }
        }
    }

    /// Asks Redis. What this process was releasing at the time may come to Redis after the question: who is denied for want of
    /// that asks once more when it is done.
    pub(super) async fn ask_redis(&self, op: Op, items: &mut [Item], moment: Moment) -> Result<Decision, CallError> {
        let released = self.releases.of(items);
        let decision = self.remote.ask(op, items, moment).await?;
        let is_in_the_way = |(item, answer): (&Item, &Answer)| item.plan.kept.holds() && !answer.is_granted();
        if released.is_empty() || !items.iter().zip(decision.answers()).any(is_in_the_way) {
            return Ok(decision);
        }
        if moment.budget.wait_for(released.done()).await.is_none() {
            return Ok(decision);
        }
        for item in items.iter_mut() {
            // What a cluster's nodes took under the first one may still be on its way back.
            item.asking.ticket = self.remote.ticket();
        }
        self.remote.ask(op, items, moment).await
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
