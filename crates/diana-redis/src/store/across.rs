//! Requests over keys that different nodes of a cluster keep.

use super::Inner;
use crate::client::Taken;
use crate::key::slot;
use crate::link::CallError;
use crate::request::{Item, Op};
use crate::script_runner::CallContext;
use crate::scripted::Effect;
use diana_core::{Answer, Decision, Timestamp};
use smallvec::SmallVec;
use std::sync::Arc;

impl Inner {
    /// Takes all of `items`, or looks at them, wherever they are.
    pub(super) async fn ask_all(
        self: &Arc<Self>,
        op: Op,
        items: &mut [Item],
        moment: CallContext,
    ) -> Result<Decision, CallError> {
        if self.client.is_across(items) {
            return self.ask_across(op, items, moment).await;
        }
        self.client.ask(op, items, moment).await.map(Decision::from)
    }

    /// Asks one part of Redis after the other. Once one refuses, what the others took is given back.
    ///
    /// Two such requests may stand in each other's way, and both be refused; but what is taken is taken, so never is too
    /// much granted. If this process dies in between, what it took is gone until time gives it back.
    async fn ask_across(
        self: &Arc<Self>,
        op: Op,
        items: &mut [Item],
        moment: CallContext,
    ) -> Result<Decision, CallError> {
        let mut order = items.iter().map(|item| slot(&item.name)).enumerate().collect::<Vec<_>>();
        order.sort_by_key(|(_, slot)| *slot);
        let mut all: Vec<Option<Answer>> = vec![None; items.len()];
        let (mut taken, mut op) = (TakenSoFar { inner: self, receipts: Vec::new() }, op);
        for group in order.chunk_by(|(_, a), (_, b)| a == b) {
            let mut asked = group.iter().map(|(index, _)| items[*index].clone()).collect::<SmallVec<[Item; 2]>>();
            let answers = self.client.ask(op, &mut asked, moment).await?;
            let granted = answers.iter().all(Answer::is_granted);
            for (((index, _), item), answer) in group.iter().zip(asked).zip(answers) {
                if let Some(receipt) = answer.receipt().filter(|_| granted && op == Op::Take) {
                    taken.receipts.push((Arc::clone(&item.config), item.name.clone(), receipt));
                }
                items[*index] = item;
                all[*index] = Some(answer);
            }
            if !granted && op == Op::Take {
                // The rest is only looked at, for what is shown.
                taken.give_back(moment.now);
                op = Op::Peek;
                // What was taken before goes back, so that those states will be as they were.
                for seen in items.iter_mut().filter_map(|item| item.seen.as_mut()) {
                    seen.effect = Effect::None;
                }
            }
        }
        taken.keep();
        all.into_iter().collect::<Option<SmallVec<[Answer; 8]>>>().map(Decision::from).ok_or_else(CallError::nonsense)
    }
}

/// What a request across slots has taken so far. Dropped, it gives that back: when a later part refuses, fails, or nobody
/// waits for the answer any more.
struct TakenSoFar<'a> {
    inner: &'a Arc<Inner>,
    receipts: Vec<Taken>,
}

impl TakenSoFar<'_> {
    /// The request has waited long enough, so this is done behind it.
    fn give_back(&mut self, now: Timestamp) {
        if !self.receipts.is_empty() {
            self.inner.hand_in_behind(std::mem::take(&mut self.receipts), now);
        }
    }

    /// It was granted.
    fn keep(mut self) {
        self.receipts.clear();
    }
}

impl Drop for TakenSoFar<'_> {
    fn drop(&mut self) {
        let now = self.inner.client.runner.link.now();
        self.give_back(now);
    }
}
