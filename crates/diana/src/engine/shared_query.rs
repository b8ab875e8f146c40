//! Queries and refunds of one request in the shared store.
//!
//! # What always holds (tests/it/given_up.rs)
//! - An in-flight query is never dropped halfway: the store may have granted it, and only its response has the receipt.
//!   If the request is cancelled meanwhile, the query finishes in the background, and its charges are refunded.

use super::background::Background;
use super::local::LocalCounts;
use super::queries::{Queries, Scope};
use super::record::{Shadow, SharedDecision};
use super::{Return, Verdict};
use diana_core::{Decision, LocalStore, MaxWait, Store};
use diana_rules::rule::CountedIn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The decision of the shared store, or of this process as its fallback.
#[derive(Debug, Default)]
pub(super) struct SharedResult {
    /// Of the active rules, if any is shared.
    pub(super) enforced: Option<Box<SharedDecision>>,
    /// Of the shadow rules, if the active ones granted the request.
    pub(super) shadows: Vec<Shadow>,
}

impl SharedResult {
    pub(super) fn is_granted(&self) -> bool {
        self.enforced.as_ref().is_none_or(|made| made.decision.is_granted())
    }
}

/// The shared store and one request: owns everything that the query needs, since the caller may be gone before it
/// finishes.
pub(super) struct SharedQuery<S> {
    store: Arc<S>,
    counts: Arc<LocalCounts>,
    verdict: Arc<Verdict>,
}

impl<S> Clone for SharedQuery<S> {
    fn clone(&self) -> Self {
        let Self { store, counts, verdict } = self;
        Self { store: Arc::clone(store), counts: Arc::clone(counts), verdict: Arc::clone(verdict) }
    }
}

impl<S: Store> SharedQuery<S> {
    /// Checks all shared limits: the active rules, all or nothing, and if they grant, each shadow rule.
    async fn ask(self) -> SharedResult {
        let enforced = self.decide(Scope::Shared).await;
        let enforced = enforced.map(|(decision, here)| Box::new(SharedDecision { decision, here }));
        let mut said = SharedResult { enforced, shadows: Vec::new() };
        if said.is_granted() && self.verdict.found().has_shadows() {
            for nth in self.verdict.shadows_of(CountedIn::Shared) {
                if let Some((decision, here)) = self.decide(Scope::Shadow(nth)).await {
                    said.shadows.push(Shadow { nth, decision, here });
                }
            }
        }
        said
    }

    /// Returns the decision of the shared store, or of the local fallback: if the store fails, requests are neither all
    /// granted nor all denied.
    async fn decide(&self, part: Scope) -> Option<(Decision, bool)> {
        let (counts, verdict) = (&self.counts, &self.verdict);
        let mut asks = Queries::of(verdict, part);
        if asks.is_empty() {
            return None;
        }
        let has_reserved = verdict.rules().has_reserved();
        if has_reserved {
            counts.reserved.lock().bound(counts, verdict, part, &mut asks);
        }
        let made = match self.store.decide(&asks, verdict.at(), MaxWait::FOREVER).await {
            Ok(decision) => (decision, false),
            Err(_) => (LocalStore::decide(&counts.store, &asks, verdict.at(), MaxWait::FOREVER), true),
        };
        if has_reserved {
            counts.reserved.lock().keep(counts, verdict, part, &made.0);
        }
        Some(made)
    }

    /// Refunds all charges.
    #[cfg(feature = "wait")]
    async fn give_back(&self, said: &SharedResult) {
        let enforced = said.enforced.iter().map(|made| (Scope::Shared, &made.decision, made.here));
        let shadows = said.shadows.iter().map(|shadow| (Scope::Shadow(shadow.nth), &shadow.decision, shadow.here));
        for (part, made, here) in enforced.chain(shadows).filter(|(_, made, _)| made.is_granted()) {
            let store = Some(&*self.store).filter(|_| !here);
            give_back(store, &self.counts, &self.verdict, part, made, Return::Everything).await;
        }
    }
}

/// Refunds charges: in the shared store if it made the decision, else in this process.
pub(super) async fn give_back<S: Store>(
    store: Option<&S>,
    counts: &LocalCounts,
    verdict: &Verdict,
    part: Scope,
    made: &Decision,
    what: Return,
) {
    let now = counts.now();
    let Some(store) = store else { return counts.give_back(verdict, part, made, what, now) };
    if what == Return::Everything {
        counts.give_up(verdict, part, made);
    }
    let (asks, made) = Queries::given_back(verdict, part, made, what);
    if !asks.is_empty() {
        // If the refund fails, the charges still expire with time, except those of a total.
        let _ = store.refund(&asks, &made, now).await;
        counts.wake(&asks);
    }
}

/// An in-flight query of the shared store. If it is dropped, it finishes in the background and its charges are
/// refunded.
pub(super) struct InFlightQuery<'e, S: Store + 'static> {
    there: SharedQuery<S>,
    /// `None` once it is answered.
    asking: Option<Pin<Box<dyn Future<Output = SharedResult> + Send>>>,
    behind: &'e Background,
}

impl<'e, S: Store + 'static> InFlightQuery<'e, S> {
    pub(super) fn new(store: &Arc<S>, counts: &Arc<LocalCounts>, verdict: Verdict, behind: &'e Background) -> Self {
        let there = SharedQuery { store: Arc::clone(store), counts: Arc::clone(counts), verdict: Arc::new(verdict) };
        Self { asking: Some(Box::pin(there.clone().ask())), there, behind }
    }

    /// Returns the result and the verdict that it is about.
    pub(super) async fn answer(mut self) -> (Verdict, SharedResult) {
        let said = std::future::poll_fn(|context| self.poll(context)).await;
        let verdict = Arc::clone(&self.there.verdict);
        drop(self);
        (Arc::into_inner(verdict).unwrap_or_else(|| unreachable!("who was asked has answered, and is gone")), said)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<SharedResult> {
        let Some(asking) = &mut self.asking else { return Poll::Pending };
        let said = asking.as_mut().poll(context);
        if said.is_ready() {
            self.asking = None;
        }
        said
    }
}

impl<S: Store + 'static> Drop for InFlightQuery<'_, S> {
    fn drop(&mut self) {
        let Some(asking) = self.asking.take() else { return };
        // Local charges are refunded without waiting for the response.
        self.there.counts.give_back_local(&self.there.verdict);
        #[cfg(feature = "wait")]
        {
            let there = self.there.clone();
            // Without a runtime the response can't be received; then charges expire with time.
            let _ = self.behind.carry_out(async move {
                let said = asking.await;
                there.give_back(&said).await;
            });
        }
        #[cfg(not(feature = "wait"))]
        {
            let _ = self.behind;
            drop(asking);
        }
    }
}
