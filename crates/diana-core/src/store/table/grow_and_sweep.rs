//! Space for keys: growing and splitting while memory is available, sweeping when it is not.
//!
//! Every byte is accounted: a segment before it is created, a state's heap memory when it changes. A segment is swept
//! before it grows, since it may not need to. At the memory bound each new key pays for checking a few entries, so that
//! a flood of invented keys costs little per key and still finds the keys that are full again.

use super::super::segment::{Full, Segment};
use super::{DIRECTORY_SHIFT, Table};
use crate::{Algorithm, Timestamp};
use std::time::Duration;

/// The number of entries that each new key pays to check for states to drop.
const CHECKS_PER_INSERT: usize = 4;
/// A segment with this few keys grows without a sweep: that would save little, and its keys may soon be used again.
const SMALL_SEGMENT: u32 = 48;
/// After this time a full segment is likely to have states to drop.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_millis(10);
/// A sweep is paid for with at least this many checks: in a small table, keys that are soon used again would otherwise
/// be dropped and inserted all the time.
const MIN_SWEEP_CREDIT: usize = 256;
/// The directory has at most this many bits.
const MAX_DEPTH: u32 = 24;

impl<A: Algorithm> Table<A> {
    /// Records that a state's heap memory went from `before` to `after` bytes; returns whether the budget allows it.
    pub(super) fn account(&mut self, before: usize, after: usize) -> bool {
        self.bytes = self.bytes.saturating_add(after).saturating_sub(before);
        if after > before {
            return self.budget.record(after - before);
        }
        self.budget.release(before - after);
        true
    }

    /// Inserts a new key, or returns its state if there is no memory.
    pub(super) fn insert(&mut self, hash: u64, state: A::State, now: Timestamp) -> Result<(), A::State> {
        let heap = self.algorithm.heap_bytes(&state);
        if heap > 0 && !self.budget.reserve(heap) && !self.make_room_for_heap(hash, heap, now) {
            return Err(state);
        }
        self.bytes += heap;
        let mut state = state;
        loop {
            let index = self.touch(hash);
            match self.segments[index].insert(hash, state) {
                Ok(()) => break,
                Err((Full, rejected)) if self.make_room(index, now) => state = rejected,
                Err((Full, rejected)) => {
                    self.account(heap, 0);
                    return Err(rejected);
                }
            }
        }
        self.len += 1;
        self.sweep_some(now);
        Ok(())
    }

    /// Pays a new key's share of the scan for states to drop; a segment is swept when enough checks are paid.
    pub(crate) fn sweep_some(&mut self, now: Timestamp) {
        let now = self.latest.max(now);
        self.sweep_credit += CHECKS_PER_INSERT;
        if self.sweep_credit > (self.segments[self.next_sweep].len() as usize).max(MIN_SWEEP_CREDIT) {
            self.sweep_credit = 0;
            self.sweep_next(now);
        }
    }

    /// Frees memory for the heap memory of a new key's state, by dropping states.
    #[cold]
    fn make_room_for_heap(&mut self, hash: u64, heap: usize, now: Timestamp) -> bool {
        let index = self.touch(hash);
        if !self.sweep_if_due(index, now) {
            return false;
        }
        if !self.budget.reserve(heap) {
            self.sweep_next(now);
            return self.budget.reserve(heap);
        }
        true
    }

    /// At the memory bound every new key would sweep its segment. It does so only if earlier keys have paid for the
    /// sweep, or if enough time has passed that it is likely to drop something.
    fn sweep_if_due(&mut self, index: usize, now: Timestamp) -> bool {
        self.sweep_credit += CHECKS_PER_INSERT;
        let is_paid = self.sweep_credit > self.segments[index].len() as usize;
        if !is_paid && now.since(self.segments[index].swept) < SWEEP_INTERVAL {
            return false;
        }
        self.sweep_credit = 0;
        self.sweep(index, now);
        true
    }

    /// Returns `true` if a new key would get an entry.
    pub(super) fn has_room(&mut self, hash: u64, now: Timestamp) -> bool {
        let index = self.touch(hash);
        !self.segments[index].is_full() || self.make_room(index, now)
    }

    /// Drops states from a full segment, or else grows or splits it. Returns `false` if the memory is used up.
    #[cold]
    pub(super) fn make_room(&mut self, index: usize, now: Timestamp) -> bool {
        let mut needed = self.segments[index].bytes_to_grow();
        if !self.budget.reserve(needed) {
            if !self.sweep_if_due(index, now) {
                return false;
            }
            if !self.segments[index].is_full() {
                return true;
            }
            // Nothing can be dropped from this segment, or it is empty without slots: another may have memory to free.
            self.sweep_next(now);
            needed = self.segments[index].bytes_to_grow();
            if !self.budget.reserve(needed) {
                return false;
            }
        }
        let (depth, next) = (self.segments[index].depth, self.segments[index].next_homes());
        self.bytes += needed;
        let before = self.segments[index].len();
        if before > SMALL_SEGMENT {
            self.sweep(index, now);
        }
        let dropped = before - self.segments[index].len();
        if dropped * 4 > before {
            self.bytes -= needed;
            self.budget.release(needed);
            return true;
        }
        let old = self.segments[index].bytes();
        let segment = std::mem::replace(&mut self.segments[index], Segment::empty());
        let new = match next {
            None if depth < MAX_DEPTH => self.split(index, segment),
            _ => {
                // Only hashes that agree in more bits than the directory has exceed the largest size.
                let homes = next.unwrap_or_else(|| segment.homes() + segment.homes() / 4);
                self.segments[index] = segment.resized(homes);
                self.segments[index].bytes()
            }
        };
        self.account(needed + old, new);
        true
    }

    /// Puts `segment` back as two, distinguished by one more bit; returns how many bytes they take.
    pub(super) fn split(&mut self, index: usize, segment: Segment<A::State>) -> usize {
        let depth = segment.depth;
        if self.directory.len() == 1 << depth {
            self.directory.extend_from_within(..);
        }
        let (zeros, ones) = segment.split(1 << (DIRECTORY_SHIFT + depth));
        let bytes = zeros.bytes() + ones.bytes();
        self.segments[index] = zeros;
        self.segments.push(ones);
        // The directory has at most 2^24 entries, and there are no more segments than entries.
        let (from, to) = (as_entry(index), as_entry(self.segments.len() - 1));
        for (position, entry) in self.directory.iter_mut().enumerate() {
            if *entry == from && position & (1 << depth) != 0 {
                *entry = to;
            }
        }
        bytes
    }

    /// Drops states from the next segment of the scan.
    pub(super) fn sweep_next(&mut self, now: Timestamp) {
        self.sweep(self.next_sweep, now);
        self.next_sweep = (self.next_sweep + 1) % self.segments.len();
    }

    /// Drops states from one segment, and releases memory that it no longer needs.
    pub(super) fn sweep(&mut self, index: usize, now: Timestamp) {
        self.refresh(index);
        let segment = &mut self.segments[index];
        let (before, mut freed) = (segment.len(), 0);
        segment.retain(|state| {
            let keep = !self.algorithm.is_fresh(state, now);
            if !keep {
                freed += self.algorithm.heap_bytes(state);
            }
            keep
        });
        let remaining = segment.len();
        self.len -= (before - remaining) as usize;
        let old = segment.bytes();
        if remaining * 3 < segment.homes() {
            let homes = if remaining == 0 { 0 } else { Segment::<A::State>::homes_for(remaining) };
            if homes < segment.homes() {
                let whole = std::mem::replace(segment, Segment::empty());
                *segment = whole.resized(homes);
            }
        }
        segment.swept = now;
        let new = segment.bytes();
        // The heap memory of idle cells is not needed either.
        for cell in self.cells.iter_mut().flatten() {
            let heap = self.algorithm.heap_bytes(cell);
            if heap > 0 && self.algorithm.is_fresh(cell, now) {
                *cell = self.algorithm.fresh(now);
                freed += heap - self.algorithm.heap_bytes(cell);
            }
        }
        self.account(freed + old, new);
    }

    /// Releases memory that a state has allocated and does not use: a clone has only the memory that it needs.
    pub(super) fn compact(&mut self, hash: u64) {
        let index = self.index(hash);
        let Some(state) = self.segments[index].get_mut(hash) else { return };
        let before = self.algorithm.heap_bytes(state);
        *state = state.clone();
        let after = self.algorithm.heap_bytes(state);
        self.account(before, after);
    }
}

fn as_entry(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
