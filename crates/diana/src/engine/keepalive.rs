//! Extends the leases of running requests in the shared store.
//!
//! Shared permits are leases with an expiry, so that a crashed process does not hold them forever; longer requests have
//! to extend them. One task per engine extends the leases of all running requests, as often as the store requires; it
//! only runs while there are leases.

use super::local::LocalCounts;
use super::queries::{Queries, Scope};
use super::{Engine, Return, Verdict};
use diana_core::{Ask, Cost, Decision, Limit, Store};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;

/// How many leases are extended at a time.
const AT_A_TIME: usize = 64;

/// The leases in the shared store, and their requests.
#[derive(Debug, Default)]
pub(super) struct HeldLeases(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    by_number: HashMap<u64, Arc<Vec<Holding>>>,
    next: u64,
    /// The number of the task that extends them, if one is running.
    looked_after_by: Option<u64>,
}

/// One decision of the shared store with leases.
#[derive(Debug)]
struct Holding {
    asks: Vec<(Limit, Vec<u8>, Cost)>,
    decision: Decision,
}

/// Extends the leases of a request until it is dropped; it does not release them.
#[must_use = "dropped, it keeps nothing"]
pub struct LeaseGuard {
    held: Arc<HeldLeases>,
    number: u64,
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.held.0.lock().by_number.remove(&self.number);
    }
}

impl fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseGuard").field("number", &self.number).finish()
    }
}

/// The task that extends the leases. If it is cancelled with its runtime, another one can start.
struct KeepaliveTask {
    held: Arc<HeldLeases>,
    number: u64,
}

impl KeepaliveTask {
    /// Returns all leases. `None` if there are none: then this task ends, and the next lease starts a new one.
    fn all(&self) -> Option<Vec<Arc<Vec<Holding>>>> {
        let mut list = self.held.0.lock();
        if list.by_number.is_empty() {
            list.looked_after_by = None;
            return None;
        }
        Some(list.by_number.values().cloned().collect())
    }
}

impl Drop for KeepaliveTask {
    fn drop(&mut self) {
        let mut list = self.held.0.lock();
        if list.looked_after_by == Some(self.number) {
            list.looked_after_by = None;
        }
    }
}

impl<S: Store + 'static> Engine<S> {
    /// Extends the leases of a request in the shared store (`concurrent`) as long as the guard lives; without it, they
    /// expire after `permits_for`. `None` if there are no leases.
    ///
    /// Needs a tokio runtime: the one in which the engine was created, or the current one.
    pub fn keep(&self, verdict: &Verdict) -> Option<LeaseGuard> {
        let made = verdict.made();
        if !verdict.found().is_held() || (made.shared.is_none() && made.shadows.is_empty()) {
            return None;
        }
        let store = self.shared.as_ref()?;
        let every = store.extend_every()?;
        let shared = made.shared.iter().filter(|shared| !shared.here).map(|shared| (Scope::Shared, &shared.decision));
        let shadows = made.shadows.iter().filter(|shadow| !shadow.here);
        let shadows = shadows.map(|shadow| (Scope::Shadow(shadow.nth), &shadow.decision));
        let granted = shared.chain(shadows).filter(|(_, decision)| decision.is_granted());
        let holdings = granted.map(|(part, decision)| Holding::of(verdict, part, decision));
        let holdings = holdings.filter(|holding| !holding.asks.is_empty()).collect::<Vec<_>>();
        (!holdings.is_empty()).then(|| self.add(store, holdings, every))
    }

    fn add(&self, store: &Arc<S>, holdings: Vec<Holding>, every: Duration) -> LeaseGuard {
        let mut list = self.held.0.lock();
        let number = list.next;
        list.next += 1;
        list.by_number.insert(number, Arc::new(holdings));
        let is_looked_after = list.looked_after_by.is_some();
        list.looked_after_by.get_or_insert(number);
        drop(list);
        if !is_looked_after {
            let looking = KeepaliveTask { held: Arc::clone(&self.held), number };
            // Without a runtime they can't be extended, and expire.
            self.behind.start(look_after(looking, Arc::downgrade(store), Arc::clone(&self.counts), every));
        }
        LeaseGuard { held: Arc::clone(&self.held), number }
    }
}

impl Holding {
    fn of(verdict: &Verdict, part: Scope, decision: &Decision) -> Self {
        let (asks, decision) = Queries::given_back(verdict, part, decision, Return::WhatIsHeld);
        Self { asks: asks.iter().map(|ask| (ask.limit.clone(), ask.key.to_vec(), ask.cost)).collect(), decision }
    }
}

/// Extends all leases periodically, until there are none.
async fn look_after<S: Store + 'static>(
    looking: KeepaliveTask,
    store: Weak<S>,
    counts: Arc<LocalCounts>,
    every: Duration,
) {
    loop {
        tokio::time::sleep(every).await;
        let Some(all) = looking.all() else { return };
        for some in all.chunks(AT_A_TIME) {
            let mut saying = JoinSet::new();
            for holdings in some {
                let Some(store) = store.upgrade() else { return };
                saying.spawn(extend(store, Arc::clone(&counts), Arc::clone(holdings)));
            }
            while saying.join_next().await.is_some() {}
        }
    }
}

async fn extend<S: Store>(store: Arc<S>, counts: Arc<LocalCounts>, holdings: Arc<Vec<Holding>>) {
    for Holding { asks, decision } in &*holdings {
        let asks = asks.iter().map(|(limit, key, cost)| Ask::new(limit, key, *cost)).collect::<Vec<_>>();
        // If the store is unreachable, the next round extends it; rounds are more frequent than strictly necessary.
        let _ = store.extend(&asks, decision, counts.now()).await;
    }
}
