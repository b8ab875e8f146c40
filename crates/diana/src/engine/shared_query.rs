//! What the shared store is asked about a request, and what goes back there.
//!
//! # What always holds (tests/it/given_up.rs)
//! - A question that is under way is never dropped half: the store may have granted it, and nobody else has the receipt. If the
//!   request is given up meanwhile, it goes on behind, and what was granted goes back.

use super::background::Background;
use super::local::LocalCounts;
use super::queries::{Queries, Scope};
use super::record::{Shadow, SharedDecision};
use super::{Return, Verdict};
use diana_core::{Decision, LocalStore, MaxWait, Store};
use diana_rules::CountedIn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// What the shared store said about a request, or this process in its place.
#[derive(Debug, Default)]
pub(super) struct SharedResult {
    /// About the rules in force, if any is shared.
    pub(super) enforced: Option<Box<SharedDecision>>,
    /// About the shadows, if those in force granted it.
    pub(super) shadows: Vec<Shadow>,
}

impl SharedResult {
    pub(super) fn is_granted(&self) -> bool {
        self.enforced.as_ref().is_none_or(|made| made.decision.is_granted())
    }
}

/// The shared store, and a request that it is asked about: all that it takes, whoever is gone by then.
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
    /// Asks for all that is shared: the rules in force, all or nothing, and if they grant it, each of the shadows.
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

    /// What the shared store says, or this process in its place: a store that fails is no reason to let everybody in, or
    /// nobody.
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

    /// Gives back all that was granted.
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

/// Gives back what was granted: to the shared store if it was that, else to the counts of this process.
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
        // What can't be given back now comes back as far as time gives it back: all but a total.
        let _ = store.refund(&asks, &made, now).await;
        counts.wake(&asks);
    }
}

/// A question to the shared store, which is under way. Dropped, it goes on behind, and what was granted goes back.
pub(super) struct InFlightQuery<'e, S: Store + 'static> {
    there: SharedQuery<S>,
    /// There until it is answered.
    asking: Option<Pin<Box<dyn Future<Output = SharedResult> + Send>>>,
    behind: &'e Background,
}

impl<'e, S: Store + 'static> InFlightQuery<'e, S> {
    pub(super) fn new(store: &Arc<S>, counts: &Arc<LocalCounts>, verdict: Verdict, behind: &'e Background) -> Self {
        let there = SharedQuery { store: Arc::clone(store), counts: Arc::clone(counts), verdict: Arc::new(verdict) };
        Self { asking: Some(Box::pin(there.clone().ask())), there, behind }
    }

    /// What was said, and about what.
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
        // What was taken here need not wait for the answer.
        self.there.counts.give_back_local(&self.there.verdict);
        #[cfg(feature = "wait")]
        {
            let there = self.there.clone();
            // Without a runtime nobody can hear the answer; then what was granted comes back with time.
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
