//! Combines rules and stores: one decision per request.
//!
//! # The life of a request
//! 1. The engine takes a snapshot of the active rules, so that no request sees a half-applied reload.
//! 2. The rule set returns the rules that match the request, with the key and the cost of each ([`RuleSet::find`]).
//! 3. A rule that denies regardless of its counts (`deny`, `missing: deny`) ends the decision; nothing is charged.
//! 4. The limits that are counted in this process are checked, all or nothing; this needs no I/O.
//! 5. If they grant the request, the shared limits are checked, all or nothing. If these deny it, or the caller drops
//!    the future, the charges of step 4 are refunded.
//! 6. If all grant it, the shadow rules are checked, each on its own. They count like active rules but deny no request.
//!
//! # What always holds (tests/)
//! - Never more is granted than each limit allows, also while rules change (`reload.rs`).
//! - A request that is denied or cancelled has charged nothing in the end (`mixed.rs`, `given_up.rs`), if a runtime is
//!   available to receive the shared store's response.

mod background;
mod decide;
mod explain;
mod future;
mod inspect;
#[cfg(feature = "wait")]
mod keepalive;
mod local;
mod named_rule;
mod options;
mod queries;
mod record;
#[cfg(feature = "wait")]
mod release;
mod reservations;
mod sample;
mod settle;
mod shared_query;
mod verdict;
#[cfg(feature = "wait")]
mod wait_queue;

use crate::overload::{LoadMeter, Sheddings};
use arc_swap::ArcSwap;
use background::Background;
use decide::WhenFull;
use diana_core::{Ask, Cost, Limit, LocalStore, MaxWait, MemoryStore, Store, Timestamp};
use diana_rules::{Attributes, Move, RuleFile, RuleSet};
pub use explain::{Explanation, RuleExplanation};
pub use future::DecideFuture;
use future::NextStep;
#[cfg(feature = "wait")]
pub use future::{AdmitFuture, Begun, Unfinished};
pub use inspect::{KeyAdminError, KeyStatus, LimitStatus};
#[cfg(feature = "wait")]
pub use keepalive::LeaseGuard;
use local::LocalCounts;
pub use options::EngineOptions;
use parking_lot::Mutex;
use queries::Scope;
#[cfg(feature = "wait")]
pub use release::RequestPhase;
pub use sample::ResponseClass;
pub use settle::ActualCost;
use std::fmt;
use std::sync::Arc;
pub use verdict::{Asked, Reason, Verdict};

/// Decides about requests by rules. `S` is the shared store, if there is one.
pub struct Engine<S = MemoryStore> {
    rules: ArcSwap<RuleSet>,
    counts: Arc<LocalCounts>,
    shared: Option<Arc<S>>,
    /// Finishes in-flight queries of cancelled requests.
    behind: Background,
    /// The leases that running requests hold in the shared store.
    #[cfg(feature = "wait")]
    held: Arc<keepalive::HeldLeases>,
    load: LoadMeter,
    sheddings: Sheddings,
    /// Locked while the rules change. Removed limits are forgotten twice, the second time at the next change: an
    /// in-flight request may have used them once more.
    changing: Mutex<Vec<Limit>>,
}

impl Engine {
    /// Creates an engine with the rules of a file; all counts are in this process.
    pub fn new(file: &RuleFile) -> Self {
        EngineOptions::of(file).build(file)
    }
}

impl<S: Store> Engine<S> {
    /// Creates an engine with the rules of a file; `store: shared` limits are counted in the shared store.
    pub fn with_shared(file: &RuleFile, shared: S) -> Self {
        EngineOptions::of(file).build_shared(file, shared)
    }
}

impl<S: Store + 'static> Engine<S> {
    /// Decides about one request: whether it is granted, after which wait, or why it is denied.
    ///
    /// Attributes are read and local limits are checked immediately; the future only waits for the shared store.
    /// Dropping it refunds all charges: local ones immediately, shared ones once the store has responded. That response
    /// is awaited by a background task in a tokio runtime (feature `wait`): the one in which the engine was created, or
    /// the one in which the future is dropped. Without a runtime, shared charges expire with time.
    pub fn decide(&self, request: &dyn Attributes) -> DecideFuture<'_, S> {
        match self.first_look(request, WhenFull::Deny) {
            (begun, NextStep::Nothing) => DecideFuture::made(begun),
            (begun, next) => DecideFuture::asking(self.carry_on(begun, next, WhenFull::Deny)),
        }
    }

    /// Decides about one request like [`decide`](Self::decide), but queues it if a rule has `wait` and its algorithm
    /// can't predict when it will be granted (windows, logs, `concurrent`). Each count has its own FIFO queue, limited
    /// by the rule's `queue` (1,000 by default).
    ///
    /// Dropping the future leaves the queue. The caller must still wait for the [wait](Verdict::wait) of the verdict.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "wait")]
    pub fn admit(&self, request: &dyn Attributes) -> AdmitFuture<'_, S> {
        match self.first_look(request, WhenFull::Queue) {
            (begun, NextStep::Nothing) => DecideFuture::made(begun),
            (begun, next) => DecideFuture::asking(self.carry_on(begun, next, WhenFull::Queue)),
        }
    }

    /// [`admit`](Self::admit) in two steps, for callers that can't lend the engine to a future: decides immediately if
    /// possible, else returns the state for [`go_on`](Self::go_on).
    #[cfg(feature = "wait")]
    pub fn begin(&self, request: &dyn Attributes) -> Begun {
        match self.first_look(request, WhenFull::Queue) {
            (begun, NextStep::Nothing) => Begun::Made(begun.done()),
            (begun, next) => Begun::Unfinished(Unfinished { begun: begun.into_own(), next }),
        }
    }

    /// Finishes a decision that [`begin`](Self::begin) could not make immediately.
    #[cfg(feature = "wait")]
    pub async fn go_on(&self, unfinished: Unfinished) -> Verdict {
        self.carry_on(unfinished.begun, unfinished.next, WhenFull::Queue).await
    }
}

impl<S: Store> Engine<S> {
    /// Returns which queries are decided in this process: all of them if there is no shared store.
    fn here(&self) -> Scope {
        if self.shared.is_some() { Scope::Local } else { Scope::Everything }
    }

    /// Finishes a granted request and releases the permits that it held while it ran (`concurrent`).
    ///
    /// Dropping a verdict releases its permits in this process, too; permits in the shared store are released when
    /// their lease expires.
    pub async fn finish(&self, mut verdict: Verdict) {
        verdict.made_mut().held = None;
        self.give_back(&verdict, Return::WhatIsHeld).await;
    }

    /// Refunds all charges of a granted request that was not carried out, as far as they have not expired.
    pub async fn refund(&self, mut verdict: Verdict) {
        verdict.made_mut().held = None;
        self.give_back(&verdict, Return::Everything).await;
    }

    async fn give_back(&self, verdict: &Verdict, what: Return) {
        if !verdict.is_granted() {
            return;
        }
        if let Some(made) = &verdict.made().local {
            self.counts.give_back(verdict, verdict.made().here, made, what, self.now());
        }
        if let Some(made) = &verdict.made().shared {
            let store = self.decided_there(made.here);
            shared_query::give_back(store, &self.counts, verdict, Scope::Shared, &made.decision, what).await;
        }
        for shadow in verdict.made().shadows.iter().filter(|shadow| shadow.decision.is_granted()) {
            let (store, part) = (self.decided_there(shadow.here), Scope::Shadow(shadow.nth));
            shared_query::give_back(store, &self.counts, verdict, part, &shadow.decision, what).await;
        }
    }

    /// Returns the shared store, if it made the decision.
    fn decided_there(&self, here: bool) -> Option<&S> {
        self.shared().filter(|_| !here)
    }

    /// Replaces the active rules by those of `file`, atomically. Limits that stay or only change keep their counts;
    /// in-flight requests finish under the rules that they started with. Queued requests are checked again by the new
    /// rules of the same names.
    pub fn set_rules(&self, file: &RuleFile) {
        let mut gone = self.changing.lock();
        let before = self.rules.load_full();
        let after = before.changed_to(file);
        let newly_gone = before.limits_gone_in(&after);
        if let Some(shared) = &self.shared {
            // While other processes still use the old rules, the higher revision is valid for all that share a limit.
            shared.configure(file.revision);
        }
        self.move_keys(&before.moves_to(&after));
        self.sheddings.set_rules(file);
        self.rules.store(Arc::new(after));
        for limit in gone.iter().chain(&newly_gone) {
            LocalStore::forget(self.local(), limit);
            if let Some(shared) = &self.shared {
                shared.forget(limit);
            }
        }
        *gone = newly_gone;
        // Queued requests switch to the new rules.
        self.counts.lines.wake_all();
    }

    /// Migrates the usage of keys whose limit changes. A previous limit of a key may still have some of it, so the
    /// maximum of the two counts is taken, not their sum.
    fn move_keys(&self, moves: &[Move<'_>]) {
        let now = self.now();
        let status = |limit, key: &[u8]| {
            let seen = LocalStore::peek(self.local(), &[Ask::one(limit, key)], now, MaxWait::NONE);
            seen.answers().first().map(|answer| answer.status)
        };
        for Move { key, from, to } in moves {
            let (Some(before), Some(after)) = (status(from, key), status(to, key)) else { continue };
            let used = (before.limit - before.remaining).max(after.limit - after.remaining).min(after.limit);
            LocalStore::reset(self.local(), to, key, now);
            if let Ok(used) = Cost::new(used) {
                LocalStore::charge(self.local(), Ask::new(to, key, used), now);
            }
        }
    }

    /// Returns the active rules.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// Returns the store of this process.
    pub fn local(&self) -> &MemoryStore {
        &self.counts.store
    }

    /// Returns the load meter that `load` rules read; the embedding program reports the machine's load to it.
    pub fn load(&self) -> &LoadMeter {
        &self.load
    }

    /// Returns the shared store, if there is one.
    pub fn shared(&self) -> Option<&S> {
        self.shared.as_deref()
    }

    /// Returns the runtime for background tasks: the one in which the engine was created if that is multi-threaded,
    /// else the current one.
    #[cfg(feature = "macros")]
    pub(crate) fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.behind.runtime()
    }

    /// Blocks this thread until `time` by the engine's clock.
    #[cfg(feature = "macros")]
    pub(crate) fn park_until(&self, time: Timestamp) {
        self.counts.park_until(time);
    }

    /// Waits until all background tasks are done; call it before a program ends, since its runtime would cancel them.
    #[cfg(feature = "wait")]
    pub async fn carried_out(&self) {
        self.behind.done().await;
    }

    /// Returns the time by the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.counts.now()
    }
}

/// Which charges of a granted request are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Return {
    Everything,
    WhatIsHeld,
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.load();
        f.debug_struct("Engine")
            .field("rules", &rules.rules().len())
            .field("shared", &self.shared.is_some())
            .finish_non_exhaustive()
    }
}
