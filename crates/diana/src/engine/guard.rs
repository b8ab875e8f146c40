//! The guard of a granted request: releases or refunds its charges in every case.
//!
//! # What always holds (diana-http: tests/it/refund.rs)
//! - Dropping it before [`begin`](VerdictGuard::begin) refunds everything: the request was not carried out.
//! - While it exists, the request's leases are extended, in the shared store too.
//! - Dropping it later releases concurrency permits (`concurrent`); the other charges stay.
//! - Nothing is released or refunded twice.

use super::asks::Charges;
use super::shared_store::{self, BoxFuture, LeaseGuard};
use super::{ActualCost, Engine, ResponseClass, Verdict};
use diana_core::Decision;
use smallvec::SmallVec;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

/// A granted request, with its charges and permits.
///
/// Dropping it means that the request was not carried out, and refunds everything; after [`begin`](Self::begin), that
/// the request is finished, and releases its concurrency permits. Local counts are updated immediately. The shared
/// store is updated in the background, but later decisions of this process already take it into account; without a
/// runtime, shared charges expire with time.
#[must_use = "dropping it refunds the request"]
pub struct VerdictGuard {
    verdict: Verdict,
    engine: Arc<Engine>,
    has_begun: bool,
    /// The actual cost, if the shared store was not updated yet.
    settlement: Option<Box<Settlement>>,
    /// Extends its leases in the shared store while it runs.
    lease: Option<LeaseGuard>,
}

/// A settlement that waits for the end of the request.
struct Settlement {
    cost: ActualCost,
    /// The decisions before the first one, from which the expected statuses are computed.
    before: SmallVec<[Decision; 1]>,
}

impl Engine {
    /// Returns the guard of a request, which releases or refunds its charges when it is dropped. For a denied one it
    /// does nothing.
    pub fn guard(self: &Arc<Self>, verdict: Verdict) -> VerdictGuard {
        let lease = self.keep_leases(&verdict);
        VerdictGuard { verdict, engine: Arc::clone(self), has_begun: false, settlement: None, lease }
    }
}

impl VerdictGuard {
    /// Returns the verdict.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Returns the engine that made the verdict.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the verdict of a denied request, which has no charges; the guard of a granted one.
    ///
    /// # Errors
    /// The request is granted.
    pub fn into_denied(mut self) -> Result<Verdict, Self> {
        if self.verdict.is_granted() { Err(self) } else { Ok(self.verdict.take()) }
    }

    /// Marks the request as started, so that dropping the guard only releases concurrency permits.
    pub fn begin(&mut self) {
        self.has_begun = true;
        self.verdict.begin();
    }

    /// Records time that was spent waiting for the client, such as for its body; adaptive limits subtract it from the
    /// latency.
    pub fn waited_for_client(&mut self, time: Duration) {
        self.verdict.waited_for_client(time);
    }

    /// Records that the response head has arrived now; adaptive limits learn from its latency.
    pub fn answered(&mut self, class: ResponseClass) {
        self.verdict.answered(class);
    }

    /// Corrects the cost of the request: immediately if all its limits are counted in this process, else after the
    /// request, since a response can't wait for the shared store. The verdict has the status that is then expected. A
    /// later call replaces the costs that it has in common with an earlier one.
    ///
    /// With the status of the response, rules that are charged by it (`count`) are charged now: those of the shared store
    /// in the background.
    #[cold]
    pub fn settle(&mut self, cost: ActualCost) {
        // Not after the request: a client that reads slowly must not delay it.
        if let Some(asks) = self.engine.charge_by_status(&mut self.verdict, &cost) {
            self.engine.charge_shared_later(asks);
        }
        if !(self.engine.is_shared(&self.verdict) || self.engine.is_free_shared(&self.verdict)) {
            return poll_once(self.engine.settle(&mut self.verdict, &cost));
        }
        let decisions = &mut self.verdict.parts_mut().decisions;
        let settlement = match self.settlement.take() {
            Some(mut earlier) => {
                for (of, before) in decisions.iter_mut().zip(&earlier.before) {
                    of.decision = before.clone();
                }
                earlier.cost = earlier.cost.and(cost);
                earlier
            }
            None => Box::new(Settlement { cost, before: decisions.iter().map(|of| of.decision.clone()).collect() }),
        };
        self.verdict.expect(&settlement.cost);
        self.settlement = Some(settlement);
    }
}

impl Drop for VerdictGuard {
    fn drop(&mut self) {
        self.lease = None;
        if self.verdict.is_taken() {
            return;
        }
        let (verdict, settlement) = (self.verdict.take(), self.settlement.take());
        let cost = settlement.map(|settlement| settlement.cost);
        self.engine.release(verdict, if self.has_begun { Charges::Held } else { Charges::All }, cost);
    }
}

impl fmt::Debug for VerdictGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerdictGuard").field("verdict", &self.verdict).field("has_begun", &self.has_begun).finish()
    }
}

/// Polls work on local counts, which never waits.
fn poll_once(work: impl Future<Output = ()>) {
    let _ = pin!(work).poll(&mut Context::from_waker(Waker::noop()));
}

impl Engine {
    /// Returns charges of a granted request without waiting for the shared store. Then its cost is corrected, if
    /// `cost` has the actual one.
    fn release(self: &Arc<Self>, mut verdict: Verdict, charges: Charges, cost: Option<ActualCost>) {
        let is_shared = self.is_shared(&verdict) || cost.is_some() && self.is_free_shared(&verdict);
        if charges == Charges::Held && cost.is_none() && (!verdict.matches().is_held() || !is_shared) {
            // A dropped verdict releases its own permits in this process.
            return;
        }
        verdict.keep_on_drop();
        let releases = self.start_release(&verdict, charges);
        // If the request was not carried out, everything is refunded, so there is nothing to correct.
        let cost = cost.filter(|_| charges == Charges::Held);
        if releases.is_empty() && cost.is_none() {
            return;
        }
        let engine = Arc::clone(self);
        let rest = async move {
            for release in releases {
                release.await;
            }
            if let Some(cost) = cost {
                engine.settle(&mut verdict, &cost).await;
            }
        };
        let unspawned = if is_shared { self.state.background.spawn(rest).err() } else { Some(rest) };
        if let Some(rest) = unspawned {
            poll_once(rest);
        }
    }

    /// Returns local charges immediately and starts to return those in the shared store; returns the futures of these.
    fn start_release(&self, verdict: &Verdict, charges: Charges) -> SmallVec<[BoxFuture<'static, ()>; 1]> {
        let counts = &self.state.counts;
        let mut releases = SmallVec::new();
        for of in verdict.granted() {
            match self.state.shared.as_ref().filter(|_| !of.is_local) {
                Some(store) => releases.extend(shared_store::start_release(store, counts, verdict, of, charges)),
                None => counts.release(verdict, of, charges),
            }
        }
        releases
    }
}
