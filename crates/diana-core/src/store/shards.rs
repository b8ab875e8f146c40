//! Many locks instead of one, and the hash that chooses among them.

use crate::sync::{Mutex, MutexGuard};
use std::hash::{BuildHasher, Hash};

/// The hash of keys. Random for each process, so that nobody outside can make keys collide; fixed under the model
/// checkers, which must be able to repeat a run.
#[cfg(not(any(loom, shuttle)))]
type Hasher = std::hash::RandomState;
#[cfg(any(loom, shuttle))]
type Hasher = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// The top bits choose the shard; the rest is the table's.
const SHARD_SHIFT: u32 = 56;
/// As many shards as the bits above can tell apart.
const MAX_SHARDS: usize = 256;

/// Things behind locks of their own, each on cache lines of its own.
#[derive(Debug)]
pub(crate) struct Shards<T> {
    shards: Box<[Padded<T>]>,
    hasher: Hasher,
}

/// Two cache lines each, since the prefetcher fetches them in pairs: neighbours' locks must not travel with ours.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(Mutex<T>);

impl<T> Shards<T> {
    /// At least `count` shards, a power of two.
    pub(crate) fn new(count: usize, make: impl FnMut() -> T) -> Self {
        let count = count.min(MAX_SHARDS).next_power_of_two();
        let shards = std::iter::repeat_with(make).take(count).map(|value| Padded(Mutex::new(value))).collect();
        Self { shards, hasher: Hasher::default() }
    }

    /// The 64 bits that stand for `key`. Never 0, which marks an empty place.
    #[inline(always)]
    pub(crate) fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        self.hasher.hash_one(key).max(1)
    }

    /// Which shard a hash belongs to.
    #[inline(always)]
    pub(crate) fn index(&self, hash: u64) -> usize {
        (hash >> SHARD_SHIFT) as usize & (self.shards.len() - 1)
    }

    /// The shard that `hash` belongs to.
    #[inline(always)]
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, T> {
        self.lock_at(self.index(hash))
    }

    /// The shard at `index`. Who locks several locks them in ascending order.
    #[inline(always)]
    pub(crate) fn lock_at(&self, index: usize) -> MutexGuard<'_, T> {
        self.shards[index].0.lock()
    }

    /// Every shard, one after the other.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.shards.iter().map(|shard| shard.0.lock())
    }
}
