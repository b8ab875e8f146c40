//! The floor: a token bucket in one atomic word and nothing else. No limiter that reads a clock and counts can be
//! faster.

#![allow(clippy::disallowed_types, reason = "a floor has std's lock, as anybody would write it")]

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The parameters and the clock; the state is the caller's.
pub(crate) struct BareCas {
    clock: quanta::Clock,
    start: u64,
    interval: u64,
    capacity: u64,
}

impl BareCas {
    /// Creates a bucket with one permit per `interval` nanoseconds, and a burst of `burst`.
    pub(crate) fn new(interval: u64, burst: u64) -> Self {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        Self { clock, start, interval, capacity: interval * burst }
    }

    /// Returns the time since it was created, in nanoseconds.
    #[inline]
    fn now(&self) -> u64 {
        self.clock.delta_as_nanos(self.start, self.clock.raw())
    }

    /// Takes one permit from `full_at`, without waiting.
    #[inline]
    pub(crate) fn check(&self, full_at: &AtomicU64) -> bool {
        let now = self.now();
        let mut current = full_at.load(Ordering::Relaxed);
        loop {
            let next = current.max(now) + self.interval;
            if next > now + self.capacity {
                return false;
            }
            match full_at.compare_exchange_weak(current, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => current = other,
            }
        }
    }
}

/// The least that a table of keys does: entries of a hash and a time, in hash order, so that different keys share cache
/// lines. Nothing is searched: the position of each key is known.
pub(crate) struct BareTable {
    hasher: RandomState,
    /// The shard and the position of each key.
    positions: Vec<(usize, usize)>,
    /// Without locks.
    entries: Vec<Vec<[AtomicU64; 2]>>,
    /// The same with a lock for each shard.
    locked: Vec<Shard>,
}

/// On its own cache lines.
#[repr(align(128))]
struct Shard(Mutex<Vec<[u64; 2]>>);

/// As many as Diana's tables have.
const SHARDS: usize = 64;

impl BareTable {
    /// Creates a table of `keys`, which are then given by their index.
    pub(crate) fn new(keys: &[String]) -> Self {
        let hasher = RandomState::new();
        let shard_of = |hash: u64| (hash >> 56) as usize % SHARDS;
        let mut hashes = vec![Vec::new(); SHARDS];
        for hash in keys.iter().map(|key| hasher.hash_one(key)) {
            hashes[shard_of(hash)].push(hash);
        }
        hashes.iter_mut().for_each(|hashes| hashes.sort_unstable());
        let position = |key: &String| {
            let hash = hasher.hash_one(key);
            (shard_of(hash), hashes[shard_of(hash)].binary_search(&hash).unwrap())
        };
        let positions = keys.iter().map(position).collect();
        let entries = hashes.iter().map(|hashes| hashes.iter().map(|hash| [(*hash).into(), 0.into()]).collect());
        let locked = hashes.iter().map(|hashes| Shard(Mutex::new(hashes.iter().map(|hash| [*hash, 0]).collect())));
        Self { entries: entries.collect(), locked: locked.collect(), positions, hasher }
    }

    /// Hashes the key, compares the hash, and takes one permit by compare-and-swap.
    #[inline]
    pub(crate) fn check(&self, bucket: &BareCas, key: &String, index: usize) -> bool {
        let (shard, position) = self.positions[index];
        let [hash, full_at] = &self.entries[shard][position];
        hash.load(Ordering::Acquire) == self.hasher.hash_one(key) && bucket.check(full_at)
    }

    /// The same under the lock of the key's shard.
    #[inline]
    pub(crate) fn check_locked(&self, bucket: &BareCas, key: &String, index: usize) -> bool {
        let (shard, position) = self.positions[index];
        let (key_hash, now) = (self.hasher.hash_one(key), bucket.now());
        let mut entries = self.locked[shard].0.lock().unwrap();
        let [hash, full_at] = &mut entries[position];
        let next = (*full_at).max(now) + bucket.interval;
        let granted = *hash == key_hash && next <= now + bucket.capacity;
        if granted {
            *full_at = next;
        }
        granted
    }
}
