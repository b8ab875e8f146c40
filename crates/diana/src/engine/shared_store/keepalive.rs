//! Extends the leases of running requests in the shared store.
//!
//! Shared permits are leases with an expiry, so that a crashed process does not hold them forever; longer requests have
//! to extend them. One task per engine extends the leases of all running requests, as often as the store requires; it
//! only runs while there are leases.

use super::SharedStore;
use crate::engine::asks::{Charges, OwnedAsks};
use crate::engine::local_counts::LocalCounts;
use crate::engine::{EngineState, Verdict};
use diana_core::{Change, Decision};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;

/// How many leases are extended concurrently.
const BATCH_SIZE: usize = 64;

/// The leases in the shared store, and their requests.
#[derive(Debug, Default)]
pub(in crate::engine) struct HeldLeases(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    by_number: HashMap<u64, Arc<Vec<Lease>>>,
    next: u64,
    /// The number of the task that extends them, if one is running.
    task: Option<u64>,
}

/// The leases of one decision of the shared store.
#[derive(Debug)]
struct Lease {
    asks: OwnedAsks,
    decision: Decision,
}

/// Extends the leases of a request until it is dropped; it does not release them.
pub(in crate::engine) struct LeaseGuard {
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
    fn list_leases(&self) -> Option<Vec<Arc<Vec<Lease>>>> {
        let mut list = self.held.0.lock();
        if list.by_number.is_empty() {
            list.task = None;
            return None;
        }
        Some(list.by_number.values().cloned().collect())
    }

    /// Extends all leases periodically, until there are none.
    async fn run(self, store: Weak<dyn SharedStore>, counts: Arc<LocalCounts>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            let Some(leases) = self.list_leases() else { return };
            for batch in leases.chunks(BATCH_SIZE) {
                let mut extending = JoinSet::new();
                for leases in batch {
                    let Some(store) = store.upgrade() else { return };
                    extending.spawn(extend(store, Arc::clone(&counts), Arc::clone(leases)));
                }
                while extending.join_next().await.is_some() {}
            }
        }
    }
}

impl Drop for KeepaliveTask {
    fn drop(&mut self) {
        let mut list = self.held.0.lock();
        if list.task == Some(self.number) {
            list.task = None;
        }
    }
}

impl EngineState {
    /// Extends the leases of a request in the shared store (`concurrent`) as long as the guard lives; without it, they
    /// expire after `permits_for`. `None` if there are no leases.
    ///
    /// Needs a tokio runtime: the one in which the engine was created, or the current one.
    pub(in crate::engine) fn keep_leases(&self, verdict: &Verdict) -> Option<LeaseGuard> {
        if !verdict.matches().is_held() || verdict.granted().all(|decision| decision.is_local) {
            return None;
        }
        let store = self.shared.as_ref()?;
        let every = store.extend_every()?;
        let mut leases = Vec::new();
        for scoped in verdict.granted().filter(|scoped| !scoped.is_local) {
            let (asks, decision) = verdict.charged(scoped, Charges::Held);
            if !asks.is_empty() {
                leases.push(Lease { asks: OwnedAsks::copied(&asks), decision });
            }
        }
        (!leases.is_empty()).then(|| self.add_leases(store, leases, every))
    }

    fn add_leases(&self, store: &Arc<dyn SharedStore>, leases: Vec<Lease>, every: Duration) -> LeaseGuard {
        let held = &self.leases;
        let mut list = held.0.lock();
        let number = list.next;
        list.next += 1;
        list.by_number.insert(number, Arc::new(leases));
        let is_running = list.task.is_some();
        list.task.get_or_insert(number);
        drop(list);
        if !is_running {
            let task = KeepaliveTask { held: Arc::clone(held), number };
            // Without a runtime they can't be extended, and expire.
            let task = task.run(Arc::downgrade(store), Arc::clone(&self.counts), every);
            self.background.spawn_untracked(task);
        }
        LeaseGuard { held: Arc::clone(held), number }
    }
}

async fn extend(store: Arc<dyn SharedStore>, counts: Arc<LocalCounts>, leases: Arc<Vec<Lease>>) {
    for Lease { asks, decision } in &*leases {
        // If the store is unreachable, the next round extends it; rounds are more frequent than strictly necessary.
        let _ = store.change(&asks.as_asks(), counts.now(), Change::Extend(decision)).await;
    }
}
