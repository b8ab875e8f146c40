//! The in-process store: every limit's keys, sharded by key.
//!
//! A shard is one lock over the keys of *all* limits with the same hash bits. So the limits of one key (100/s and
//! 20,000/h for the same account) share one lock, and a request that spans keys takes a few locks in ascending order, and
//! charges all limits or none while it has them. `one_pass` does that for most requests, `check_then_take` for the rest.

use super::budget::Budget;
use super::erased_table::{KeyChange, KeyQuery, Keys};
use super::limit_versions::Changes;
use super::shards::Shards;
use super::table::OnFull;
use super::{Ask, Change, LocalStore, Query};
use crate::sync::{Arc, Mutex};
use crate::{
    Answer, ClThrottle, Cost, Decision, Limit, LimitId, LimitIdHasher, MaxWait, MemoryBound, Sample, Timestamp,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;

mod check_then_take;
mod one_pass;
mod saved_keys;

use check_then_take::Request;
pub use saved_keys::{HashSecret, InvalidSavedKeys, saved_key_count};

/// Options of a table of keys: its memory, its locks, and what happens when it is full.
///
/// ```
/// use diana_core::{OnFull, TableOptions};
///
/// let options = TableOptions::default().memory(16 << 20).on_full(OnFull::Deny);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    memory: usize,
    on_full: OnFull,
    shards: usize,
    hash_secret: Option<HashSecret>,
}

impl Default for TableOptions {
    /// Has 64 MiB (some three million token buckets), shared counts when that is full, and 64 shards.
    fn default() -> Self {
        Self { memory: 64 << 20, on_full: OnFull::default(), shards: 64, hash_secret: None }
    }
}

impl TableOptions {
    /// Sets the memory bound for all keys together, in bytes. (The locks and shared counts are extra, and fixed.)
    #[must_use]
    pub fn memory(self, bytes: usize) -> Self {
        Self { memory: bytes, ..self }
    }

    /// Sets what happens to new keys when the bound is reached and no entry can be dropped.
    #[must_use]
    pub fn on_full(self, on_full: OnFull) -> Self {
        Self { on_full, ..self }
    }

    /// Sets the number of locks: rounded up to a power of two, at most 256. More threads need more.
    #[must_use]
    pub fn shards(self, count: usize) -> Self {
        Self { shards: count.max(1), ..self }
    }

    /// Sets the keys of the hash that identifies keys, which are random otherwise: for a store that loads the keys that
    /// [another one](MemoryStore::hash_secret) has saved.
    #[must_use]
    pub fn hash_secret(self, keys: HashSecret) -> Self {
        Self { hash_secret: Some(keys), ..self }
    }

    pub(crate) fn budget(&self) -> Arc<Budget> {
        Arc::new(Budget::new(self.memory))
    }

    pub(crate) fn full(&self) -> OnFull {
        self.on_full
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.shards
    }
}

/// A store that keeps its counts in this process.
///
/// ```
/// use diana_core::{Ask, Limit, LocalStore, MemoryStore, MaxWait, Quota, Timestamp, TokenBucket};
///
/// let store = MemoryStore::default();
/// let everyone = Limit::new("everyone", TokenBucket::new(Quota::per_second(1000)?));
/// let account = Limit::new("each-account", TokenBucket::new(Quota::per_second(1)?));
///
/// let asks = [Ask::one(&everyone, ""), Ask::one(&account, "alice")];
/// let now = Timestamp::from_secs(1);
/// assert!(store.decide(&asks, now, MaxWait::NONE).is_granted());
///
/// let denied = store.decide(&asks, now, MaxWait::NONE);
/// assert_eq!(denied.binding(), Some(1)); // alice's own limit
/// assert_eq!(denied.answers()[0].status().remaining, 999); // and `everyone` was not charged for it
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    shards: Shards<Shard>,
    budget: Arc<Budget>,
    /// The bounds of limits that have one, within the budget.
    parts: Mutex<Vec<(MemoryBound, Arc<Budget>)>>,
    on_full: OnFull,
    changes: Changes,
}

/// The keys of one limit in a [`MemoryStore`], and their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUsage {
    /// The number of stored keys.
    pub keys: usize,
    /// Their memory in bytes.
    pub bytes: usize,
}

/// The keys of all limits that one lock guards.
#[derive(Debug, Default)]
struct Shard {
    limits: HashMap<LimitId, LimitKeys, BuildHasherDefault<LimitIdHasher>>,
    /// The limits in some order, and the next one to scan for keys that can be dropped.
    order: Vec<LimitId>,
    next_sweep: usize,
}

#[derive(Debug)]
struct LimitKeys {
    version: u64,
    keys: Keys,
}

impl Shard {
    /// Lets one limit at a time scan for keys to drop: one limit's idle keys must not exclude another's active ones.
    #[cold]
    fn sweep_some(&mut self, now: Timestamp) {
        self.next_sweep = (self.next_sweep + 1) % self.order.len().max(1);
        let limit = self.order.get(self.next_sweep).and_then(|id| self.limits.get_mut(id));
        if let Some(limit) = limit {
            limit.keys.sweep_some(now);
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(TableOptions::default())
    }
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new(options: TableOptions) -> Self {
        Self {
            shards: match options.hash_secret {
                Some(keys) => Shards::with_keys(options.shard_count(), keys.into(), Shard::default),
                None => Shards::new(options.shard_count(), Shard::default),
            },
            budget: options.budget(),
            parts: Mutex::default(),
            on_full: options.full(),
            changes: Changes::default(),
        }
    }

    /// Returns the number of stored keys over all limits.
    pub fn len(&self) -> usize {
        self.shards.lock_each().map(|shard| shard.limits.values().map(|limit| limit.keys.len()).sum::<usize>()).sum()
    }

    /// Returns `true` if no key is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of the keys in bytes.
    pub fn memory_used(&self) -> usize {
        self.budget.used()
    }

    /// Returns the keys and the memory of each limit that was used so far. Locks one shard at a time.
    ///
    /// ```
    /// use diana_core::{Ask, Limit, LocalStore, MaxWait, MemoryStore, Quota, Timestamp, TokenBucket};
    ///
    /// let (store, limit) = (MemoryStore::default(), Limit::new("each-account", TokenBucket::new(Quota::per_hour(5)?)));
    /// for account in ["alice", "bob"] {
    ///     store.decide(&[Ask::one(&limit, account)], Timestamp::from_secs(1), MaxWait::NONE);
    /// }
    /// let usage = store.usage()[&limit.id()];
    /// assert_eq!((usage.keys, usage.bytes), (2, store.memory_used()));
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub fn usage(&self) -> HashMap<LimitId, KeyUsage> {
        let mut usage = HashMap::<LimitId, KeyUsage>::new();
        for shard in self.shards.lock_each() {
            for (limit, LimitKeys { keys, .. }) in &shard.limits {
                let sum = usage.entry(*limit).or_default();
                sum.keys += keys.len();
                sum.bytes += keys.bytes();
            }
        }
        usage
    }

    /// Scans all entries and drops those that equal a fresh one. Insertions do it incrementally; use it at idle times.
    pub fn reclaim(&self, now: Timestamp) {
        for mut shard in self.shards.lock_each() {
            shard.limits.values_mut().for_each(|limit| limit.keys.reclaim(now));
        }
    }

    /// Decides a single ask, like [`decide`](LocalStore::decide) with a list of one. This is the most common case, and
    /// needs neither a second lookup nor a list of answers.
    pub fn decide_one(&self, ask: Ask<'_>, now: Timestamp, max_wait: MaxWait) -> Answer {
        let hash = self.shards.hash_bytes(ask.key);
        let mut shard = self.shards.lock(hash);
        let max_wait = max_wait.min(ask.max_wait);
        self.keys(&mut shard, ask.limit, now).query(hash, now, ask.cost, max_wait, KeyQuery::Take)
    }

    /// Decides like [`decide`](LocalStore::decide), and replaces `decision` by the result. It reuses the memory, which is
    /// cheaper than a new decision.
    #[inline]
    pub fn decide_into(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait, decision: &mut Decision) {
        if let [ask] = asks {
            return decision.replace(self.decide_one(*ask, now, max_wait));
        }
        if !self.take_in_one_pass(asks, now, max_wait, decision.start_again()) {
            *decision = self.check_then_take(asks, now, max_wait);
        }
    }

    /// Decides one [`CL.THROTTLE`](Query::ClThrottle) call for `key` of `limit`. Keys are bounded like those of other
    /// limits; a new key that is denied for lack of memory is limited.
    pub fn cl_throttle(&self, limit: &Limit, key: &[u8], call: &ClThrottle, now: Timestamp) -> Answer {
        let hash = self.shards.hash_bytes(key);
        let mut shard = self.shards.lock(hash);
        let keys = self.keys(&mut shard, limit, now);
        keys.query(hash, now, Cost::ZERO, MaxWait::NONE, KeyQuery::ClThrottle(call))
    }

    /// Changes the key of each ask, one after the other.
    fn change_each<'c>(&self, asks: &[Ask<'_>], now: Timestamp, change: impl Fn(&Ask<'_>) -> KeyChange<'c>) {
        for ask in asks {
            let hash = self.shards.hash_bytes(ask.key);
            let mut shard = self.shards.lock(hash);
            self.keys(&mut shard, ask.limit, now).change(hash, now, change(ask));
        }
    }

    /// Takes `ask` for a caller that was due at `since` but was woken late:
    /// [`Limiter::check_since`](crate::Limiter::check_since) for a store. The permits are taken as of `since` plus the
    /// answer's [`wait`](Answer::wait), which may be in the past.
    ///
    /// ```
    /// use diana_core::{Ask, Limit, MemoryStore, MaxWait, Timestamp, TokenBucket};
    /// use std::time::Duration;
    ///
    /// let (store, limit) = (MemoryStore::default(), Limit::new("bytes", TokenBucket::new("1000/s burst 1".parse()?)));
    /// let take = |since, now| {
    ///     let ms = Timestamp::from_millis;
    ///     store.take_since(Ask::one(&limit, "key"), ms(since), ms(now), MaxWait::NONE).wait()
    /// };
    /// assert_eq!(take(5, 5), Some(Duration::ZERO));
    /// // Two permits have been refilled when the caller is woken at 7 ms.
    /// assert_eq!(take(5, 7), Some(Duration::from_millis(1)));
    /// assert_eq!(take(6, 7), Some(Duration::from_millis(1)));
    /// assert_eq!(take(7, 7), None);
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub fn take_since(&self, ask: Ask<'_>, since: Timestamp, now: Timestamp, max_wait: MaxWait) -> Answer {
        let hash = self.shards.hash_bytes(ask.key);
        let mut shard = self.shards.lock(hash);
        let max_wait = ask.max_wait.min(max_wait);
        self.keys(&mut shard, ask.limit, now).query(hash, now, ask.cost, max_wait, KeyQuery::TakeSince(since))
    }

    /// Reports the result of one response for `key` to `limit`. Only an [adaptive](crate::Adaptive) limit uses it.
    pub fn observe(&self, limit: &Limit, key: &[u8], now: Timestamp, sample: &Sample) {
        let hash = self.shards.hash_bytes(key);
        let mut shard = self.shards.lock(hash);
        let known = shard.limits.contains_key(&limit.id());
        // A late sample does not recreate a limit that was dropped.
        if known && self.keys(&mut shard, limit, now).is_of_kind(limit.erased()) {
            self.keys(&mut shard, limit, now).change(hash, now, KeyChange::Observe(sample));
        }
    }

    /// Returns the keys of `limit` in a shard, for a change: if memory is short, this also scans for keys to drop.
    #[inline(always)]
    fn keys<'a>(&self, shard: &'a mut Shard, limit: &Limit, now: Timestamp) -> &'a mut Keys {
        if self.budget.is_short() {
            shard.sweep_some(now);
        }
        self.keys_for_read(shard, limit, now)
    }

    /// Returns the keys of `limit` in a shard: created if they are new, changed if the limit has changed.
    ///
    /// A read may be for a future time, so it drops nothing.
    #[inline(always)]
    fn keys_for_read<'a>(&self, shard: &'a mut Shard, limit: &Limit, now: Timestamp) -> &'a mut Keys {
        let entry = match shard.limits.entry(limit.id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                shard.order.push(limit.id());
                new.insert(self.new_keys(limit, now))
            }
        };
        if entry.version < limit.version() {
            self.change_keys(entry, limit, now);
        }
        &mut entry.keys
    }

    #[cold]
    fn new_keys(&self, limit: &Limit, now: Timestamp) -> LimitKeys {
        let (first, changes) = self.changes.begin(limit, now);
        let mut keys = Keys::new(first.erased(), self.on_full, self.budget_of(&first));
        for (changed, at) in changes {
            keys.change_to(changed.erased(), self.on_full, &self.budget_of(&changed), at);
        }
        LimitKeys { version: limit.version(), keys }
    }

    #[cold]
    fn change_keys(&self, known: &mut LimitKeys, limit: &Limit, now: Timestamp) {
        for (changed, at) in self.changes.since(known.version, limit, now) {
            known.keys.change_to(changed.erased(), self.on_full, &self.budget_of(&changed), at);
        }
        known.version = limit.version();
    }

    /// Returns the budget of a limit's keys: that of its own bound, or the store's.
    fn budget_of(&self, limit: &Limit) -> Arc<Budget> {
        let Some(bound) = limit.memory() else { return Arc::clone(&self.budget) };
        let mut parts = self.parts.lock();
        if let Some((_, known)) = parts.iter().find(|(known, _)| known == bound) {
            return Arc::clone(known);
        }
        // The budgets of dropped limits are removed.
        parts.retain(|(_, budget)| Arc::strong_count(budget) > 1);
        let part = Arc::new(Budget::part_of(&self.budget, bound.bytes()));
        parts.push((bound.clone(), Arc::clone(&part)));
        part
    }
}

impl LocalStore for MemoryStore {
    #[inline]
    fn query(&self, asks: &[Ask<'_>], now: Timestamp, query: Query<'_>) -> Decision {
        match (query, asks) {
            (Query::Take(max_wait), [ask]) => Decision::new([self.decide_one(*ask, now, max_wait)]),
            (Query::Take(max_wait), asks) => {
                let mut decision = Decision::empty();
                self.decide_into(asks, now, max_wait, &mut decision);
                decision
            }
            (Query::Peek(max_wait), asks) => {
                let locations = self.locate(asks);
                let mut locked = self.lock(&locations);
                let request = Request { asks, locations: &locations, now, max_wait };
                self.answers(Self::keys_for_read, request, &mut locked, KeyQuery::Peek)
            }
            (Query::ClThrottle(call), asks) => {
                Decision::new(asks.iter().map(|ask| self.cl_throttle(ask.limit, ask.key, call, now)))
            }
        }
    }

    fn change(&self, asks: &[Ask<'_>], now: Timestamp, change: Change<'_>) {
        match change {
            Change::Charge => self.change_each(asks, now, |ask| KeyChange::Charge(ask.cost)),
            Change::Reset => self.change_each(asks, now, |_| KeyChange::Reset),
            Change::Refund(decision) if decision.is_granted() => {
                let locations = self.locate(asks);
                let mut locked = self.lock(&locations);
                self.refund_locked(asks, &locations, &mut locked, decision, now);
            }
            // Permits in this process do not expire.
            Change::Refund(_) | Change::Extend(_) => {}
        }
    }

    /// Drops all counts of a limit that is no longer used.
    fn forget(&self, limit: &Limit) {
        for mut shard in self.shards.lock_each() {
            shard.limits.remove(&limit.id());
            shard.order.retain(|id| *id != limit.id());
        }
        self.changes.forget(limit.id());
    }
}
