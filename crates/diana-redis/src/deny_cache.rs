//! The deny cache: requests that Redis is known to deny are denied without a round trip.
//!
//! The cache stores, by name, the last state that Redis reported. A request is answered from it only if the states of
//! *all* its limits are cached and one of them denies it. Then the algorithms compute the whole report from the states,
//! at the current time: so each limit's values, including the longest retry, are those that Redis would return, as long
//! as no other process changes a state.
//!
//! ```text
//!   {A, B} ──▶ A known? B known? ──▶ both, and A denies ──▶ denied here: A retry after 3 s, B 47 left
//!                     │                        │
//!                     ▼ one is not             ▼ neither denies
//!                  ask Redis               ask Redis
//! ```
//!
//! What always holds (`tests/it/differential.rs`, `tests/it/deny_cache.rs`):
//! - No request is denied that Redis would grant: other processes can only take permits. Permits are returned by time,
//!   which is computed, and by a refund, a reset or a change of the limit, after which the state is removed from the
//!   cache.
//! - Permits that this process takes or charges are in the reports at once. Those that other processes take appear
//!   within [`LONGEST`].
//! - A limit whose permits are held until they are released is denied only by Redis: any process may release.
//!
//! States are cached when a request is denied, and when a grant takes the last permits: in a flood, Redis need not deny
//! even the first request. Afterwards every reply about a cached name refreshes it.
//!
//! The time of a state counts from when the query was sent, which is before Redis answered it: so a denial ends
//! slightly too early, never too late.

use crate::limit_config::LimitConfig;
use crate::request::{Item, ScriptView};
use crate::scripted::Recalled;
use diana_core::{Decision, Retry, Timestamp};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SHARDS: usize = 16;
/// The maximum number of cached states: one that does not fit costs a round trip, nothing else.
const MOST: usize = 65_536;
/// The maximum size of names and states in bytes, over all shards.
const MOST_BYTES: usize = 64 << 20;
/// The size of an entry without its name and its state's heap memory.
const ENTRY_BYTES: usize = 256;
/// How long a cached state is valid, since another process may refund or reset.
const LONGEST: Duration = Duration::from_secs(1);
/// How often a full shard is searched for expired states.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// The last known states by name.
#[derive(Debug)]
pub(crate) struct DenyCache {
    clocks: Clocks,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// For each shard, how often an entry was invalidated: a reply to a query that was sent before may be outdated.
    forgotten: [AtomicU64; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    states: HashMap<Vec<u8>, Known>,
    bytes: usize,
    swept: Timestamp,
}

/// A state as Redis reported it.
#[derive(Debug)]
struct Known {
    /// The parameters of the state.
    config: Arc<LimitConfig>,
    state: Arc<Recalled>,
    /// When Redis reported it, by Redis's clock.
    at: Timestamp,
    /// When the query was sent, by this process's clock.
    asked: Timestamp,
    bytes: usize,
}

/// When a query was sent, to compare its reply with later invalidations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    at: Timestamp,
    forgotten: [u64; SHARDS],
}

/// Which clocks the states are timed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// One server's clock.
    One,
    /// The clocks of a cluster's nodes, which may differ.
    Several,
}

impl DenyCache {
    pub(crate) fn new(clocks: Clocks) -> Self {
        Self {
            clocks,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            forgotten: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Returns the whole report on `items` if they are known to be denied.
    pub(crate) fn denial(&self, items: &[Item], here: Timestamp) -> Option<Decision> {
        let known = items.iter().map(|item| {
            let shard = self.shard(&item.name).lock();
            let known = shard.states.get(&item.name).filter(|known| known.is_believed(&item.config, here))?;
            Some((Arc::clone(&known.state), known.at + here.since(known.asked)))
        });
        let mut known = known.collect::<Option<SmallVec<[_; 4]>>>()?;
        if self.clocks == Clocks::One {
            // None of these times is earlier than the time on Redis, so the earliest is the closest. With one time,
            // limits that reset simultaneously are reported that way.
            let now = known.iter().map(|(_, now)| *now).min()?;
            known.iter_mut().for_each(|known| known.1 = now);
        }
        let mut is_denied = false;
        let answers = items.iter().zip(&known).map(|(item, (state, now))| {
            let answer = item.config.erased.recall(state, &item.asking, *now)?;
            match answer.retry() {
                // Any process may release at any time.
                Some(Retry::WhenReturned) => return None,
                Some(_) if item.config.erased.holds() => return None,
                Some(_) => is_denied = true,
                None => {}
            }
            Some(answer)
        });
        let answers = answers.collect::<Option<SmallVec<_>>>()?;
        is_denied.then(|| Decision::from(answers))
    }

    /// Records that a query is sent now.
    pub(crate) fn asking(&self, here: Timestamp) -> Asked {
        Asked { at: here, forgotten: std::array::from_fn(|place| self.forgotten[place].load(Ordering::Acquire)) }
    }

    /// Caches the states from a reply to the query that was sent at `asked`.
    pub(crate) fn learn(&self, items: &[Item], decision: &Decision, asked: &Asked) {
        let is_worth_keeping = is_denied_next(items, decision);
        for item in items {
            let place = self.place(&item.name);
            let mut shard = self.shards[place].lock();
            let is_kept = shard.states.contains_key(&item.name);
            if !is_kept && !is_worth_keeping {
                continue;
            }
            let Some(seen) = &item.seen else { continue };
            if self.forgotten[place].load(Ordering::Acquire) != asked.forgotten[place] {
                // This entry may have been invalidated, and the reply may be older than that.
                shard.remove(&item.name);
                continue;
            }
            match item.config.erased.remember(seen, &item.asking) {
                Some(state) => shard.put(item, state, seen.at, asked.at),
                None => shard.remove(&item.name),
            }
        }
    }

    /// Invalidates the state with this name.
    pub(crate) fn forget(&self, name: &[u8]) {
        let place = self.place(name);
        let mut shard = self.shards[place].lock();
        self.forgotten[place].fetch_add(1, Ordering::AcqRel);
        shard.remove(name);
    }

    /// Invalidates a state whose permits are released. Replies in flight are cached nevertheless: such a limit is never
    /// denied from this cache, and releases are too frequent to discard the replies about other states.
    pub(crate) fn forget_released(&self, name: &[u8]) {
        self.shard(name).lock().remove(name);
    }

    /// Invalidates everything.
    pub(crate) fn clear(&self) {
        for (shard, forgotten) in self.shards.iter().zip(&self.forgotten) {
            let mut shard = shard.lock();
            forgotten.fetch_add(1, Ordering::AcqRel);
            *shard = Shard::default();
        }
    }

    fn place(&self, name: &[u8]) -> usize {
        usize::from(self.hasher.hash_one(name).to_le_bytes()[7]) % SHARDS
    }

    fn shard(&self, name: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.place(name)]
    }
}

/// Returns `true` if an immediate retry of the same request is denied by a limit that time refills.
fn is_denied_next(items: &[Item], decision: &Decision) -> bool {
    let is_granted = decision.is_granted();
    items.iter().zip(decision.answers()).filter(|(item, _)| !item.config.erased.holds()).any(|(item, answer)| {
        if !is_granted {
            return !answer.is_granted();
        }
        if answer.status.remaining >= item.asking.cost.get() {
            return false;
        }
        let next = |seen: &ScriptView| {
            let erased = &item.config.erased;
            erased.recall(&erased.remember(seen, &item.asking)?, &item.asking, seen.at)
        };
        item.seen.as_ref().and_then(next).is_some_and(|next| !next.is_granted())
    })
}

impl Known {
    fn is_believed(&self, config: &Arc<LimitConfig>, here: Timestamp) -> bool {
        Arc::ptr_eq(&self.config, config) && self.asked <= here && here.since(self.asked) < LONGEST
    }
}

impl Shard {
    fn put(&mut self, item: &Item, state: Recalled, at: Timestamp, asked: Timestamp) {
        if self.states.get(&item.name).is_some_and(|known| Arc::ptr_eq(&known.config, &item.config) && known.at > at) {
            // Replies may overtake each other.
            return;
        }
        self.remove(&item.name);
        let bytes = ENTRY_BYTES + item.name.len() + state.heap_bytes();
        if !self.has_room(bytes) {
            if asked.since(self.swept) < SWEEP_EVERY {
                return;
            }
            self.swept = asked;
            self.states.retain(|_, known| asked.since(known.asked) < LONGEST);
            self.bytes = self.states.values().map(|known| known.bytes).sum();
            if !self.has_room(bytes) {
                return;
            }
        }
        self.bytes += bytes;
        let known = Known { config: Arc::clone(&item.config), state: Arc::new(state), at, asked, bytes };
        self.states.insert(item.name.clone(), known);
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.states.len() < MOST / SHARDS && self.bytes + bytes <= MOST_BYTES / SHARDS
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(known) = self.states.remove(name) {
            self.bytes -= known.bytes;
        }
    }
}
