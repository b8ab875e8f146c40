//! The two results of a decision: the permit of a granted request, and the denial.
//!
//! # What always holds (diana-http: tests/it/refund.rs)
//! - Dropping a permit releases the concurrency permits that it holds (`concurrent`); its other charges stay.
//! - Dropping a [provisional](Permit::provisional) permit refunds everything: the request was not carried out.
//! - While a permit exists, the request's leases are extended, in the shared store too.
//! - Nothing is released or refunded twice.

use super::asks::Charges;
use super::shared_store::{self, BoxFuture};
use super::verdict::RecycledVerdict;
use super::{ActualCost, EngineState, ResponseClass, Verdict};
use diana_core::Decision;
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

/// A granted request: owns its charges, and the permits that it holds while it runs.
///
/// Dropping it means that the request is finished, and releases its concurrency permits. Local counts are updated
/// immediately. The shared store is updated in the background, but later decisions of this process already take it into
/// account; without a runtime, shared charges expire with time. [`finish`](Self::finish) and [`refund`](Self::refund) wait
/// for the shared store.
#[must_use = "dropping it releases its concurrency permits"]
pub struct Permit(RecycledVerdict);

/// A denied request: why, and when to retry. It was charged nothing.
///
/// As an error, its text is the reason.
///
/// ```
/// use diana::Engine;
/// use diana::rules::attributes::SyntheticRequest;
/// use diana::rules::{Document, Registry, RuleFile};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = Document::new("diana.yaml", "rules: [{name: reports, limit: 1/h}]");
/// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
/// let request = SyntheticRequest::new("GET", "/report");
///
/// let _permit = engine.acquire(&request).await?;
/// let denial = engine.acquire(&request).await.unwrap_err();
/// assert_eq!(denial.to_string(), "denied by `reports`: 0 of 1 left, retry after 1h");
/// assert_eq!(denial.status(), Some(503));
/// # Ok(())
/// # }
/// ```
pub struct Denial(RecycledVerdict);

/// A correction of the cost that waits for the end of the request.
#[derive(Debug)]
pub(super) struct Settlement {
    cost: ActualCost,
    /// The decisions before the first one, from which the expected statuses are computed.
    before: SmallVec<[Decision; 1]>,
}

impl Deref for Permit {
    type Target = Verdict;

    #[inline]
    fn deref(&self) -> &Verdict {
        &self.0
    }
}

impl Deref for Denial {
    type Target = Verdict;

    #[inline]
    fn deref(&self) -> &Verdict {
        &self.0
    }
}

impl Verdict {
    /// Returns the verdict of a decision, whether it is a permit or a denial.
    #[inline]
    pub fn of(decided: &Result<Permit, Denial>) -> &Self {
        match decided {
            Ok(permit) => permit,
            Err(denial) => denial,
        }
    }
}

impl Denial {
    #[inline]
    pub(super) fn new(verdict: RecycledVerdict) -> Self {
        Self(verdict)
    }
}

impl Permit {
    #[inline]
    pub(super) fn new(verdict: RecycledVerdict) -> Self {
        Self(verdict)
    }

    pub(super) fn verdict_mut(&mut self) -> &mut Verdict {
        &mut self.0
    }

    /// Makes it provisional: dropping it refunds everything, until the request [begins](Self::begin). For requests that may
    /// not be carried out, such as those whose client disconnects before they are forwarded.
    #[inline]
    pub fn provisional(mut self) -> Self {
        self.0.is_provisional = true;
        self
    }

    #[inline]
    pub(super) fn confirmed(mut self) -> Self {
        self.0.is_provisional = false;
        self
    }

    /// Marks the request as started: it is no longer provisional, and adaptive limits measure its latency from here.
    #[inline]
    pub fn begin(&mut self) {
        self.0.is_provisional = false;
        self.0.begin();
    }

    /// Records time that was spent waiting for the client, such as for its body; adaptive limits subtract it from the latency.
    pub fn waited_for_client(&mut self, time: Duration) {
        self.0.waited_for_client(time);
    }

    /// Records that the response head has arrived now; adaptive limits learn from its latency. Only the first call counts.
    pub fn answered(&mut self, class: ResponseClass) {
        self.0.answered(class);
    }

    /// Corrects the cost of the request: immediately if all its limits are counted in this process, else after the
    /// request, since a response can't wait for the shared store. The permit has the status that is then expected. A
    /// later call replaces the costs that it has in common with an earlier one.
    ///
    /// A higher cost is charged, even over the limit; a lower one is refunded as far as the charge has not expired: not at
    /// all if its window is over. Concurrency permits (`concurrent`) and intervals (`every`) are not corrected. A `smooth_*`
    /// limit is refunded only if the whole charge is, and no other request came since. A second correction refunds only a
    /// part of what the first charged to a bucket on top of its grant.
    ///
    /// With the status of the response, rules that are charged by it (`count`) are charged now: those of the shared store
    /// in the background. Nothing happens to the permit of a [peek](super::DecideMode::Peek).
    #[cold]
    pub fn settle(&mut self, cost: ActualCost) {
        let verdict = &mut *self.0;
        let Some(state) = verdict.state().cloned().filter(|_| !verdict.unusual.is_peek) else { return };
        // The charge does not wait for the end of the request: a client that reads slowly must not delay it.
        if let Some(asks) = state.charge_by_status(verdict, &cost) {
            state.charge_shared_later(asks);
        }
        if !(state.is_shared(verdict) || state.is_free_shared(verdict)) {
            return poll_once(state.settle(verdict, &cost));
        }
        let settlement = match verdict.unusual.settlement.take() {
            Some(mut earlier) => {
                for (scoped, before) in verdict.decisions.iter_mut().zip(&earlier.before) {
                    scoped.decision = before.clone();
                }
                earlier.cost = earlier.cost.and(cost);
                earlier
            }
            None => {
                let before = verdict.decisions.iter().map(|scoped| scoped.decision.clone()).collect();
                Box::new(Settlement { cost, before })
            }
        };
        verdict.expect(&settlement.cost);
        verdict.unusual.settlement = Some(settlement);
    }

    /// Finishes the request like dropping it, and waits until the shared store is updated. Dropping the future does not cancel
    /// that.
    pub async fn finish(mut self) {
        self.release(Charges::Held).await;
    }

    /// Refunds all charges of a request that was not carried out, as far as they have not expired, and waits until the
    /// shared store is updated.
    pub async fn refund(mut self) {
        self.release(Charges::All).await;
    }

    async fn release(&mut self, charges: Charges) {
        if let Some((work, state)) = self.start_release(charges) {
            let _ = state.background.run(work).await;
        }
    }

    /// Ends the decision: the permit and its wait, or the denial.
    pub(super) fn finish_decision(mut self) -> Result<(Self, Duration), Denial> {
        let verdict = &mut *self.0;
        let state = verdict.state().cloned();
        match state.as_ref().and_then(|state| verdict.finish(&state.counts)) {
            Some(wait) => {
                if let Some(lease) = state.and_then(|state| state.keep_leases(verdict)) {
                    verdict.unusual.lease = Some(lease);
                }
                Ok((self, wait))
            }
            None => Err(Denial(self.0.take())),
        }
    }

    /// Waits for a time that a limit has reserved. Until then it is provisional.
    pub(super) async fn after(self, wait: Duration) -> Self {
        if !wait.is_zero() {
            let _waiting = self.waiting();
            tokio::time::sleep(wait).await;
        }
        self.confirmed()
    }

    /// Takes the verdict, and returns its charges in this process; the rest is work for the shared store.
    #[inline(never)]
    fn start_release(&mut self, charges: Charges) -> Option<(BoxFuture<'static, ()>, Arc<EngineState>)> {
        let mut verdict = self.0.take();
        let state = Arc::clone(verdict.state()?);
        let cost = if verdict.unusual.is_changed() {
            // From here on, its leases are not extended.
            verdict.unusual.lease = None;
            verdict.unusual.settlement.take().map(|settlement| settlement.cost)
        } else {
            None
        };
        let work = state.start_release(verdict, charges, cost)?;
        Some((work, state))
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_taken() {
            return;
        }
        let verdict = &*self.0;
        // Most requests hold nothing.
        if !verdict.is_provisional && !verdict.matches.is_held() && !verdict.unusual.is_changed() {
            return;
        }
        let charges = if verdict.is_provisional { Charges::All } else { Charges::Held };
        if let Some((work, state)) = self.start_release(charges)
            && let Err(work) = state.background.spawn(work)
        {
            // Without a runtime, what needs the shared store expires with time.
            poll_once(work);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.to_string()).finish()
    }
}

impl fmt::Debug for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Denial").field(&self.to_string()).finish()
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl std::error::Error for Denial {}

/// Polls work once: on local counts it never waits.
pub(super) fn poll_once(work: impl Future<Output = ()>) {
    let _ = pin!(work).poll(&mut Context::from_waker(Waker::noop()));
}

impl EngineState {
    /// Returns the charges of a granted request in this process; and what is left to do, if the shared store has some. Then
    /// its cost is corrected, if `cost` has the actual one.
    fn start_release(
        self: &Arc<Self>,
        mut verdict: RecycledVerdict,
        charges: Charges,
        cost: Option<ActualCost>,
    ) -> Option<BoxFuture<'static, ()>> {
        let mut releases = SmallVec::<[BoxFuture<'static, ()>; 1]>::new();
        for scoped in verdict.granted() {
            match self.shared.as_ref().filter(|_| !scoped.is_local) {
                Some(store) => {
                    releases.extend(shared_store::start_release(store, &self.counts, &verdict, scoped, charges));
                }
                None => self.counts.release(&verdict, scoped, charges),
            }
        }
        // If the request was not carried out, everything is refunded, so there is nothing to correct.
        let cost = cost.filter(|_| charges == Charges::Held);
        if releases.is_empty() && cost.is_none() {
            return None;
        }
        let state = Arc::clone(self);
        Some(Box::pin(async move {
            for release in releases {
                release.await;
            }
            if let Some(cost) = cost {
                state.settle(&mut verdict, &cost).await;
            }
        }))
    }
}
