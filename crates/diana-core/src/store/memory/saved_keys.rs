//! Saving the keys of a limit, and loading them into the store of a later process.
//!
//! # What always holds (tests/it/saved_keys.rs)
//! - A loaded key answers as the saved one would have, to the nanosecond, if the limit has the same parameters. With
//!   other parameters it has the same number of permits in use, at most as many as its limit allows.
//! - Saving holds one lock for a thousand keys at a time, so that no decision waits long.

use super::super::siphash::SipKeys;
use super::super::table::SavedKey;
use super::MemoryStore;
use crate::{Limit, LocalStore as _, Timestamp};
use std::fmt;

/// The keys of the hash by which a store identifies keys. A secret: with it, a client can choose keys that share a count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashSecret(pub [u64; 2]);

impl fmt::Debug for HashSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSecret(..)")
    }
}

impl From<HashSecret> for SipKeys {
    fn from(keys: HashSecret) -> Self {
        Self::new(keys.0)
    }
}

/// The words are not saved keys of this limit. None of them was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the saved keys of a limit")]
pub struct InvalidSavedKeys;

/// Counts the keys in a piece that [`MemoryStore::save`] has returned.
pub fn saved_key_count(piece: &[u64]) -> usize {
    std::iter::successors(SavedKey::split_first(piece), |(_, rest)| SavedKey::split_first(rest)).count()
}

impl MemoryStore {
    /// Returns the keys of the hash; a store that loads saved keys must be [created](super::TableOptions::hash_secret) with them.
    pub fn hash_secret(&self) -> HashSecret {
        HashSecret(self.shards.hash_secret())
    }

    /// Returns the keys of `limit` that are still in use at `used_at`, in pieces for [`load`](Self::load). Permits that
    /// running requests hold, and counts that keys share because the memory is full, are left out.
    ///
    /// Each piece is made when it is asked for, and decisions are made meanwhile: a key is saved as it is at that time.
    ///
    /// ```
    /// use diana_core::{Ask, Limit, LocalStore, MaxWait, MemoryStore, Quota, TableOptions, Timestamp, TokenBucket};
    ///
    /// let (limit, now) = (Limit::new("each-account", TokenBucket::new(Quota::per_hour(1)?)), Timestamp::from_secs(1));
    /// let store = MemoryStore::default();
    /// assert!(store.decide(&[Ask::one(&limit, "alice")], now, MaxWait::NONE).is_granted());
    ///
    /// let later = MemoryStore::new(TableOptions::default().hash_secret(store.hash_secret()));
    /// for piece in store.save(&limit, now, now) {
    ///     later.load(&limit, &limit.parameters(), &piece, now)?;
    /// }
    /// assert!(!later.decide(&[Ask::one(&limit, "alice")], now, MaxWait::NONE).is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save(&self, limit: &Limit, now: Timestamp, used_at: Timestamp) -> impl Iterator<Item = Vec<u64>> {
        let (id, mut shard, mut segment) = (limit.id(), 0, 0);
        std::iter::from_fn(move || {
            while shard < self.shards.len() {
                let mut words = Vec::new();
                let is_saved = self
                    .shards
                    .lock_at(shard)
                    .limits
                    .get_mut(&id)
                    .is_some_and(|limit| limit.keys.save_segment(segment, now, used_at, &mut words));
                (shard, segment) = if is_saved { (shard, segment + 1) } else { (shard + 1, 0) };
                if !words.is_empty() {
                    return Some(words);
                }
            }
            None
        })
    }

    /// Loads a piece of the keys that [`save`](Self::save) has returned for a limit with these
    /// [parameters](Limit::parameters), and returns their number. Keys that are in use already stay as they are.
    pub fn load(
        &self,
        limit: &Limit,
        parameters: &str,
        words: &[u64],
        now: Timestamp,
    ) -> Result<usize, InvalidSavedKeys> {
        let has_changed = parameters != limit.parameters();
        let (mut rest, mut keys) = (words, Vec::new());
        while !rest.is_empty() {
            let (key, after) = SavedKey::split_first(rest).ok_or(InvalidSavedKeys)?;
            keys.push(if has_changed { key.without_state() } else { key });
            rest = after;
        }
        for key in &keys {
            let mut shard = self.shards.lock(key.hash);
            if !self.keys(&mut shard, limit, now).load(key, now) {
                drop(shard);
                self.forget(limit);
                return Err(InvalidSavedKeys);
            }
        }
        Ok(keys.len())
    }
}
