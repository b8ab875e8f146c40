//! The in-process store: every limit's keys, sharded by key.
//!
//! A shard is one lock over the keys of *all* limits with the same hash bits. So the limits of one key (100/s and
//! 20,000/h for the same account) share one lock, and a request that spans keys takes a few locks in ascending order,
//! checks everything, and charges only if all limits grant. That makes a decision all or nothing.

use super::budget::Budget;
use super::erased_table::Keys;
use super::limit_versions::Changes;
use super::shards::Shards;
use super::table::OnFull;
use super::{Ask, LocalStore, StoreError};
use crate::sync::{Arc, MutexGuard};
use crate::{Answer, ClThrottle, ClThrottleAnswer, Cost, Decision, Limit, LimitId, LimitIdHasher, MaxWait, Sample};
use crate::{TimeDebt, Timestamp};
use smallvec::SmallVec;
use std::any::Any;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

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
}

impl Default for TableOptions {
    /// 64 MiB (some three million token buckets), shared counts when that is full, 64 shards.
    fn default() -> Self {
        Self { memory: 64 << 20, on_full: OnFull::default(), shards: 64 }
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
/// assert_eq!(denied.answers()[0].status.remaining, 999); // and `everyone` was not charged for it
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    shards: Shards<Shard>,
    budget: Arc<Budget>,
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

/// An ask and its location.
struct Location {
    hash: u64,
    shard: usize,
    /// The earlier ask with the same count, which is charged for both, if any.
    same_as: Option<usize>,
}

/// How the keys of a limit are looked up: `MemoryStore::keys` or `keys_for_read`.
type FindKeys = for<'a> fn(&MemoryStore, &'a mut Shard, &Limit, Timestamp) -> &'a mut Keys;
type Answers = SmallVec<[Answer; 8]>;
type Locations = SmallVec<[Location; 8]>;
/// The states of keys before they were charged, by the index of the ask; `None` if a refund restores the state.
type Saved = SmallVec<[(usize, Option<Box<dyn Any>>); 4]>;
type Locked<'a> = SmallVec<[(usize, MutexGuard<'a, Shard>); 8]>;

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
            shards: Shards::new(options.shard_count(), Shard::default),
            budget: options.budget(),
            on_full: options.full(),
            changes: Changes::default(),
        }
    }

    /// The number of stored keys over all limits.
    pub fn len(&self) -> usize {
        self.shards.each().map(|shard| shard.limits.values().map(|limit| limit.keys.len()).sum::<usize>()).sum()
    }

    /// Returns `true` if no key is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory of the keys in bytes.
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
        for shard in self.shards.each() {
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
        for mut shard in self.shards.each() {
            shard.limits.values_mut().for_each(|limit| limit.keys.reclaim(now));
        }
    }

    /// Decides a single ask, like [`decide`](LocalStore::decide) with a list of one. This is the most common case, and
    /// needs neither a second lookup nor a list of answers.
    pub fn decide_one(&self, ask: Ask<'_>, now: Timestamp, max_wait: MaxWait) -> Answer {
        let hash = self.shards.hash_bytes(ask.key);
        let mut shard = self.shards.lock(hash);
        let max_wait = max_wait.min(ask.max_wait);
        self.keys(&mut shard, ask.limit, now).take(hash, now, ask.cost, max_wait)
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
        self.keys(&mut shard, ask.limit, now).take_since(hash, since, now, ask.cost, max_wait)
    }

    /// Reports the result of one response for `key` to `limit`. Only an [adaptive](crate::Adaptive) limit uses it.
    pub fn observe(&self, limit: &Limit, key: &[u8], now: Timestamp, sample: &Sample) {
        let hash = self.shards.hash_bytes(key);
        let mut shard = self.shards.lock(hash);
        let known = shard.limits.contains_key(&limit.id());
        // A late sample does not recreate a limit that was dropped.
        if known && self.keys(&mut shard, limit, now).is_of_kind(limit.erased()) {
            self.keys(&mut shard, limit, now).observe(hash, now, sample);
        }
    }

    /// Finds the location of each ask, and which asks use the same count.
    fn locate(&self, asks: &[Ask<'_>]) -> Locations {
        let mut locations = Locations::with_capacity(asks.len());
        for (index, ask) in asks.iter().enumerate() {
            let hash = self.shards.hash_bytes(ask.key);
            let same_as = asks[..index].iter().position(|earlier| earlier.same_count(ask));
            locations.push(Location { hash, shard: self.shards.index(hash), same_as });
        }
        locations
    }

    /// Locks every shard of `locations`, in ascending order.
    fn lock(&self, locations: &Locations) -> Locked<'_> {
        let mut indexes: SmallVec<[usize; 8]> = locations.iter().map(|location| location.shard).collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes.into_iter().map(|index| (index, self.shards.lock_at(index))).collect()
    }

    /// The keys of `limit` in a shard, for a change: if memory is short, this also scans for keys to drop.
    fn keys<'a>(&self, shard: &'a mut Shard, limit: &Limit, now: Timestamp) -> &'a mut Keys {
        if self.budget.is_short() {
            shard.sweep_some(now);
        }
        self.keys_for_read(shard, limit, now)
    }

    /// The keys of `limit` in a shard: created if they are new, changed if the limit has changed.
    ///
    /// A read may be for a future time, so it drops nothing.
    fn keys_for_read<'a>(&self, shard: &'a mut Shard, limit: &Limit, now: Timestamp) -> &'a mut Keys {
        let entry = shard.limits.entry(limit.id()).or_insert_with(|| {
            shard.order.push(limit.id());
            let (first, changes) = self.changes.begin(limit, now);
            let mut keys = Keys::new(first.erased(), self.on_full, Arc::clone(&self.budget));
            for (changed, at) in changes {
                keys.change_to(changed.erased(), self.on_full, &self.budget, at);
            }
            LimitKeys { version: limit.version(), keys }
        });
        if entry.version < limit.version() {
            for (changed, at) in self.changes.since(entry.version, limit, now) {
                entry.keys.change_to(changed.erased(), self.on_full, &self.budget, at);
            }
            entry.version = limit.version();
        }
        &mut entry.keys
    }

    /// Calls `ask` for each ask; one with the same count as an earlier one gets that one's answer.
    fn answers(
        &self,
        find: FindKeys,
        asks: &[Ask<'_>],
        locations: &Locations,
        locked: &mut Locked<'_>,
        now: Timestamp,
        ask: impl Fn(&mut Keys, u64, Cost, MaxWait) -> Answer,
    ) -> Decision {
        let mut answers = Answers::with_capacity(asks.len());
        for (index, location) in locations.iter().enumerate() {
            let answer = match location.same_as {
                Some(first) => answers[first],
                None => {
                    let keys = find(self, shard_of(locked, location), asks[index].limit, now);
                    let (cost, own_max_wait) = charge_of(asks, locations, index);
                    ask(keys, location.hash, cost, own_max_wait)
                }
            };
            answers.push(answer);
        }
        Decision::from(answers)
    }

    /// `decide` for more than one ask.
    fn decide_together(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        let locations = self.locate(asks);
        let mut locked = self.lock(&locations);
        let peek = |keys: &mut Keys, hash, cost, own: MaxWait| keys.peek(hash, now, cost, own.min(max_wait));
        let all_grant = locations.iter().enumerate().all(|(index, location)| {
            let (cost, own_max_wait) = charge_of(asks, &locations, index);
            location.same_as.is_some()
                || self.keys(shard_of(&mut locked, location), asks[index].limit, now).grants(
                    location.hash,
                    now,
                    cost,
                    own_max_wait.min(max_wait),
                )
        });
        if !all_grant {
            let peeked = self.answers(Self::keys, asks, &locations, &mut locked, now, peek);
            // In a table that was full, the second lookup may have freed memory.
            if !peeked.is_granted() {
                return peeked;
            }
        }
        // Near the bound there may be memory for one new key but not for two, which is known only while charging.
        let mut saved = Saved::new();
        if self.budget.is_nearly_used_up() {
            for (index, location) in locations.iter().enumerate().filter(|(_, location)| location.same_as.is_none()) {
                let keys = self.keys(shard_of(&mut locked, location), asks[index].limit, now);
                saved.push((index, keys.save(location.hash, now)));
            }
        }
        let take = |keys: &mut Keys, hash, cost, own: MaxWait| keys.take(hash, now, cost, own.min(max_wait));
        let taken = self.answers(Self::keys, asks, &locations, &mut locked, now, take);
        if taken.is_granted() {
            return taken;
        }
        if saved.is_empty() {
            // One key's heap memory exceeded all free memory.
            self.refund_locked(asks, &locations, &mut locked, &taken, now);
        }
        for (index, before) in saved {
            let location = &locations[index];
            let keys = self.keys(shard_of(&mut locked, location), asks[index].limit, now);
            match (before, taken.answers()[index].receipt()) {
                (Some(before), _) => keys.restore(location.hash, before, now),
                (None, Some(receipt)) => drop(keys.refund(location.hash, now, &receipt)),
                (None, None) => {}
            }
        }
        let restored = self.answers(Self::keys, asks, &locations, &mut locked, now, peek);
        let answers = restored.answers().iter().zip(taken.answers());
        Decision::new(answers.map(|(restored, taken)| if taken.is_granted() { *restored } else { *taken }))
    }

    fn refund_locked(
        &self,
        asks: &[Ask<'_>],
        locations: &Locations,
        locked: &mut Locked<'_>,
        decision: &Decision,
        now: Timestamp,
    ) {
        for ((ask, location), answer) in asks.iter().zip(locations).zip(decision.answers()) {
            let (None, Some(receipt)) = (location.same_as, answer.receipt()) else { continue };
            // A late refund does not recreate a limit that was dropped.
            if !shard_of(locked, location).limits.contains_key(&ask.limit.id()) {
                continue;
            }
            let keys = self.keys(shard_of(locked, location), ask.limit, now);
            // A receipt is valid only for the kind of algorithm that created it.
            if keys.is_of_kind(ask.limit.erased()) {
                keys.refund(location.hash, now, &receipt);
            }
        }
    }
}

/// What the ask at `index` is charged: the highest cost and the shortest maximum wait of all asks with its count.
fn charge_of(asks: &[Ask<'_>], locations: &Locations, index: usize) -> (Cost, MaxWait) {
    let same = asks.iter().zip(locations).filter(|(_, location)| location.same_as == Some(index));
    let Ask { cost, max_wait, .. } = asks[index];
    same.fold((cost, max_wait), |(cost, max_wait), (ask, _)| (cost.max(ask.cost), max_wait.min(ask.max_wait)))
}

/// The locked shard of a location.
fn shard_of<'a>(locked: &'a mut Locked<'_>, location: &Location) -> &'a mut Shard {
    let found = locked.iter_mut().find(|(shard, _)| *shard == location.shard);
    found.map_or_else(|| unreachable!("the shard of every location was locked"), |(_, shard)| shard)
}

impl LocalStore for MemoryStore {
    fn decide(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        if let [ask] = asks {
            return Decision::new([self.decide_one(*ask, now, max_wait)]);
        }
        self.decide_together(asks, now, max_wait)
    }

    fn peek(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        let locations = self.locate(asks);
        let mut locked = self.lock(&locations);
        let peek = |keys: &mut Keys, hash, cost, own: MaxWait| keys.peek(hash, now, cost, own.min(max_wait));
        self.answers(Self::keys_for_read, asks, &locations, &mut locked, now, peek)
    }

    fn refund(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) {
        if decision.is_granted() {
            let locations = self.locate(asks);
            let mut locked = self.lock(&locations);
            self.refund_locked(asks, &locations, &mut locked, decision, now);
        }
    }

    fn charge(&self, ask: Ask<'_>, now: Timestamp) {
        let hash = self.shards.hash_bytes(ask.key);
        let mut shard = self.shards.lock(hash);
        self.keys(&mut shard, ask.limit, now).charge(hash, now, ask.cost);
    }

    fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) {
        let hash = self.shards.hash_bytes(key);
        let mut shard = self.shards.lock(hash);
        self.keys(&mut shard, limit, now).reset(hash, now);
    }

    /// Keys are bounded like those of other limits; a new key that is denied for lack of memory is limited.
    fn throttle(
        &self,
        limit: &Limit,
        key: &[u8],
        call: &ClThrottle,
        now: Timestamp,
    ) -> Result<ClThrottleAnswer, StoreError> {
        let hash = self.shards.hash_bytes(key);
        let mut shard = self.shards.lock(hash);
        let table = self.keys(&mut shard, limit, now).table_of::<TimeDebt>();
        let table = table.ok_or_else(|| super::not_a_time_debt("memory", limit))?;
        let answer = table.update(hash, now, |state, now| state.throttle(call, now));
        Ok(answer.unwrap_or_else(|full| call.denied(full.retry_after)))
    }

    /// Drops all counts of a limit that is no longer used.
    fn forget(&self, limit: &Limit) {
        for mut shard in self.shards.each() {
            shard.limits.remove(&limit.id());
            shard.order.retain(|id| *id != limit.id());
        }
        self.changes.forget(limit.id());
    }
}
