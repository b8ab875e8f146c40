//! Queries to Redis that take releases into account: releases in flight, and of permits whose answer was lost.

use super::RedisStoreInner;
use crate::link::CallError;
use crate::script_call::{Item, Op};
use crate::script_runner::CallContext;
use diana_core::{Answer, Decision};
use std::sync::Arc;

impl RedisStoreInner {
    /// Queries Redis. Releases a permit that Redis may have granted without its answer arriving.
    pub(super) async fn ask_redis(
        self: &Arc<Self>,
        op: Op,
        items: &mut [Item],
        context: CallContext,
    ) -> Result<Decision, CallError> {
        let result = self.ask_after_releases(op, items, context).await;
        if op == Op::Take && matches!(&result, Err(error) if error.may_have_run()) {
            self.release_unknown(items, context.budget);
        }
        result
    }

    /// Asks Redis. A release that is in flight may arrive after the query: a request that is denied for that
    /// reason is retried when the release is done.
    async fn ask_after_releases(
        self: &Arc<Self>,
        op: Op,
        items: &mut [Item],
        context: CallContext,
    ) -> Result<Decision, CallError> {
        let released = self.releases.pending_for(items);
        let decision = self.ask_all(op, items, context).await?;
        let denies = |(item, answer): (&Item, &Answer)| item.config.algorithm.holds() && !answer.is_granted();
        if released.is_empty() || !items.iter().zip(decision.answers()).any(denies) {
            return Ok(decision);
        }
        if context.budget.wait_for(released.done()).await.is_none() {
            return Ok(decision);
        }
        for item in items.iter_mut() {
            // Permits that a cluster's nodes granted under the first ticket may still be in the process of being refunded.
            item.ask.ticket = self.client.ticket();
        }
        self.ask_all(op, items, context).await
    }
}
