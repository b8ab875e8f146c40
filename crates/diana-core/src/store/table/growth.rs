//! Room for keys: growing and splitting when there is memory, sweeping when there is not.
//!
//! Every byte is booked: a segment before it is made, a state's own memory when it changes. A segment is swept before it
//! grows, since it may not need to; at the ceiling, those who come pay for a look at a few entries each, so that a flood
//! of invented keys costs each of them little and finds what has come back in full all the same.

use super::super::segment::{Full, Segment};
use super::{DIRECTORY_SHIFT, Table};
use crate::{Algorithm, Timestamp};
use std::time::Duration;

/// How many entries each new key pays to look at, in search of those that can go.
const LOOKS: usize = 4;
/// A segment of so few keys grows without being swept: that would save little, and its keys may be back soon.
const SMALL: u32 = 48;
/// After so long a time, a full segment is likely to have states that can go.
pub(super) const WORTH_ANOTHER_SWEEP: Duration = Duration::from_millis(10);
/// A sweep is paid for with at least this many looks: in a small table, keys that are soon back would otherwise be
/// dropped and put in again all the time.
const WORTH_A_SWEEP: usize = 256;
/// The directory has at most this many bits.
const MAX_DEPTH: u32 = 24;

impl<A: Algorithm> Table<A> {
    /// Writes down that a state's own memory went from `before` to `after` bytes; tells whether that is within the budget.
    pub(super) fn account(&mut self, before: usize, after: usize) -> bool {
        self.bytes = self.bytes.saturating_add(after).saturating_sub(before);
        if after > before {
            return self.budget.record(after - before);
        }
        self.budget.release(before - after);
        true
    }

    /// Puts in a new key, or hands its state back if there is no room.
    pub(super) fn insert(&mut self, hash: u64, state: A::State, now: Timestamp) -> Result<(), A::State> {
        let heap = self.algorithm.heap_bytes(&state);
        if heap > 0 && !self.budget.reserve(heap) && !self.make_room_beside(hash, heap, now) {
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
        self.look_around(now);
        Ok(())
    }

    /// A new key's share of the search for states that can go; a segment is looked through when it is paid for.
    pub(crate) fn look_around(&mut self, now: Timestamp) {
        let now = self.latest.max(now);
        self.credit += LOOKS;
        if self.credit > (self.segments[self.hand].len() as usize).max(WORTH_A_SWEEP) {
            self.credit = 0;
            self.sweep_next(now);
        }
    }

    /// Makes room for what a new key's state keeps outside of itself, by dropping what can go.
    #[cold]
    fn make_room_beside(&mut self, hash: u64, heap: usize, now: Timestamp) -> bool {
        let index = self.touch(hash);
        if !self.sweep_if_worth_it(index, now) {
            return false;
        }
        if !self.budget.reserve(heap) {
            self.sweep_next(now);
            return self.budget.reserve(heap);
        }
        true
    }

    /// At the ceiling every new key would like a look through its segment. It gets one when those before it have paid for
    /// it, or when so much time has passed that it is likely to be worth it.
    fn sweep_if_worth_it(&mut self, index: usize, now: Timestamp) -> bool {
        self.credit += LOOKS;
        let is_paid = self.credit > self.segments[index].len() as usize;
        if !is_paid && now.since(self.segments[index].swept) < WORTH_ANOTHER_SWEEP {
            return false;
        }
        self.credit = 0;
        self.sweep(index, now);
        true
    }

    /// Whether a new key would find a place.
    pub(super) fn has_room(&mut self, hash: u64, now: Timestamp) -> bool {
        let index = self.touch(hash);
        !self.segments[index].is_full() || self.make_room(index, now)
    }

    /// Drops what can go from a full segment, or else makes it larger, or splits it. `false` if the memory is used up.
    #[cold]
    pub(super) fn make_room(&mut self, index: usize, now: Timestamp) -> bool {
        let mut needed = self.segments[index].bytes_to_grow();
        if !self.budget.reserve(needed) {
            if !self.sweep_if_worth_it(index, now) {
                return false;
            }
            if !self.segments[index].is_full() {
                return true;
            }
            // Nothing can go from here, or everything could and did, places and all: memory may be elsewhere.
            self.sweep_next(now);
            needed = self.segments[index].bytes_to_grow();
            if !self.budget.reserve(needed) {
                return false;
            }
        }
        let (depth, next) = (self.segments[index].depth, self.segments[index].next_homes());
        self.bytes += needed;
        let before = self.segments[index].len();
        if before > SMALL {
            self.sweep(index, now);
        }
        let went = before - self.segments[index].len();
        if went * 4 > before {
            self.bytes -= needed;
            self.budget.release(needed);
            return true;
        }
        let old = self.segments[index].bytes();
        let segment = std::mem::replace(&mut self.segments[index], Segment::empty());
        let now_in_use = match next {
            None if depth < MAX_DEPTH => self.split(index, segment),
            _ => {
                // Only hashes that agree in more bits than the directory has lead past the largest size.
                let homes = next.unwrap_or_else(|| segment.homes() + segment.homes() / 4);
                self.segments[index] = segment.resized(homes);
                self.segments[index].bytes()
            }
        };
        self.account(needed + old, now_in_use);
        true
    }

    /// Puts `segment` back as two, told apart by one more bit; tells how many bytes they take.
    pub(super) fn split(&mut self, index: usize, segment: Segment<A::State>) -> usize {
        let depth = segment.depth;
        if self.directory.len() == 1 << depth {
            self.directory.extend_from_within(..);
        }
        let (zeros, ones) = segment.split(1 << (DIRECTORY_SHIFT + depth));
        let bytes = zeros.bytes() + ones.bytes();
        self.segments[index] = zeros;
        self.segments.push(ones);
        // A directory of 2^24 entries at most, and no more segments than entries.
        let (from, to) = (as_entry(index), as_entry(self.segments.len() - 1));
        for (position, entry) in self.directory.iter_mut().enumerate() {
            if *entry == from && position & (1 << depth) != 0 {
                *entry = to;
            }
        }
        bytes
    }

    /// Drops what can go from the segment whose turn it is.
    pub(super) fn sweep_next(&mut self, now: Timestamp) {
        self.sweep(self.hand, now);
        self.hand = (self.hand + 1) % self.segments.len();
    }

    /// Drops what can go from one segment, and gives back memory that it no longer needs.
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
        let left = segment.len();
        self.len -= (before - left) as usize;
        let old = segment.bytes();
        if left * 3 < segment.homes() {
            let homes = if left == 0 { 0 } else { Segment::<A::State>::homes_for(left) };
            if homes < segment.homes() {
                let whole = std::mem::replace(segment, Segment::empty());
                *segment = whole.resized(homes);
            }
        }
        segment.swept = now;
        let new = segment.bytes();
        // What idle cells keep is not needed either.
        for cell in self.cells.iter_mut().flatten() {
            let held = self.algorithm.heap_bytes(cell);
            if held > 0 && self.algorithm.is_fresh(cell, now) {
                *cell = self.algorithm.fresh(now);
                freed += held - self.algorithm.heap_bytes(cell);
            }
        }
        self.account(freed + old, new);
    }

    /// Gives back what a state has allocated and does not use: a clone has just what it needs.
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
