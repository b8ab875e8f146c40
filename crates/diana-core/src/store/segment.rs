//! A small block of keys in hash order: the building block of a table.
//!
//! # How it works
//! Open addressing, with the entries in the order of their hashes. A hash's *home* is a slot in proportion to it, so
//! homes are in hash order as well, and an entry is at its home or a little to the right of it:
//!
//! ```text
//!   home of h = h × homes / 2³²
//!   ┌────┬────┬────┬────┬────┬────┬────┬────┬────┐
//!   │ 03 │    │ 1f │ 21 │ 22 │    │ 5a │ 5b │    │   search for 21: start at its home, step right,
//!   └────┴────┴────┴────┴────┴────┴────┴────┴────┘   stop at the first empty slot or larger hash
//! ```
//!
//! # Why not a standard hash map
//! Those double. A table that has just doubled is half empty, so over all sizes a key costs 1.7 times its entry, and
//! doubling copies everything at once. In a segment the number of homes is arbitrary (the home is a product, not a
//! mask), so it grows by a quarter and stays four fifths full; the order means that growing is one pass from left to
//! right, and that a search for an absent key ends early even when the segment is nearly full. A segment is small, so
//! no growth copies much.
//!
//! # What always holds (store/segment/tests.rs)
//! - Occupied slots are in the order of the low 32 bits of their hashes, none left of its home, no empty slot between
//!   an entry and its home.
//! - An entry's hash is not 0: that marks an empty slot.

use crate::Timestamp;
use std::mem;

/// One slot: a key's hash, and its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot<S> {
    hash: u64,
    pub(crate) state: S,
}

/// A block of keys in hash order.
#[derive(Debug)]
pub(crate) struct Segment<S> {
    slots: Box<[Slot<S>]>,
    homes: u32,
    len: u32,
    /// The version of the parameters of the states; see `Table::change`.
    pub(crate) version: u32,
    /// The number of directory bits that select this segment.
    pub(crate) depth: u32,
    /// When it was last scanned for states to drop.
    pub(crate) swept: Timestamp,
}

/// The segment must grow before it can take another key.
#[derive(Debug)]
pub(crate) struct Full;

/// The maximum number of homes; a larger segment splits in two.
pub(crate) const MAX_HOMES: u32 = 1024;
/// The number of homes of a new segment.
const MIN_HOMES: u32 = 8;

impl<S: Default> Segment<S> {
    /// Creates a segment without slots, which takes no memory.
    pub(crate) fn empty() -> Self {
        Self { slots: Box::default(), homes: 0, len: 0, version: 0, depth: 0, swept: Timestamp::EPOCH }
    }

    /// Creates a segment with `homes` homes and `count` slots: some are after the last home, for displaced entries.
    fn with_slots(homes: u32, count: usize, version: u32, depth: u32) -> Self {
        let slots = (0..count).map(|_| Slot::default()).collect();
        Self { slots, homes, len: 0, version, depth, swept: Timestamp::EPOCH }
    }

    /// Returns the usual size in bytes of a segment with `homes` homes.
    pub(crate) fn bytes_of(homes: u32) -> usize {
        slots_for(homes) * size_of::<Slot<S>>()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot<S>>()
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn homes(&self) -> u32 {
        self.homes
    }

    /// Returns the state of the key with `hash`.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, hash: u64) -> Option<&mut S> {
        let index = self.search(hash).ok()?;
        Some(&mut self.slots[index].state)
    }

    /// Returns the state of the key with `hash`.
    #[inline]
    pub(crate) fn get(&self, hash: u64) -> Option<&S> {
        let index = self.search(hash).ok()?;
        Some(&self.slots[index].state)
    }

    /// Returns `true` if it should grow before the next insertion: over nine tenths, probe sequences become long.
    pub(crate) fn is_full(&self) -> bool {
        u64::from(self.len) * 10 >= u64::from(self.homes) * 9
    }

    /// Inserts a key that is absent.
    pub(crate) fn insert(&mut self, hash: u64, state: S) -> Result<(), (Full, S)> {
        if self.is_full() {
            return Err((Full, state));
        }
        let (Ok(index) | Err(index)) = self.search(hash);
        let Some(run) = self.slots[index..].iter().position(|slot| slot.hash == 0) else { return Err((Full, state)) };
        let mut displaced = Slot { hash, state };
        for slot in &mut self.slots[index..=index + run] {
            mem::swap(slot, &mut displaced);
        }
        self.len += 1;
        Ok(())
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, hash: u64) -> Option<S> {
        let mut index = self.search(hash).ok()?;
        let removed = mem::take(&mut self.slots[index]);
        while index + 1 < self.slots.len() && self.slots[index + 1].hash != 0 && self.home_of(index + 1) <= index {
            self.slots.swap(index, index + 1);
            index += 1;
        }
        self.len -= 1;
        Some(removed.state)
    }

    /// Drops every key for which `keep` returns `false`.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut S) -> bool) {
        // Remaining entries can only move left, so one pass in place is enough.
        let (mut next, mut len) = (0, 0);
        for index in 0..self.slots.len() {
            if self.slots[index].hash == 0 {
                continue;
            }
            if keep(&mut self.slots[index].state) {
                let target = next.max(self.home_of(index));
                self.slots.swap(target, index);
                next = target + 1;
                len += 1;
            } else {
                self.slots[index] = Slot::default();
            }
        }
        self.len = len;
    }

    /// Returns all keys and their states, in hash order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut S)> {
        self.slots.iter_mut().filter(|slot| slot.hash != 0).map(|slot| (slot.hash, &mut slot.state))
    }

    /// Takes all entries out, in hash order.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (u64, S)> {
        self.slots.into_iter().filter(|slot| slot.hash != 0).map(|slot| (slot.hash, slot.state))
    }

    /// Returns the same keys in a segment with `homes` homes.
    pub(crate) fn resized(self, homes: u32) -> Self {
        let (version, depth) = (self.version, self.depth);
        let mut target = SegmentBuilder::new(self.hashes(), homes, version, depth);
        for (hash, state) in self.into_entries() {
            target.append(hash, state);
        }
        target.segment
    }

    /// Splits the keys into two segments: those without and those with `bit` in their hash.
    pub(crate) fn split(self, bit: u64) -> (Self, Self) {
        let (version, depth) = (self.version, self.depth + 1);
        let ones = self.hashes().filter(|hash| hash & bit != 0).count();
        let ones = u32::try_from(ones).unwrap_or(self.len);
        let zeros = self.len - ones;
        let mut without =
            SegmentBuilder::new(self.hashes().filter(|hash| hash & bit == 0), Self::homes_for(zeros), version, depth);
        let mut with =
            SegmentBuilder::new(self.hashes().filter(|hash| hash & bit != 0), Self::homes_for(ones), version, depth);
        for (hash, state) in self.into_entries() {
            if hash & bit == 0 { without.append(hash, state) } else { with.append(hash, state) }
        }
        (without.segment, with.segment)
    }

    fn hashes(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().map(|slot| slot.hash).filter(|hash| *hash != 0)
    }

    /// Returns the next larger size: double while small, then by a quarter. `None` if that is too large, and it must split.
    pub(crate) fn next_homes(&self) -> Option<u32> {
        let homes = if self.homes < 64 { (self.homes * 2).max(MIN_HOMES) } else { self.homes + self.homes / 4 };
        (homes <= MAX_HOMES).then_some(homes)
    }

    /// Returns the bytes of the next larger size, or of both halves of a split.
    pub(crate) fn bytes_to_grow(&self) -> usize {
        let half = Self::homes_for(self.len / 2 + 1);
        self.next_homes().map_or(2 * Self::bytes_of(half), Self::bytes_of)
    }

    /// Returns the size at which `len` keys take three quarters of the homes.
    pub(crate) fn homes_for(len: u32) -> u32 {
        (len + len / 3 + 1).max(MIN_HOMES)
    }

    /// Returns the slot of the key with `hash`, or the slot at which to insert it.
    #[inline(always)]
    fn search(&self, hash: u64) -> Result<usize, usize> {
        let mut index = home(hash, self.homes);
        while let Some(slot) = self.slots.get(index) {
            if slot.hash == hash {
                return Ok(index);
            }
            if slot.hash == 0 || order(slot.hash) > order(hash) {
                break;
            }
            index += 1;
        }
        Err(index)
    }

    fn home_of(&self, index: usize) -> usize {
        home(self.slots[index].hash, self.homes)
    }
}

/// A segment that is being filled from left to right, in hash order.
struct SegmentBuilder<S> {
    segment: Segment<S>,
    end: usize,
}

impl<S: Default> SegmentBuilder<S> {
    /// Creates an empty segment with slots for all of `hashes` and a few more.
    fn new(hashes: impl Iterator<Item = u64>, homes: u32, version: u32, depth: u32) -> Self {
        let end = hashes.fold(0, |end, hash| home(hash, homes).max(end) + 1);
        let slots = if homes == 0 { 0 } else { slots_for(homes).max(end + 4) };
        Self { segment: Segment::with_slots(homes, slots, version, depth), end: 0 }
    }

    fn append(&mut self, hash: u64, state: S) {
        let index = home(hash, self.segment.homes).max(self.end);
        self.segment.slots[index] = Slot { hash, state };
        self.segment.len += 1;
        self.end = index + 1;
    }
}

/// Returns the number of slots for `homes` homes.
fn slots_for(homes: u32) -> usize {
    homes as usize + (homes as usize / 8).clamp(4, 24)
}

#[inline(always)]
fn home(hash: u64, homes: u32) -> usize {
    ((order(hash) * u64::from(homes)) >> 32) as usize
}

/// Returns the sort key of the entries; the other half of the hash selects the shard and the segment.
#[inline(always)]
fn order(hash: u64) -> u64 {
    hash & 0xffff_ffff
}

#[cfg(test)]
mod tests;
