//! Releases and refunds for guards, whose `drop` can't wait for the shared store.

use super::local::LocalCounts;
use super::queries::{Queries, Scope};
use super::{ActualCost, Engine, Return, Verdict};
use diana_core::{Decision, Store};
use smallvec::SmallVec;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};

/// How far a granted request had come when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPhase {
    /// It was not carried out: all charges are refunded.
    Unbegun,
    /// It was carried out: concurrency permits (`concurrent`) are released.
    Done,
}

impl<S: Store + 'static> Engine<S> {
    /// Releases or refunds the charges of a granted request, for guards in `drop`. Local counts are updated
    /// immediately. The shared store is updated in the background, but later decisions of this process already take it
    /// into account. Then the cost is corrected, if `costs` has the actual one.
    ///
    /// Without a runtime, shared charges expire with time.
    pub fn leave(self: &Arc<Self>, mut verdict: Verdict, left: RequestPhase, costs: Option<Box<ActualCost>>) {
        let is_shared = self.is_shared(&verdict) || costs.is_some() && self.is_free_shared(&verdict);
        if left == RequestPhase::Done && costs.is_none() && (!verdict.found().is_held() || !is_shared) {
            // A dropped verdict releases its own permits in this process.
            return;
        }
        verdict.made_mut().held = None;
        let what = match left {
            RequestPhase::Done => Return::WhatIsHeld,
            RequestPhase::Unbegun => Return::Everything,
        };
        let returning = self.start_giving_back(&verdict, what);
        // If the request was not carried out, everything is refunded, so there is nothing to correct.
        let costs = costs.filter(|_| left == RequestPhase::Done);
        let engine = Arc::clone(self);
        let rest = async move {
            for one in returning {
                one.await;
            }
            if let Some(costs) = costs {
                engine.settle(&mut verdict, &costs).await;
            }
        };
        let here = if is_shared { self.behind.carry_out(rest).err() } else { Some(rest) };
        if let Some(rest) = here {
            // Local counts never wait.
            let _ = pin!(rest).poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Refunds local charges immediately and starts the refunds in the shared store; returns their futures.
    fn start_giving_back(&self, verdict: &Verdict, what: Return) -> Returning {
        let (made, counts) = (verdict.made(), &self.counts);
        let mut returning = Returning::new();
        if !verdict.is_granted() {
            return returning;
        }
        let local = made.local.iter().map(|decision| (made.here, decision, true));
        let shared = made.shared.iter().map(|shared| (Scope::Shared, &shared.decision, shared.here));
        let shadows = made.shadows.iter().filter(|shadow| shadow.decision.is_granted());
        let shadows = shadows.map(|shadow| (Scope::Shadow(shadow.nth), &shadow.decision, shadow.here));
        for (part, decision, here) in local.chain(shared).chain(shadows) {
            match self.shared.as_ref().filter(|_| !here) {
                Some(store) => returning.extend(start_giving_back_there(store, counts, verdict, part, decision, what)),
                None => counts.give_back(verdict, part, decision, what, counts.now()),
            }
        }
        returning
    }
}

/// The refunds in the shared store, one per decision made there.
type Returning = SmallVec<[ReturnFuture; 1]>;
type ReturnFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts a refund in the shared store; returns its future if there is something to refund.
fn start_giving_back_there<S: Store + 'static>(
    store: &Arc<S>,
    counts: &Arc<LocalCounts>,
    verdict: &Verdict,
    part: Scope,
    made: &Decision,
    what: Return,
) -> Option<ReturnFuture> {
    if what == Return::Everything {
        counts.give_up(verdict, part, made);
    }
    let (asks, made) = Queries::given_back(verdict, part, made, what);
    if asks.is_empty() {
        return None;
    }
    let lines = asks.iter().map(|ask| counts.line(ask.limit.id(), ask.key)).collect::<SmallVec<[u64; 4]>>();
    let refund = store.start_refund(&asks, &made, counts.now());
    let counts = Arc::clone(counts);
    Some(Box::pin(async move {
        // If the refund fails, the charges still expire with time, except those of a total.
        let _ = refund.await;
        counts.wake_lines(&lines);
    }))
}
