//! Refunds, to the source of the permits; and releases that wait until Redis is reachable again.

use super::resync::MAX_CALLS;
use super::{DecidedBy, RedisStore, RedisStoreInner};
use crate::direct_store::{ParameterSource, StateReceipt};
use crate::invalidation::Invalidation;
use crate::link::{Budget, CallError};
use crate::options::TimeSource;
use crate::releases::ReleaseGuard;
use crate::script_call::{Item, Op};
use diana_core::{Ask, Decision, MaxWait, Receipt, RefundFuture, StoreError, Timestamp};
use futures_util::stream::{self, StreamExt};
use std::sync::Arc;

/// The maximum number of releases that wait until Redis is reachable again.
const MAX_PENDING_RELEASES: usize = 65_536;

/// Permits to refund on Redis.
#[derive(Debug)]
pub(super) struct PendingRefund {
    receipts: Vec<StateReceipt>,
    /// The budget until whose end the permits may still be taken: they can be released only after it.
    after: Option<Budget>,
    /// Dropped when the refund is done.
    _release: Option<ReleaseGuard>,
}

impl RedisStoreInner {
    /// Refunds permits that were not taken from Redis. Returns those to refund on Redis, which later decisions take
    /// into account.
    pub(super) fn prepare_refund(
        &self,
        asks: &[Ask<'_>],
        decision: &Decision,
        now: Timestamp,
    ) -> Result<Option<PendingRefund>, StoreError> {
        if !decision.is_granted() {
            return Ok(None);
        }
        let items = self.client.items(asks, now, MaxWait::NONE)?;
        let gathered = items.gather(decision);
        let receipts = match (DecidedBy::of(decision), &self.leases) {
            (DecidedBy::LocalCounts(number), _) => {
                self.fallback.refund(&items.items, (&gathered, number), self.instances(), now)
            }
            (DecidedBy::Lease, Some(leases)) => {
                leases.refund(&items.items, &gathered);
                Vec::new()
            }
            _ => {
                let taken = items.items.into_iter().zip(gathered.answers());
                taken.filter_map(|(item, answer)| Some((item.config, item.name, answer.receipt()?))).collect()
            }
        };
        Ok((!receipts.is_empty()).then(|| self.pending_refund(receipts)))
    }

    /// Creates a refund on Redis, which later decisions take into account.
    fn pending_refund(&self, receipts: Vec<StateReceipt>) -> PendingRefund {
        for (config, name, _) in &receipts {
            self.invalidate(config, name);
        }
        let held = receipts.iter().filter(|(config, ..)| config.algorithm.holds());
        let release = self.releases.begin(held.map(|(_, name, _)| name.clone()));
        PendingRefund { receipts, after: None, _release: release }
    }

    /// Refunds on Redis. Held permits that could not be released are released when Redis is reachable again.
    pub(super) async fn refund_on_redis(
        self: &Arc<Self>,
        mut refund: PendingRefund,
        now: Timestamp,
    ) -> Result<(), CallError> {
        let context = self.client.context(now);
        let done = self.client.apply_receipts(Op::Refund, &mut refund.receipts, ParameterSource::Own, context).await;
        for (config, name, _) in &refund.receipts {
            // Invalidates the keys again: a request may have been denied in the meantime.
            self.invalidate(config, name);
        }
        let consumed = refund.receipts.iter().filter(|(config, ..)| !config.algorithm.holds());
        self.publish(Invalidation::Refunded, consumed.map(|(_, name, _)| name.clone()));
        if matches!(&done, Err(error) if error.is_transient()) {
            refund.receipts.retain(|(config, ..)| config.algorithm.holds());
            self.release_later(refund);
        }
        done
    }

    /// Refunds on Redis in the background.
    pub(super) fn refund_in_background(self: &Arc<Self>, receipts: Vec<StateReceipt>, now: Timestamp) {
        let (inner, refund) = (Arc::clone(self), self.pending_refund(receipts));
        self.runtime.spawn(async move {
            if let Err(error) = inner.refund_on_redis(refund, now).await {
                inner.client.runner.link.warn_refund_failed(&error.to_string());
            }
        });
    }

    /// Releases permits that `items` may hold although the answer was lost: after the time when they could still be taken.
    pub(super) fn release_unknown(self: &Arc<Self>, items: &[Item], budget: Budget) {
        let held = items.iter().filter(|item| item.config.algorithm.holds()).map(|item| {
            // The request was not served, which the release shows by a time before the receipt's.
            let receipt = Receipt::new(item.ask.cost, Timestamp::MAX).with_mark(item.ask.ticket);
            (Arc::clone(&item.config), item.name.clone(), receipt)
        });
        self.release_later(PendingRefund { after: Some(budget), ..self.pending_refund(held.collect()) });
    }

    /// Schedules the release of held permits for when Redis is up.
    fn release_later(self: &Arc<Self>, refund: PendingRefund) {
        // If the caller provides the time, the time of a later release is unknown.
        if !refund.receipts.is_empty() && self.times != TimeSource::Caller {
            self.push_pending_release(refund);
            self.resync_later();
        }
    }

    fn push_pending_release(&self, refund: PendingRefund) {
        let mut all = self.pending_releases.lock();
        // If there is no room, the permits are released when they expire.
        if all.len() < MAX_PENDING_RELEASES {
            all.push_back(refund);
        }
    }

    /// Sends the pending releases for parts of Redis that are up. To release twice has no effect.
    pub(super) async fn send_pending_releases(&self) {
        let link = &self.client.runner.link;
        let is_due = |refund: &PendingRefund| {
            refund.after.is_none_or(Budget::is_over)
                && refund.receipts.iter().all(|(_, name, _)| link.is_up(link.part(name)))
        };
        let due = {
            let mut all = self.pending_releases.lock();
            let (due, rest) = all.drain(..).partition::<Vec<_>, _>(is_due);
            all.extend(rest);
            due
        };
        let released = stream::iter(due).for_each_concurrent(MAX_CALLS, |mut refund| async move {
            let context = self.client.context(link.now());
            let done =
                self.client.apply_receipts(Op::Refund, &mut refund.receipts, ParameterSource::Stored, context).await;
            if matches!(&done, Err(error) if error.is_transient()) {
                self.push_pending_release(refund);
            }
        });
        released.await;
    }
}

impl RedisStore {
    /// Starts the refund to the source of the permits, in the store's runtime.
    pub(crate) fn spawn_refund(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> RefundFuture {
        let refund = match self.inner.prepare_refund(asks, decision, now) {
            Ok(Some(refund)) => refund,
            done => return Box::pin(std::future::ready(done.map(drop))),
        };
        let (store, inner) = (self.clone(), Arc::clone(&self.inner));
        let done = self.inner.runtime.spawn(async move { inner.refund_on_redis(refund, now).await });
        Box::pin(async move {
            // There is no connection without its runtime.
            done.await.unwrap_or(Err(CallError::Open)).map_err(|error| store.store_error(&error))
        })
    }
}
