//! Requests over keys on different nodes of a cluster.

use super::RedisStoreInner;
use crate::direct_store::StateReceipt;
use crate::key::slot;
use crate::link::CallError;
use crate::script_call::{Item, Op};
use crate::script_runner::CallContext;
use crate::scripted_algorithm::Effect;
use diana_core::{Answer, Decision, Timestamp};
use smallvec::SmallVec;
use std::sync::Arc;

impl RedisStoreInner {
    /// Takes or peeks at all of `items`, on any nodes.
    pub(super) async fn ask_all(
        self: &Arc<Self>,
        op: Op,
        items: &mut [Item],
        context: CallContext,
    ) -> Result<Decision, CallError> {
        if self.client.spans_slots(items) {
            return self.ask_cross_slot(op, items, context).await;
        }
        self.client.ask(op, items, context).await.map(Decision::from)
    }

    /// Queries the parts of Redis one after the other. If one denies, the permits taken from the others are refunded.
    ///
    /// Two such requests may block each other, and both be denied; but permits are taken before the answer, so the
    /// limit is never exceeded. If this process crashes in between, the permits that it took are lost until time
    /// refills them.
    async fn ask_cross_slot(
        self: &Arc<Self>,
        op: Op,
        items: &mut [Item],
        context: CallContext,
    ) -> Result<Decision, CallError> {
        let mut order = items.iter().map(|item| slot(&item.name)).enumerate().collect::<Vec<_>>();
        order.sort_by_key(|(_, slot)| *slot);
        let mut all: Vec<Option<Answer>> = vec![None; items.len()];
        let (mut taken, mut op) = (PartialGrantGuard { inner: self, receipts: Vec::new() }, op);
        for group in order.chunk_by(|(_, a), (_, b)| a == b) {
            let mut asked = group.iter().map(|(index, _)| items[*index].clone()).collect::<SmallVec<[Item; 2]>>();
            let answers = self.client.ask(op, &mut asked, context).await?;
            let granted = answers.iter().all(Answer::is_granted);
            for (((index, _), item), answer) in group.iter().zip(asked).zip(answers) {
                if let Some(receipt) = answer.receipt().filter(|_| granted && op == Op::Take) {
                    taken.receipts.push((Arc::clone(&item.config), item.name.clone(), receipt));
                }
                items[*index] = item;
                all[*index] = Some(answer);
            }
            if !granted && op == Op::Take {
                // The rest is only peeked at, for the report.
                taken.refund(context.now);
                op = Op::Peek;
                // The permits taken before are refunded, so those states return to their previous values.
                for view in items.iter_mut().filter_map(|item| item.view.as_mut()) {
                    view.effect = Effect::None;
                }
            }
        }
        taken.keep();
        all.into_iter()
            .collect::<Option<SmallVec<[Answer; 8]>>>()
            .map(Decision::from)
            .ok_or_else(CallError::invalid_reply)
    }
}

/// The permits that a request across slots has taken so far. Refunds them on drop: when a later part denies or fails,
/// or the caller stops waiting.
struct PartialGrantGuard<'a> {
    inner: &'a Arc<RedisStoreInner>,
    receipts: Vec<StateReceipt>,
}

impl PartialGrantGuard<'_> {
    /// Refunds in the background, since the request has waited long enough.
    fn refund(&mut self, now: Timestamp) {
        if !self.receipts.is_empty() {
            self.inner.refund_in_background(std::mem::take(&mut self.receipts), now);
        }
    }

    /// Keeps the permits: the request was granted.
    fn keep(mut self) {
        self.receipts.clear();
    }
}

impl Drop for PartialGrantGuard<'_> {
    fn drop(&mut self) {
        let now = self.inner.client.runner.link.now();
        self.refund(now);
    }
}
