//! What guards give back when they are dropped, and so can't wait for the shared store.

use super::local::LocalCounts;
use super::queries::{Queries, Scope};
use super::{ActualCost, Engine, Return, Verdict};
use diana_core::{Decision, Store};
use smallvec::SmallVec;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};

/// How far a granted request was when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPhase {
    /// It was not carried out: everything comes back.
    Unbegun,
    /// It was carried out: what it only held while it ran (`concurrent`) comes back.
    Done,
}

impl<S: Store + 'static> Engine<S> {
    /// Gives back what a granted request took, for guards that are dropped. What is counted in this process is back at once. The
    /// shared store is told in the background, but decisions of this process that begin after this know of it. Then the cost is
    /// corrected, if somebody has told what it was.
    ///
    /// Without a runtime, what is shared comes back with time.
    pub fn leave(self: &Arc<Self>, mut verdict: Verdict, left: RequestPhase, costs: Option<Box<ActualCost>>) {
        let is_shared = self.is_shared(&verdict) || costs.is_some() && self.is_free_shared(&verdict);
        if left == RequestPhase::Done && costs.is_none() && (!verdict.found().is_held() || !is_shared) {
            // A verdict that is dropped gives back what it holds in this process.
            return;
        }
        verdict.made_mut().held = None;
        let what = match left {
            RequestPhase::Done => Return::WhatIsHeld,
            RequestPhase::Unbegun => Return::Everything,
        };
        let returning = self.start_giving_back(&verdict, what);
        // Of what was not carried out, everything is back, whatever it cost.
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
            // What is counted here has nothing to wait for.
            let _ = pin!(rest).poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Gives back at once what was granted in this process, and begins to give back what the shared store granted: what is left
    /// to wait for.
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

/// What goes back to the shared store, for each decision that was made there.
type Returning = SmallVec<[ReturnFuture; 1]>;
type ReturnFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Begins to give back what the shared store granted: what is left to wait for, if something goes back.
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
        // What can't be given back now comes back as far as time gives it back: all but a total.
        let _ = refund.await;
        counts.wake_lines(&lines);
    }))
}
