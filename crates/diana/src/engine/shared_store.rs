//! The shared store of an engine, with its type erased, and the queries of requests in it.
//!
//! # What always holds (tests/it/cancellation.rs)
//! - An in-flight query is never dropped halfway: the store may have granted it, and only its response has the receipt.
//!   If the request is cancelled meanwhile, the query finishes in the background, and its charges are refunded.

mod background;
mod keepalive;

use super::asks::{Charges, OwnedAsks, Scope, ScopedDecision};
use super::local_counts::LocalCounts;
use super::verdict::Verdict;
use crate::ruleset::Needs;
pub(super) use background::Background;
use diana_core::{
    Ask, Change, Decision, Limit, LocalStore, MaxWait, Query, RefundFuture, ResetListener, Store, StoreError, Timestamp,
};
use diana_rules::rule::CountedIn;
pub(super) use keepalive::{HeldLeases, LeaseGuard};
use smallvec::SmallVec;
use std::any::Any;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A [`Store`] with its type erased; `Store` itself returns `impl Future`, so it can't be a trait object.
///
/// A decision is one boxed future, [`run`](Self::run), however many calls of the store it takes.
pub(super) trait SharedStore: Send + Sync {
    /// Decides all queries of a request, in their order, until one of an active rule is denied.
    fn run(self: Arc<Self>, query: SharedQuery) -> BoxFuture<'static, QueryResult>;
    fn query<'a>(
        &'a self,
        asks: &'a [Ask<'a>],
        now: Timestamp,
        query: Query<'a>,
    ) -> BoxFuture<'a, Result<Decision, StoreError>>;
    fn change<'a>(
        &'a self,
        asks: &'a [Ask<'a>],
        now: Timestamp,
        change: Change<'a>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    fn start_refund(self: Arc<Self>, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> RefundFuture;
    fn extend_every(&self) -> Option<Duration>;
    fn on_reset(&self, listener: Weak<dyn ResetListener>);
    fn is_fallback(&self, decision: &Decision) -> bool;
    fn forget(&self, limit: &Limit);
    fn configure(&self, number: u64);
    fn as_any(&self) -> &dyn Any;
}

impl<S: Store + 'static> SharedStore for S {
    fn run(self: Arc<Self>, query: SharedQuery) -> BoxFuture<'static, QueryResult> {
        Box::pin(async move { query.run(&*self).await })
    }

    fn query<'a>(
        &'a self,
        asks: &'a [Ask<'a>],
        now: Timestamp,
        query: Query<'a>,
    ) -> BoxFuture<'a, Result<Decision, StoreError>> {
        Box::pin(Store::query(self, asks, now, query))
    }

    fn change<'a>(
        &'a self,
        asks: &'a [Ask<'a>],
        now: Timestamp,
        change: Change<'a>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Store::change(self, asks, now, change))
    }

    fn start_refund(self: Arc<Self>, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> RefundFuture {
        Store::start_refund(&self, asks, decision, now)
    }

    fn extend_every(&self) -> Option<Duration> {
        Store::extend_every(self)
    }

    fn on_reset(&self, listener: Weak<dyn ResetListener>) {
        Store::on_reset(self, listener);
    }

    fn is_fallback(&self, decision: &Decision) -> bool {
        Store::is_fallback(self, decision)
    }

    fn forget(&self, limit: &Limit) {
        Store::forget(self, limit);
    }

    fn configure(&self, number: u64) {
        Store::configure(self, number);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// All queries of one request in the shared store. It owns its data, since the caller may be cancelled before it finishes.
pub(super) struct SharedQuery {
    counts: Arc<LocalCounts>,
    /// The queries of the active rules, all or nothing, then the queries of each shadow rule.
    asks: SmallVec<[(Scope, OwnedAsks); 1]>,
    at: Timestamp,
    has_reserved: bool,
}

/// The decisions of the shared store, or of this process as its fallback.
pub(super) type QueryResult = Vec<(ScopedDecision, OwnedAsks)>;

impl SharedQuery {
    pub(super) fn new(verdict: &Verdict, counts: &Arc<LocalCounts>) -> Self {
        let mut asks = SmallVec::new();
        asks.push((Scope::Shared, OwnedAsks::of(verdict, Scope::Shared)));
        if verdict.matches().needs().has(Needs::SHADOW) {
            let shadows = verdict.shadows_in(CountedIn::Shared).into_iter().map(Scope::Shadow);
            asks.extend(shadows.map(|scope| (scope, OwnedAsks::of(verdict, scope))));
        }
        Self {
            counts: Arc::clone(counts),
            asks,
            at: verdict.at(),
            has_reserved: verdict.matches().needs().has(Needs::RESERVATIONS),
        }
    }

    /// Returns a query about limits that belong to no rule, without waiting.
    fn of_limits(asks: &[Ask<'_>], counts: &Arc<LocalCounts>, at: Timestamp) -> Self {
        let asks = asks.iter().map(|ask| ask.with_max_wait(MaxWait::NONE)).collect();
        let asks = SmallVec::from_iter([(Scope::Shared, OwnedAsks::copied(&asks))]);
        Self { counts: Arc::clone(counts), asks, at, has_reserved: false }
    }

    async fn run<S: Store>(self, store: &S) -> QueryResult {
        let mut results = Vec::with_capacity(self.asks.len());
        for (scope, owned) in self.asks {
            let mut asks = owned.as_asks();
            if asks.is_empty() {
                continue;
            }
            if self.has_reserved {
                self.counts.bound_reservations(&mut asks, &owned, self.at);
            }
            // If the store fails, requests are neither all granted nor all denied: this process counts them.
            let (decision, is_local) = match store.decide(&asks, self.at, MaxWait::FOREVER).await {
                Ok(decision) => (decision, false),
                Err(_) => (LocalStore::decide(&self.counts.store, &asks, self.at, MaxWait::FOREVER), true),
            };
            drop(asks);
            if self.has_reserved {
                self.counts.add_reservations(&owned, &decision, self.at);
            }
            let is_denied = scope == Scope::Shared && !decision.is_granted();
            results.push((ScopedDecision { scope, decision, is_local }, owned));
            if is_denied {
                break;
            }
        }
        results
    }
}

/// An in-flight query of the shared store. If it is dropped, it finishes in the background and its charges are refunded.
pub(super) struct InFlightQuery<'e> {
    store: &'e Arc<dyn SharedStore>,
    counts: &'e Arc<LocalCounts>,
    background: &'e Background,
    at: Timestamp,
    /// `None` once it has finished.
    query: Option<BoxFuture<'static, QueryResult>>,
}

impl<'e> InFlightQuery<'e> {
    pub(super) fn start(
        verdict: &Verdict,
        store: &'e Arc<dyn SharedStore>,
        counts: &'e Arc<LocalCounts>,
        background: &'e Background,
    ) -> Self {
        let query = Arc::clone(store).run(SharedQuery::new(verdict, counts));
        Self { store, counts, background, at: verdict.at(), query: Some(query) }
    }

    /// Starts a query about limits that belong to no rule, without waiting.
    pub(super) fn of_limits(
        asks: &[Ask<'_>],
        at: Timestamp,
        store: &'e Arc<dyn SharedStore>,
        counts: &'e Arc<LocalCounts>,
        background: &'e Background,
    ) -> Self {
        let query = Arc::clone(store).run(SharedQuery::of_limits(asks, counts, at));
        Self { store, counts, background, at, query: Some(query) }
    }
}

impl Future for InFlightQuery<'_> {
    type Output = QueryResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<QueryResult> {
        let Some(query) = &mut self.query else { return Poll::Pending };
        let result = query.as_mut().poll(context);
        if result.is_ready() {
            self.query = None;
        }
        result
    }
}

impl Drop for InFlightQuery<'_> {
    fn drop(&mut self) {
        let Some(query) = self.query.take() else { return };
        let (store, counts, at) = (Arc::clone(self.store), Arc::clone(self.counts), self.at);
        // Without a runtime the response can't be received; then charges expire with time.
        let _ = self.background.spawn(async move {
            for (ScopedDecision { decision, is_local, .. }, owned) in query.await {
                if !decision.is_granted() {
                    continue;
                }
                counts.remove_reservations(&owned, &decision, at);
                let asks = owned.as_asks();
                if is_local {
                    counts.refund(&asks, &decision);
                } else {
                    // If the refund fails, the charges still expire with time, except those of a total.
                    let _ = store.change(&asks, counts.now(), Change::Refund(&decision)).await;
                    counts.wake(&asks);
                }
            }
        });
    }
}

/// Starts to return charges of one decision of the shared store; returns the future of the rest, if there is one. Later
/// decisions of this process already take it into account.
pub(super) fn start_release(
    store: &Arc<dyn SharedStore>,
    counts: &Arc<LocalCounts>,
    verdict: &Verdict,
    scoped: &ScopedDecision,
    charges: Charges,
) -> Option<BoxFuture<'static, ()>> {
    if charges == Charges::All {
        counts.cancel_reservations(verdict, scoped);
    }
    let (asks, decision) = verdict.charged(scoped, charges);
    if asks.is_empty() {
        return None;
    }
    let queues = asks.iter().map(|ask| counts.queue_id(ask)).collect::<SmallVec<[u64; 4]>>();
    let refund = Arc::clone(store).start_refund(&asks, &decision, counts.now());
    let counts = Arc::clone(counts);
    Some(Box::pin(async move {
        // If the refund fails, the charges still expire with time, except those of a total.
        let _ = refund.await;
        counts.wake_queues(&queues);
    }))
}
