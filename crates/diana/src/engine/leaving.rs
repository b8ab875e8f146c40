//! What guards give back when they are dropped, and so can't wait for the shared store.

use super::{Engine, Settled, Verdict};
use diana_core::Store;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

/// How far a granted request was when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It was not carried out: everything comes back.
    Unbegun,
    /// It was carried out: what it only held while it ran (`concurrent`) comes back.
    Done,
}

impl<S: Store + 'static> Engine<S> {
    /// Gives back what a granted request took, for guards that are dropped: at once what is counted in this process, and
    /// behind what the shared store must hear of. Before that the cost is corrected, if somebody has told what it was.
    ///
    /// Without a runtime, what is shared comes back with time.
    pub fn leave(self: &Arc<Self>, mut verdict: Verdict, left: Left, costs: Option<Box<Settled>>) {
        let is_shared = self.is_shared(&verdict) || costs.is_some() && self.is_free_shared(&verdict);
        if left == Left::Done && costs.is_none() && (!verdict.found().is_held() || !is_shared) {
            // A verdict that is dropped gives back what it holds in this process.
            return;
        }
        let engine = Arc::clone(self);
        let giving_back = async move {
            if let Some(costs) = costs {
                engine.settle(&mut verdict, &costs).await;
            }
            match left {
                Left::Done => engine.finish(verdict).await,
                Left::Unbegun => engine.refund(verdict).await,
            }
        };
        let here = if is_shared { self.behind.carry_out(giving_back).err() } else { Some(giving_back) };
        if let Some(giving_back) = here {
            // What is counted here has nothing to wait for.
            let _ = pin!(giving_back).poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}
