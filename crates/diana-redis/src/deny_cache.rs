//! The deny cache: requests that Redis is known to deny are denied without a round trip.
//!
//! The cache stores, by name, the last state that Redis reported. A request is answered from it only if the states of
//! *all* its limits are cached and one of them denies it. Then the algorithms compute the whole report from the states,
//! at the current time: so each limit's values, including the longest retry, are those that Redis would return, as long
//! as no other process changes a state.
//!
//! ```text
//!   {A, B} ──▶ A known? B known? ──▶ both, and A denies ──▶ denied locally: A retry after 3 s, B 47 left
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
//!   within [`MAX_AGE`].
//! - A limit whose permits are held until they are released is denied only by Redis: any process may release.
//!
//! States are cached when a request is denied, and when a grant of one limit takes the last permits: in a flood of such
//! requests, Redis need not deny even the first one. Afterwards every reply about a cached name refreshes it.
//!
//! A grant of several limits shows that one of them denies the next request, but not that it is the one with the longest
//! retry: other processes may use up another one in the meantime. So a request of several limits is denied only by a
//! state that was reported with a denial.
//!
//! The time of a state counts from when the query was sent, which is before Redis answered it: so a denial ends
//! slightly too early, never too late.

use crate::limit_config_versions::LimitConfig;
use crate::script_call::Item;
use crate::scripted_algorithm::ErasedCachedState;
use crate::scripted_algorithm::ScriptView;
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
const MAX_ENTRIES: usize = 65_536;
/// The maximum size of names and states in bytes, over all shards.
const MAX_BYTES: usize = 64 << 20;
/// The size of an entry without its name and its state's heap memory.
const ENTRY_BYTES: usize = 256;
/// How long a cached state is valid, since another process may refund or reset.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How often a full shard is searched for expired states.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// The last known states by name.
#[derive(Debug)]
pub(crate) struct StateCache {
    clocks: Clocks,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// The number of invalidations of each shard: a reply to a query that was sent before may be outdated.
    invalidations: [AtomicU64; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    states: HashMap<Vec<u8>, ReportedState>,
    bytes: usize,
    swept: Timestamp,
}

/// A state as Redis reported it.
#[derive(Debug)]
struct ReportedState {
    /// The parameters of the state.
    config: Arc<LimitConfig>,
    state: Arc<ErasedCachedState>,
    /// When Redis reported it, by Redis's clock.
    at: Timestamp,
    /// When the query was sent, by this process's clock.
    sent_at: Timestamp,
    /// Whether the request that it was reported for was granted.
    is_granted: bool,
    bytes: usize,
}

/// When a query was sent, to compare its reply with later invalidations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryStart {
    at: Timestamp,
    invalidations: [u64; SHARDS],
}

/// Which clocks the states are timed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// One server's clock.
    One,
    /// The clocks of a cluster's nodes, which may differ.
    Several,
}

impl StateCache {
    pub(crate) fn new(clocks: Clocks) -> Self {
        Self {
            clocks,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            invalidations: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Returns the whole report on `items` if they are known to be denied.
    pub(crate) fn denial(&self, items: &[Item], local_now: Timestamp) -> Option<Decision> {
        let entries = items.iter().map(|item| {
            let shard = self.shard(&item.name).lock();
            let entry = shard.states.get(&item.name).filter(|entry| entry.is_valid(&item.config, local_now))?;
            let can_deny = !entry.is_granted || items.len() == 1;
            Some((Arc::clone(&entry.state), entry.at + local_now.since(entry.sent_at), can_deny))
        });
        let mut entries = entries.collect::<Option<SmallVec<[_; 4]>>>()?;
        if self.clocks == Clocks::One {
            // None of these times is earlier than the time on Redis, so the earliest is the closest. With one time,
            // limits that reset simultaneously are reported that way.
            let now = entries.iter().map(|(_, now, _)| *now).min()?;
            entries.iter_mut().for_each(|entry| entry.1 = now);
        }
        let mut is_denied = false;
        let answers = items.iter().zip(&entries).map(|(item, (state, now, can_deny))| {
            let answer = item.config.algorithm.answer_from_cache(state, &item.ask, *now)?;
            match answer.retry() {
                // Any process may release at any time.
                Some(Retry::WhenReleased) => return None,
                Some(_) if item.config.algorithm.holds() => return None,
                Some(_) => is_denied |= *can_deny,
                None => {}
            }
            Some(answer)
        });
        let answers = answers.collect::<Option<SmallVec<_>>>()?;
        is_denied.then(|| Decision::from(answers))
    }

    /// Records that a query is sent now.
    pub(crate) fn begin_query(&self, local_now: Timestamp) -> QueryStart {
        QueryStart {
            at: local_now,
            invalidations: std::array::from_fn(|index| self.invalidations[index].load(Ordering::Acquire)),
        }
    }

    /// Caches the states from a reply to `query`.
    pub(crate) fn learn(&self, items: &[Item], decision: &Decision, query: &QueryStart) {
        let (should_cache, is_granted) = (is_denied_next(items, decision), decision.is_granted());
        for item in items {
            let index = self.index(&item.name);
            let mut shard = self.shards[index].lock();
            let is_cached = shard.states.contains_key(&item.name);
            if !is_cached && !should_cache {
                continue;
            }
            let Some(view) = &item.view else { continue };
            if self.invalidations[index].load(Ordering::Acquire) != query.invalidations[index] {
                // This entry may have been invalidated, and the reply may be older than that.
                shard.remove(&item.name);
                continue;
            }
            match item.config.algorithm.cache_state(view, &item.ask) {
                Some(state) => shard.put(item, state, view.at, query.at, is_granted),
                None => shard.remove(&item.name),
            }
        }
    }

    /// Invalidates the state with this name.
    pub(crate) fn invalidate(&self, name: &[u8]) {
        let index = self.index(name);
        let mut shard = self.shards[index].lock();
        self.invalidations[index].fetch_add(1, Ordering::AcqRel);
        shard.remove(name);
    }

    /// Invalidates a state whose permits are released. Replies in flight are cached nevertheless: such a limit is never
    /// denied from this cache, and releases are too frequent to discard the replies about other states.
    pub(crate) fn invalidate_released(&self, name: &[u8]) {
        self.shard(name).lock().remove(name);
    }

    /// Invalidates everything.
    pub(crate) fn clear(&self) {
        for (shard, invalidations) in self.shards.iter().zip(&self.invalidations) {
            let mut shard = shard.lock();
            invalidations.fetch_add(1, Ordering::AcqRel);
            *shard = Shard::default();
        }
    }

    fn index(&self, name: &[u8]) -> usize {
        usize::from(self.hasher.hash_one(name).to_le_bytes()[7]) % SHARDS
    }

    fn shard(&self, name: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.index(name)]
    }
}

/// Returns `true` if it is known that an immediate retry of the same request is denied by a limit that time refills, and
/// by which.
fn is_denied_next(items: &[Item], decision: &Decision) -> bool {
    let is_granted = decision.is_granted();
    if is_granted && items.len() > 1 {
        return false;
    }
    items.iter().zip(decision.answers()).filter(|(item, _)| !item.config.algorithm.holds()).any(|(item, answer)| {
        if !is_granted {
            return !answer.is_granted();
        }
        if answer.status().remaining >= item.ask.cost.get() {
            return false;
        }
        let next = |view: &ScriptView| {
            let algorithm = &item.config.algorithm;
            algorithm.answer_from_cache(&algorithm.cache_state(view, &item.ask)?, &item.ask, view.at)
        };
        item.view.as_ref().and_then(next).is_some_and(|next| !next.is_granted())
    })
}

impl ReportedState {
    fn is_valid(&self, config: &Arc<LimitConfig>, local_now: Timestamp) -> bool {
        Arc::ptr_eq(&self.config, config) && self.sent_at <= local_now && local_now.since(self.sent_at) < MAX_AGE
    }
}

impl Shard {
    fn put(&mut self, item: &Item, state: ErasedCachedState, at: Timestamp, sent_at: Timestamp, is_granted: bool) {
        if self.states.get(&item.name).is_some_and(|entry| Arc::ptr_eq(&entry.config, &item.config) && entry.at > at) {
            // Replies may overtake each other.
            return;
        }
        self.remove(&item.name);
        let bytes = ENTRY_BYTES + item.name.len() + state.heap_bytes();
        if !self.has_room(bytes) {
            if sent_at.since(self.swept) < SWEEP_EVERY {
                return;
            }
            self.swept = sent_at;
            self.states.retain(|_, entry| sent_at.since(entry.sent_at) < MAX_AGE);
            self.bytes = self.states.values().map(|entry| entry.bytes).sum();
            if !self.has_room(bytes) {
                return;
            }
        }
        self.bytes += bytes;
        let (config, state) = (Arc::clone(&item.config), Arc::new(state));
        self.states.insert(item.name.clone(), ReportedState { config, state, at, sent_at, is_granted, bytes });
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.states.len() < MAX_ENTRIES / SHARDS && self.bytes + bytes <= MAX_BYTES / SHARDS
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(entry) = self.states.remove(name) {
            self.bytes -= entry.bytes;
        }
    }
}
