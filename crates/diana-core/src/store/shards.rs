//! Sharded locks, and the hash that selects one.

use super::siphash::SipKeys;
use crate::sync::{Mutex, MutexGuard};
use std::hash::{BuildHasher, Hash, Hasher as _};

/// The top bits select the shard; the table uses the rest.
const SHARD_SHIFT: u32 = 56;
/// The number of shards that these bits can select.
pub(crate) const MAX_SHARDS: usize = 256;

/// Values with one lock each, each on its own cache lines.
#[derive(Debug)]
pub(crate) struct Shards<T> {
    shards: Box<[Padded<T>]>,
    hasher: SipKeys,
}

/// Two cache lines each, since the prefetcher fetches them in pairs: this avoids false sharing between locks.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(Mutex<T>);

impl<T> Shards<T> {
    /// Creates at least `count` shards, a power of two.
    pub(crate) fn new(count: usize, make: impl FnMut() -> T) -> Self {
        Self::with_keys(count, SipKeys::random(), make)
    }

    /// Creates at least `count` shards, a power of two, whose hash has these keys.
    pub(crate) fn with_keys(count: usize, hasher: SipKeys, make: impl FnMut() -> T) -> Self {
        let count = count.min(MAX_SHARDS).next_power_of_two();
        let shards = std::iter::repeat_with(make).take(count).map(|value| Padded(Mutex::new(value))).collect();
        Self { shards, hasher }
    }

    /// Returns the keys of the hash.
    pub(crate) fn hash_secret(&self) -> [u64; 2] {
        self.hasher.get()
    }

    /// Returns the number of shards.
    pub(crate) fn len(&self) -> usize {
        self.shards.len()
    }

    /// Returns the 64-bit hash of `key`. Never 0, which marks an empty slot.
    #[inline(always)]
    pub(crate) fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        self.hasher.hash_one(key).max(1)
    }

    /// Hashes a key of bytes, without the length that `Hash` adds to separate the parts of a compound key.
    #[inline(always)]
    pub(crate) fn hash_bytes(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish().max(1)
    }

    /// Returns the index of the shard of a hash.
    #[inline(always)]
    pub(crate) fn index(&self, hash: u64) -> usize {
        (hash >> SHARD_SHIFT) as usize & (self.shards.len() - 1)
    }

    /// Locks the shard of `hash`.
    #[inline(always)]
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, T> {
        self.lock_at(self.index(hash))
    }

    /// Locks the shard at `index`. To lock several, lock them in ascending order.
    #[inline(always)]
    pub(crate) fn lock_at(&self, index: usize) -> MutexGuard<'_, T> {
        self.shards[index].0.lock()
    }

    /// Locks each shard in turn.
    pub(crate) fn lock_each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.shards.iter().map(|shard| shard.0.lock())
    }
}
