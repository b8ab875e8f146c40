//! The most frequent keys of a stream in bounded memory: the Space-Saving algorithm (Metwally, Agrawal, El Abbadi, 2005).
//!
//! ```text
//!  counters   alice 900   bob 410   carol 7   dave 7     full, and `erin` is not counted yet:
//!                                   └── the lowest        she replaces carol, as `erin 8`, of which 7 may be wrong
//! ```
//!
//! # What always holds (the tests below)
//! - A count is never too low, and too high by at most `error`, which is at most the total divided by [`COUNTERS`].
//! - Every key with more than that share of the total has a counter.
//! - Counters of several periods that are merged are wrong by at most twice as much, in either direction.
//! - Nothing is allocated after the first key, and the memory does not depend on the number of keys.

/// The number of keys that are counted at the same time.
pub(super) const COUNTERS: usize = 64;
/// The bytes of a key's text that are kept: enough for an IPv6 address or a UUID.
pub(super) const MAX_TEXT: usize = 46;
/// The slots of the index: twice the counters, so that a search is short.
const SLOTS: usize = 2 * COUNTERS;
/// The top bits of a hash select the slot.
const SLOT_SHIFT: u32 = u64::BITS - SLOTS.trailing_zeros();

/// The count of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    /// The hash identifies the key; its text is only shown.
    pub(super) hash: u64,
    pub(super) count: u64,
    /// How much of the count may belong to keys that had this counter before.
    pub(super) error: u64,
    /// The number of the short period in which it was first counted.
    pub(super) since: u64,
    text: [u8; MAX_TEXT],
    length: u8,
    pub(super) is_cut: bool,
}

impl Counter {
    fn new(hash: u64, key: &[u8], count: u64, since: u64) -> Self {
        let kept = &key[..key.len().min(MAX_TEXT)];
        let mut text = [0; MAX_TEXT];
        text[..kept.len()].copy_from_slice(kept);
        let length = u8::try_from(kept.len()).unwrap_or_default();
        Self { hash, count, error: 0, since, text, length, is_cut: key.len() > MAX_TEXT }
    }

    /// Returns the key, or as much of it as is kept.
    pub(super) fn text(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

/// The counters of the most frequent keys.
#[derive(Clone, Debug)]
pub(super) struct SpaceSaving {
    /// The number of the current short period, for new counters.
    period: u64,
    total: u64,
    /// The amount by which the count of a key may be too low, since a merged period had no counter for it.
    missed: u64,
    counters: Vec<Counter>,
    /// The number of a counter, plus one, at the slot of its hash or one of those after it; 0 is an empty slot.
    index: [u8; SLOTS],
    /// The lower bound of all counts.
    floor: u64,
    /// Where the search for the lowest count goes on.
    cursor: usize,
}

impl SpaceSaving {
    pub(super) fn new(period: u64) -> Self {
        Self { period, total: 0, missed: 0, counters: Vec::new(), index: [0; SLOTS], floor: 0, cursor: 0 }
    }

    /// Counts a key. Returns `true` if it had no counter before.
    #[inline]
    pub(super) fn add(&mut self, hash: u64, key: &[u8], weight: u64) -> bool {
        self.total += weight;
        let slot = match self.find(hash) {
            Ok(counter) => {
                self.counters[counter].count += weight;
                return false;
            }
            Err(slot) => slot,
        };
        self.insert(Counter::new(hash, key, weight, self.period), slot);
        true
    }

    /// Adds the counters of a later period, and its total.
    pub(super) fn merge(&mut self, counters: &[Counter], total: u64) {
        self.total += total;
        self.missed += missing(counters);
        for counter in counters {
            match self.find(counter.hash) {
                Ok(known) => {
                    self.counters[known].count += counter.count;
                    self.counters[known].error += counter.error;
                }
                Err(slot) => self.insert(*counter, slot),
            }
        }
    }

    /// Removes all counters, and begins a period; their memory is kept.
    pub(super) fn clear(&mut self, period: u64) {
        self.period = period;
        self.counters.clear();
        self.index = [0; SLOTS];
        (self.total, self.missed, self.floor, self.cursor) = (0, 0, 0, 0);
    }

    /// Returns the sum of all weights.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the counters, in no order.
    pub(super) fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// Returns by how much a count may be too low, since a merged period had no counter for its key.
    pub(super) fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the counter of a hash, or the empty slot for it.
    #[inline]
    fn find(&self, hash: u64) -> Result<usize, usize> {
        let mut slot = slot_of(hash);
        // Half of the slots are empty, so this ends.
        loop {
            let counter = match self.index[slot] {
                0 => return Err(slot),
                number => usize::from(number) - 1,
            };
            if self.counters.get(counter).is_some_and(|counter| counter.hash == hash) {
                return Ok(counter);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    #[cold]
    fn insert(&mut self, new: Counter, slot: usize) {
        if self.counters.len() < COUNTERS {
            self.counters.reserve_exact(COUNTERS - self.counters.len());
            self.counters.push(new);
            self.index[slot] = u8::try_from(self.counters.len()).unwrap_or_default();
            return;
        }
        let lowest = self.lowest();
        let Counter { hash, count, .. } = self.counters[lowest];
        self.remove_from_index(hash);
        self.counters[lowest] = Counter { count: count + new.count, error: count + new.error, ..new };
        if let Err(slot) = self.find(new.hash) {
            self.index[slot] = u8::try_from(lowest + 1).unwrap_or_default();
        }
    }

    /// Returns the counter with the lowest count. While keys are only replaced, all counters get the lowest count in turn,
    /// so that a search takes one step on average.
    fn lowest(&mut self) -> usize {
        for _ in 0..self.counters.len() {
            let at = self.cursor;
            self.cursor = (at + 1) % self.counters.len();
            if self.counters[at].count <= self.floor {
                return at;
            }
        }
        let lowest = (0..self.counters.len()).min_by_key(|at| self.counters[*at].count).unwrap_or_default();
        self.floor = self.counters[lowest].count;
        self.cursor = (lowest + 1) % self.counters.len();
        lowest
    }

    /// Empties the slot of a hash, and moves those behind it so that a search still finds them.
    fn remove_from_index(&mut self, hash: u64) {
        let mut hole = slot_of(hash);
        while self.index[hole] != 0 && self.hash_at(hole) != Some(hash) {
            hole = (hole + 1) % SLOTS;
        }
        let mut slot = hole;
        loop {
            slot = (slot + 1) % SLOTS;
            let Some(hash) = self.hash_at(slot).filter(|_| self.index[slot] != 0) else { break };
            let distance = |from: usize| (slot + SLOTS - from) % SLOTS;
            // An entry may move to the hole if the hole is not before the slot of its hash.
            if distance(slot_of(hash)) >= distance(hole) {
                self.index[hole] = self.index[slot];
                hole = slot;
            }
        }
        self.index[hole] = 0;
    }

    fn hash_at(&self, slot: usize) -> Option<u64> {
        let counter = usize::from(self.index[slot]).checked_sub(1)?;
        Some(self.counters.get(counter)?.hash)
    }
}

/// Returns the highest count that a key may have that is not among these counters.
pub(super) fn missing(counters: &[Counter]) -> u64 {
    if counters.len() < COUNTERS {
        return 0;
    }
    counters.iter().map(|counter| counter.count).min().unwrap_or_default()
}

#[inline]
fn slot_of(hash: u64) -> usize {
    (hash >> SLOT_SHIFT) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    fn hash(key: u64) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
    }

    fn check(exact: &HashMap<u64, u64>, sketch: &SpaceSaving, max_error: u64) -> Result<(), TestCaseError> {
        let total = exact.values().sum::<u64>();
        prop_assert_eq!(sketch.total(), total);
        let counted = sketch.counters().iter().map(|counter| (counter.hash, counter)).collect::<HashMap<_, _>>();
        prop_assert_eq!(counted.len(), sketch.counters().len(), "one counter for each key");
        for (key, count) in exact {
            match counted.get(&hash(*key)) {
                Some(counter) => {
                    prop_assert!(counter.count >= *count && counter.count - counter.error <= *count);
                    prop_assert!(counter.error <= max_error, "{} of {total}", counter.error);
                }
                None => prop_assert!(*count <= missing(sketch.counters()) && *count <= max_error),
            }
        }
        Ok(())
    }

    /// Returns a few frequent keys among many rare ones.
    fn keys() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let key = prop_oneof![0..10_u64, 0..80_u64, 0..10_000_u64];
        prop::collection::vec((key, 1..5_u64), 0..3_000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_count_is_wrong_by_at_most_a_64th_of_the_total(stream in keys()) {
            let (mut sketch, mut exact) = (SpaceSaving::new(0), HashMap::new());
            for (key, weight) in stream {
                let is_new = !sketch.counters().iter().any(|counter| counter.hash == hash(key));
                prop_assert_eq!(sketch.add(hash(key), &key.to_be_bytes(), weight), is_new);
                *exact.entry(key).or_default() += weight;
            }
            check(&exact, &sketch, sketch.total() / COUNTERS as u64)?;
        }

        #[test]
        fn a_merged_count_is_wrong_by_at_most_a_32nd_of_the_total(streams in prop::collection::vec(keys(), 1..6)) {
            let (mut merged, mut exact) = (SpaceSaving::new(0), HashMap::new());
            for stream in streams {
                let mut sketch = SpaceSaving::new(0);
                for (key, weight) in stream {
                    sketch.add(hash(key), &key.to_be_bytes(), weight);
                    *exact.entry(key).or_default() += weight;
                }
                merged.merge(sketch.counters(), sketch.total());
            }
            // A key that a period did not count is missing there by at most a 64th of that period's total, too.
            for (key, count) in &exact {
                let counter = merged.counters().iter().find(|counter| counter.hash == hash(*key));
                let counted = counter.map_or(0, |counter| counter.count);
                prop_assert!(counted.abs_diff(*count) <= merged.total() / (COUNTERS as u64 / 2));
            }
        }
    }

    #[test]
    fn a_long_key_is_cut_but_not_confused_with_another() {
        let (one, other) = ([b'a'; MAX_TEXT + 1], [b'a'; MAX_TEXT + 2]);
        let mut sketch = SpaceSaving::new(0);
        sketch.add(hash(1), &one, 1);
        sketch.add(hash(2), &other, 1);
        sketch.add(hash(3), b"alice", 1);
        let [one, other, alice] = sketch.counters() else { panic!("three keys") };
        assert_eq!((one.text(), one.is_cut, other.text()), (&[b'a'; MAX_TEXT][..], true, &[b'a'; MAX_TEXT][..]));
        assert_eq!((alice.text(), alice.is_cut), (&b"alice"[..], false));
    }

    #[test]
    fn replacing_rare_keys_takes_few_steps() {
        let mut sketch = SpaceSaving::new(0);
        for key in 0..100_000 {
            sketch.add(hash(key), b"", 1);
        }
        let counts = sketch.counters().iter().map(|counter| counter.count);
        let (lowest, highest) = counts.fold((u64::MAX, 0), |(low, high), count| (low.min(count), high.max(count)));
        assert!(highest - lowest <= 1, "each counter is replaced in turn: {lowest} to {highest}");
    }
}
