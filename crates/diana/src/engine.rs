//! Rules and stores together: one decision for one request.
//!
//! # The life of a request
//! 1. The rules in force are taken once, so that no request sees half of a change.
//! 2. They are asked which of them the request is about, whose it is, and what it costs ([`RuleSet::find`]).
//! 3. A rule that refuses whatever its counts are (`deny`, `missing: deny`) ends it here; nothing is charged.
//! 4. The limits that are counted here are asked, all or nothing; they are free.
//! 5. If they grant it, those that are shared are asked, all or nothing. If these refuse, or nobody waits for the answer any
//!    more, what the first took is given back.
//! 6. If all grant it, the shadow rules are asked, each on its own. They count as if they were in force, and refuse nobody.
//!
//! # What always holds (tests/)
//! - Never more is granted than each limit allows, also while rules change (`reload.rs`).
//! - A request that is refused, or given up, has charged nothing in the end (`mixed.rs`, `given_up.rs`), where there is a runtime to
//!   hear what the shared store says.

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
#[cfg(feature = "macros")]
pub(crate) use verdict::time;
pub use verdict::{Asked, Reason, Verdict};

/// Decides about requests by rules. `S` is the store that many processes share, if there is one.
pub struct Engine<S = MemoryStore> {
    rules: ArcSwap<RuleSet>,
    counts: Arc<LocalCounts>,
    shared: Option<Arc<S>>,
    /// Who goes on with what is under way when a request is given up.
    behind: Background,
    /// What requests hold in the shared store while they run.
    #[cfg(feature = "wait")]
    held: Arc<keepalive::HeldLeases>,
    load: LoadMeter,
    sheddings: Sheddings,
    /// Held while the rules change. Limits that are gone are forgotten twice, the second time with the next change: a request
    /// that was under way may have asked for them once more.
    changing: Mutex<Vec<Limit>>,
}

impl Engine {
    /// The rules of a file, with counts in this process alone.
    pub fn new(file: &RuleFile) -> Self {
        EngineOptions::of(file).build(file)
    }
}

impl<S: Store> Engine<S> {
    /// The rules of a file, with the counts of `store: shared` in a store that many processes share.
    pub fn with_shared(file: &RuleFile, shared: S) -> Self {
        EngineOptions::of(file).build_shared(file, shared)
    }
}

impl<S: Store + 'static> Engine<S> {
    /// Decides about one request: whether it may go on, after which wait, or why not.
    ///
    /// Asking for the attributes, and all that is counted here, is done at once; the future is only for the shared store.
    /// Dropping it gives back what was taken: here at once, and in the shared store as soon as that has answered, which is heard
    /// behind, in a tokio runtime (feature `wait`): the one that the engine was made in, or that of the one who drops it. Where
    /// there is none, what the shared store has granted comes back with time.
    pub fn decide(&self, request: &dyn Attributes) -> DecideFuture<'_, S> {
        match self.first_look(request, WhenFull::Deny) {
            (begun, NextStep::Nothing) => DecideFuture::made(begun),
            (begun, next) => DecideFuture::asking(self.carry_on(begun, next, WhenFull::Deny)),
        }
    }

    /// Decides about one request as [`decide`](Self::decide) does, but where a rule says `wait` and its algorithm can't tell
    /// when the turn will come (windows, logs, `concurrent`), the request stands in line: first come, first served, for each
    /// count. At most as many as the rule's `queue` says stand in one line, and 1,000 where it says nothing.
    ///
    /// Dropping the future leaves the line. A wait that the verdict [tells](Verdict::wait) is still to be waited for.
    ///
    /// # Panics
    /// When it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "wait")]
    pub fn admit(&self, request: &dyn Attributes) -> AdmitFuture<'_, S> {
        match self.first_look(request, WhenFull::Queue) {
            (begun, NextStep::Nothing) => DecideFuture::made(begun),
            (begun, next) => DecideFuture::asking(self.carry_on(begun, next, WhenFull::Queue)),
        }
    }

    /// [`admit`](Self::admit) in two steps, for those who can't lend the engine to a future: what can be said at once is said,
    /// and the rest is for [`go_on`](Self::go_on).
    #[cfg(feature = "wait")]
    pub fn begin(&self, request: &dyn Attributes) -> Begun {
        match self.first_look(request, WhenFull::Queue) {
            (begun, NextStep::Nothing) => Begun::Made(begun.done()),
            (begun, next) => Begun::Unfinished(Unfinished { begun: begun.into_own(), next }),
        }
    }

    /// Decides about a request that could not be decided at once.
    #[cfg(feature = "wait")]
    pub async fn go_on(&self, unfinished: Unfinished) -> Verdict {
        self.carry_on(unfinished.begun, unfinished.next, WhenFull::Queue).await
    }
}

impl<S: Store> Engine<S> {
    /// Which of the asks are decided in this process: all of them, if nobody shares.
    fn here(&self) -> Scope {
        if self.shared.is_some() { Scope::Local } else { Scope::Everything }
    }

    /// Says that a granted request is done: what it only held while it ran (`concurrent`) is given back.
    ///
    /// A verdict that is dropped gives back what it holds in this process, too; what it holds in the shared store comes back when
    /// its lease ends.
    pub async fn finish(&self, mut verdict: Verdict) {
        verdict.made_mut().held = None;
        self.give_back(&verdict, Return::WhatIsHeld).await;
    }

    /// Gives back all that a granted request took, as far as time has not: it was not carried out.
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

    /// The store that a decision was made by, if that was the shared one.
    fn decided_there(&self, here: bool) -> Option<&S> {
        self.shared().filter(|_| !here)
    }

    /// Puts the rules of `file` in force, all at once. Limits that stay, or only change, keep their counts; requests that are
    /// under way go on under the rules that they began with. Requests that are queued ask again, by the new rules of the same
    /// names.
    pub fn set_rules(&self, file: &RuleFile) {
        let mut gone = self.changing.lock();
        let before = self.rules.load_full();
        let after = before.changed_to(file);
        let newly_gone = before.limits_gone_in(&after);
        if let Some(shared) = &self.shared {
            // While others still have the old rules, the higher number counts for all who share a limit.
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
        // Those that are queued go over to the new rules.
        self.counts.lines.wake_all();
    }

    /// Takes along what keys have used that have another limit from now on. A limit that a key had before may still know some
    /// of it, so the larger of the two counts, and not their sum.
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

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// The counts of this process.
    pub fn local(&self) -> &MemoryStore {
        &self.counts.store
    }

    /// How busy the machine is, for those who can tell: rules with `load` go by it.
    pub fn load(&self) -> &LoadMeter {
        &self.load
    }

    /// The store that many processes share, if there is one.
    pub fn shared(&self) -> Option<&S> {
        self.shared.as_deref()
    }

    /// The runtime that the engine's own work goes on in: the one that it was made in if that has threads of its own, else the
    /// current one.
    #[cfg(feature = "macros")]
    pub(crate) fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.behind.runtime()
    }

    /// Blocks this thread until `time` has come by the engine's clock.
    #[cfg(feature = "macros")]
    pub(crate) fn park_until(&self, time: Timestamp) {
        self.counts.park_until(time);
    }

    /// Waits until all is done that is carried out behind requests: for the end of a program, whose runtime would throw it away.
    #[cfg(feature = "wait")]
    pub async fn carried_out(&self) {
        self.behind.done().await;
    }

    /// The time by the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.counts.now()
    }
}

/// What of a granted request is given back.
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
