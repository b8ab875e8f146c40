//! Keys in a form that outlives the process: a list of words for each.
//!
//! ```text
//!   hash │ permits in use │ number of words │ the state, as its algorithm encodes it
//! ```
//!
//! The state is exact if the parameters of the limit are the same when it is read. If they have changed, or if the
//! algorithm has no encoding, the permits in use are charged to a fresh state, as when a limit changes to another kind
//! of algorithm.

use super::limit_change::used;
use super::{Table, cell_mut, cell_of};
use crate::{Algorithm, Cost, Timestamp};

/// Replaces the number of words if the state has no encoding.
const NOT_ENCODED: u64 = u64::MAX;

/// One saved key.
#[derive(Debug)]
pub(crate) struct SavedKey<'a> {
    pub(crate) hash: u64,
    used: u64,
    state: Option<&'a [u64]>,
}

impl<'a> SavedKey<'a> {
    /// Reads the first key of `words`; returns it with the rest. `None` if the words are not those of a key.
    pub(crate) fn split_first(words: &'a [u64]) -> Option<(Self, &'a [u64])> {
        let (&[hash, used, count], rest) = words.split_first_chunk()?;
        if hash == 0 {
            return None;
        }
        if count == NOT_ENCODED {
            return Some((Self { hash, used, state: None }, rest));
        }
        let (state, rest) = rest.split_at_checked(usize::try_from(count).ok()?)?;
        Some((Self { hash, used, state: Some(state) }, rest))
    }

    /// Returns the key without its state, for a limit with other parameters.
    pub(crate) fn without_state(self) -> Self {
        Self { state: None, ..self }
    }
}

impl<A: Algorithm> Table<A> {
    /// Appends the keys of the segment at `index` that are still in use at `used_at`. Returns `false` if there is no
    /// such segment.
    ///
    /// A segment that splits keeps its index for one half, and the other half gets a higher one: saving segments in
    /// ascending order misses no key, even if the lock is released in between.
    pub(crate) fn save_segment(
        &mut self,
        index: usize,
        now: Timestamp,
        used_at: Timestamp,
        words: &mut Vec<u64>,
    ) -> bool {
        if index >= self.segments.len() || !self.algorithm.outlives_process() {
            return false;
        }
        self.refresh(index);
        let now = self.latest.max(now);
        for (hash, state) in self.segments[index].iter_mut() {
            if self.algorithm.is_fresh(state, used_at) {
                continue;
            }
            words.extend([hash, used(&self.algorithm, state, now), NOT_ENCODED]);
            let start = words.len();
            if self.algorithm.encode(state, words) {
                words[start - 1] = (words.len() - start) as u64;
            } else {
                words.truncate(start);
            }
        }
        true
    }

    /// Adds a saved key, unless it is in use already. Returns `false` if its state is not one of this algorithm.
    pub(crate) fn load(&mut self, key: &SavedKey<'_>, now: Timestamp) -> bool {
        let now = self.tick(now);
        let state = match key.state {
            Some(words) => self.algorithm.decode(words),
            None => Some(self.algorithm.occupied(key.used, now)),
        };
        let Some(state) = state else { return false };
        let index = self.touch(key.hash);
        if self.segments[index].get(key.hash).is_some() || self.algorithm.is_fresh(&state, now) {
            return true;
        }
        if let Err(state) = self.insert(key.hash, state, now) {
            // The memory bound is lower now. The key shares a count with others, which is never more than the limit.
            let cost = Cost::new(used(&self.algorithm, &state, now));
            let cell = cell_mut(&mut self.cells, &self.algorithm, now, cell_of(key.hash));
            let before = self.algorithm.heap_bytes(cell);
            if let Ok(cost) = cost {
                self.algorithm.charge(cell, now, cost);
            }
            let after = self.algorithm.heap_bytes(cell);
            self.account(before, after);
        }
        true
    }
}
