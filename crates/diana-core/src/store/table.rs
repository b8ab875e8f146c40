//! The keys of one limit and their states: found by hash, grown bit by bit, reclaimed bit by bit, under a ceiling.
//!
//! # How it works
//! A directory, indexed by some bits of the hash, leads to small [segments](super::segment). A segment that is full grows
//! by a quarter; one that is large splits in two, and the directory tells the halves apart by one bit more. So no
//! decision ever pays for copying more than one segment, and the table is about four fifths full at every size.
//!
//! ```text
//!   hash  ┌ shard ┬── directory ──┬──── order within the segment ────┐
//!         63     56              32                                  0
//! ```
//!
//! # What is never kept
//! The key itself: 64 keyed bits stand for it, and two keys that share them share a count (three in a million tables of
//! ten million keys). A state that equals a fresh one: new keys pay for looking at a few old ones each, so whatever has
//! come back in full goes within a few hundred insertions.
//!
//! # What is never forgotten
//! A state that matters. When the memory is used up and every entry matters, new keys go by [`OnFull`]; under
//! [`OnFull::Share`] they share a fixed number of cells, and a key that is counted in a cell stays with it until that
//! cell has come back in full, so nobody is forgiven by the table's having room again.

use super::budget::Budget;
use super::segment::{Full, Segment};
use crate::algorithm::token_bucket::OneWordBucket;
use crate::sync::Arc;
use crate::{Algorithm, Answer, Cost, Outcome, Patience, Receipt, Refund, Retry, Standing, Timestamp};
use smallvec::{SmallVec, smallvec};

/// What happens to keys that are new when the memory is used up and every entry matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFull {
    /// They share a fixed number of counts. Nobody is locked out for good, and nobody gets more than the limit.
    #[default]
    Share,
    /// They are denied.
    Deny,
    /// They are granted and not counted.
    Allow,
}

/// How many counts the keys share that found no place, for each shard of the table.
const CELLS: usize = 16;
/// How many entries each new key pays to look at, in search of those that can go.
const LOOKS: usize = 4;
/// The directory's bits begin here.
const DIRECTORY_SHIFT: u32 = 32;
/// The directory has at most this many bits.
const MAX_DEPTH: u32 = 24;
/// Changes of parameters that are carried over lazily; at one more, everything is brought up to date.
const MAX_PAST: usize = 4;

/// The keys of one limit in one shard.
///
/// In the order in which a decision needs them: what each one writes stands first, beside the shard's lock, so that it
/// travels between cores with it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table<A: Algorithm> {
    /// The latest time that was seen, so that time never goes back for a key.
    latest: Timestamp,
    /// Counts changes of the parameters; a segment of an older version is carried over when it is next touched.
    version: u32,
    algorithm: A,
    directory: Vec<u32>,
    /// The first one stands here itself: a small table has no other, and is found without a detour.
    segments: SmallVec<[Segment<A::State>; 1]>,
    past: Vec<(u32, A)>,
    cells: Option<Box<[A::State]>>,
    len: usize,
    /// The segment that is looked at next in search of states that can go, and what has been paid for it.
    hand: usize,
    credit: usize,
    on_full: OnFull,
    budget: Arc<Budget>,
    /// What this table has taken from the budget.
    bytes: usize,
}

impl<A: Algorithm> Table<A> {
    pub(crate) fn new(algorithm: A, on_full: OnFull, budget: Arc<Budget>) -> Self {
        Self {
            algorithm,
            version: 0,
            past: Vec::new(),
            directory: vec![0],
            segments: smallvec![Segment::empty()],
            cells: None,
            len: 0,
            hand: 0,
            credit: 0,
            latest: Timestamp::EPOCH,
            on_full,
            budget,
            bytes: 0,
        }
    }

    /// Keys that are kept.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Takes `cost` from the key with `hash`, waiting at most `patience`.
    pub(crate) fn take(&mut self, hash: u64, now: Timestamp, cost: Cost, patience: Patience) -> Answer {
        let now = self.tick(now);
        let index = self.touch(hash, now);
        let Some(state) = self.segments[index].get_mut(hash) else { return self.take_new(hash, now, cost, patience) };
        let before = self.algorithm.heap_bytes(state);
        let answer = self.algorithm.answer(state, now, cost, patience);
        let after = self.algorithm.heap_bytes(state);
        if after == before {
            return answer;
        }
        self.grown(hash, now, answer, before, after)
    }

    /// What [`take`](Self::take) would answer, and where the key stands before it.
    pub(crate) fn peek(&mut self, hash: u64, now: Timestamp, cost: Cost, patience: Patience) -> Answer {
        let now = self.tick(now);
        let index = self.touch(hash, now);
        let look = |algorithm: &A, state: &A::State| Answer {
            outcome: algorithm.peek(state, now, cost, patience),
            standing: algorithm.standing(state, now),
        };
        if let Some(state) = self.segments[index].get(hash) {
            return look(&self.algorithm, state);
        }
        if let Some(cell) = self.cell_in_use(hash, now) {
            return look(&self.algorithm, cell_mut(&mut self.cells, &self.algorithm, now, cell));
        }
        let answer = look(&self.algorithm, &self.algorithm.fresh(now));
        // Whether there is room matters only to those who would be turned away. Making it changes no answer.
        if self.on_full == OnFull::Deny && answer.is_granted() && !self.has_room(hash, now) {
            return self.turned_away(now);
        }
        answer
    }

    /// Takes `cost` without asking.
    pub(crate) fn charge(&mut self, hash: u64, now: Timestamp, cost: Cost) {
        let now = self.tick(now);
        let index = self.touch(hash, now);
        if let Some(state) = self.segments[index].get_mut(hash) {
            let before = self.algorithm.heap_bytes(state);
            self.algorithm.charge(state, now, cost);
            let after = self.algorithm.heap_bytes(state);
            if !self.account(before, after) {
                self.compact(hash);
            }
            return;
        }
        let cell = self.cell_in_use(hash, now);
        let mut state = self.algorithm.fresh(now);
        self.algorithm.charge(&mut state, now, cost);
        if cell.is_none() && self.insert(hash, state, now).is_ok() {
            return;
        }
        if let Some(cell) = cell.or_else(|| (self.on_full == OnFull::Share).then(|| cell_of(hash))) {
            self.algorithm.charge(cell_mut(&mut self.cells, &self.algorithm, now, cell), now, cost);
        }
    }

    /// Gives back what `receipt` says was taken.
    pub(crate) fn refund(&mut self, hash: u64, now: Timestamp, receipt: &Receipt) -> Refund {
        let now = self.tick(now);
        let index = self.touch(hash, now);
        if let Some(state) = self.segments[index].get_mut(hash) {
            let before = self.algorithm.heap_bytes(state);
            let refund = self.algorithm.refund(state, now, receipt);
            let after = self.algorithm.heap_bytes(state);
            self.account(before, after);
            return refund;
        }
        let Some(cell) = self.cell_in_use(hash, now) else { return Refund::Void };
        self.algorithm.refund(cell_mut(&mut self.cells, &self.algorithm, now, cell), now, receipt)
    }

    /// Makes the key as good as new. A key that shares a cell stays as it is: others are counted there.
    pub(crate) fn reset(&mut self, hash: u64, now: Timestamp) {
        let now = self.tick(now);
        let index = self.touch(hash, now);
        if let Some(state) = self.segments[index].remove(hash) {
            self.len -= 1;
            self.account(self.algorithm.heap_bytes(&state), 0);
        }
    }

    /// Goes on with other parameters. Each key's use is carried over, clamped, when its segment is next touched.
    pub(crate) fn change(&mut self, algorithm: A, now: Timestamp) {
        let now = self.tick(now);
        if self.past.len() >= MAX_PAST {
            for index in 0..self.segments.len() {
                self.refresh(index, now);
            }
            self.past.clear();
        }
        let old = std::mem::replace(&mut self.algorithm, algorithm);
        for cell in self.cells.iter_mut().flatten() {
            self.algorithm.rescale(cell, &old, now);
        }
        self.past.push((self.version, old));
        self.version = self.version.wrapping_add(1);
    }

    /// Looks at every entry and drops those that can go.
    pub(crate) fn reclaim(&mut self, now: Timestamp) {
        let now = self.tick(now);
        for index in 0..self.segments.len() {
            self.sweep(index, now);
        }
    }

    /// What every key has in use; the table is empty afterwards.
    pub(crate) fn drain(&mut self, now: Timestamp) -> Uses {
        let now = self.tick(now);
        let mut uses = Uses { latest: now, keys: Vec::with_capacity(self.len), cells: Vec::new() };
        for index in 0..self.segments.len() {
            self.refresh(index, now);
            for (hash, state) in self.segments[index].iter_mut() {
                uses.keys.push((hash, used(&self.algorithm, state, now)));
            }
        }
        let cells = self.cells.iter().flatten();
        uses.cells.extend(cells.map(|state| used(&self.algorithm, state, now)).enumerate());
        let (algorithm, on_full, budget) = (self.algorithm.clone(), self.on_full, Arc::clone(&self.budget));
        *self = Self::new(algorithm, on_full, budget);
        uses
    }

    /// Takes over what keys had in use in another table.
    pub(crate) fn adopt(&mut self, uses: Uses, now: Timestamp) {
        let Uses { latest, keys, cells: mut shared } = uses;
        let now = self.tick(now.max(latest));
        for (hash, used) in keys.into_iter().filter(|(_, used)| *used > 0) {
            let state = self.algorithm.occupied(used, now);
            if self.insert(hash, state, now).is_err() {
                shared.push((cell_of(hash), used));
            }
        }
        for (cell, used) in shared.into_iter().filter(|(_, used)| *used > 0) {
            let state = cell_mut(&mut self.cells, &self.algorithm, now, cell);
            // Several may come together here. Clamped, as each would be on its own: whoever was at the limit still is.
            let left = self.algorithm.standing(state, now).remaining;
            if let Ok(cost) = Cost::new(used.min(left)) {
                self.algorithm.charge(state, now, cost);
            }
        }
    }

    #[inline]
    fn tick(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The segment of `hash`, brought up to date.
    #[inline]
    fn touch(&mut self, hash: u64, now: Timestamp) -> usize {
        let index = self.index(hash);
        if self.segments[index].version != self.version {
            self.refresh(index, now);
        }
        index
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "masked to the directory's length")]
    fn index(&self, hash: u64) -> usize {
        if self.directory.len() == 1 {
            return 0;
        }
        let bits = (hash >> DIRECTORY_SHIFT) as usize;
        self.directory[bits & (self.directory.len() - 1)] as usize
    }

    /// Carries a segment's states over to the present parameters.
    #[cold]
    fn refresh(&mut self, index: usize, now: Timestamp) {
        let segment = &mut self.segments[index];
        let Some((_, old)) = self.past.iter().find(|(version, _)| *version == segment.version) else { return };
        let (mut before, mut after) = (0, 0);
        for (_, state) in segment.iter_mut() {
            before += self.algorithm.heap_bytes(state);
            self.algorithm.rescale(state, old, now);
            after += self.algorithm.heap_bytes(state);
        }
        segment.version = self.version;
        self.account(before, after);
    }

    /// [`take`](Self::take) for a key that has no entry.
    #[cold]
    #[inline(never)]
    fn take_new(&mut self, hash: u64, now: Timestamp, cost: Cost, patience: Patience) -> Answer {
        if let Some(cell) = self.cell_in_use(hash, now) {
            // New keys pay for tidying up even if they find no place of their own, or nothing would ever go.
            self.look_around(now);
            return self.take_from_cell(cell, now, cost, patience);
        }
        let mut state = self.algorithm.fresh(now);
        let answer = self.algorithm.answer(&mut state, now, cost, patience);
        if !answer.is_granted() || self.insert(hash, state, now).is_ok() {
            return answer;
        }
        match self.on_full {
            OnFull::Share => self.take_from_cell(cell_of(hash), now, cost, patience),
            OnFull::Deny => self.turned_away(now),
            OnFull::Allow => answer,
        }
    }

    fn take_from_cell(&mut self, cell: usize, now: Timestamp, cost: Cost, patience: Patience) -> Answer {
        let state = cell_mut(&mut self.cells, &self.algorithm, now, cell);
        self.algorithm.answer(state, now, cost, patience)
    }

    fn turned_away(&self, now: Timestamp) -> Answer {
        let fresh = self.algorithm.standing(&self.algorithm.fresh(now), now);
        // No clock can tell when another key's entry becomes free.
        let outcome = Outcome::Denied { retry: Retry::WhenReturned };
        Answer { outcome, standing: Standing { remaining: 0, ..fresh } }
    }

    /// After a state's own memory has changed: a grant that went over the ceiling is taken back.
    #[cold]
    fn grown(&mut self, hash: u64, now: Timestamp, answer: Answer, before: usize, after: usize) -> Answer {
        let fits = self.account(before, after);
        let (false, Some(receipt)) = (fits, answer.receipt()) else { return answer };
        self.refund(hash, now, &receipt);
        self.compact(hash);
        match self.on_full {
            OnFull::Allow => answer,
            OnFull::Share | OnFull::Deny => self.turned_away(now),
        }
    }

    /// Gives back what a state has allocated and does not use: a clone has just what it needs.
    fn compact(&mut self, hash: u64) {
        let index = self.index(hash);
        let Some(state) = self.segments[index].get_mut(hash) else { return };
        let before = self.algorithm.heap_bytes(state);
        *state = state.clone();
        let after = self.algorithm.heap_bytes(state);
        self.account(before, after);
    }

    /// Writes down that a state's own memory went from `before` to `after` bytes; tells whether that is within the budget.
    fn account(&mut self, before: usize, after: usize) -> bool {
        self.bytes = self.bytes + after - before;
        if after > before {
            return self.budget.record(after - before);
        }
        self.budget.release(before - after);
        true
    }

    /// The cell that counts for `hash`, if somebody's use is in it.
    fn cell_in_use(&self, hash: u64, now: Timestamp) -> Option<usize> {
        let cell = cell_of(hash);
        let state = &self.cells.as_ref()?[cell];
        (!self.algorithm.is_fresh(state, now)).then_some(cell)
    }

    /// Puts in a new key, or hands its state back if there is no room.
    fn insert(&mut self, hash: u64, state: A::State, now: Timestamp) -> Result<(), A::State> {
        let heap = self.algorithm.heap_bytes(&state);
        if heap > 0 && !self.budget.reserve(heap) {
            return Err(state);
        }
        self.bytes += heap;
        let mut state = state;
        loop {
            let index = self.touch(hash, now);
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
        let now = self.tick(now);
        self.credit += LOOKS;
        if self.credit > self.segments[self.hand].len() as usize {
            self.credit = 0;
            self.sweep_next(now);
        }
    }

    /// Whether a new key would find a place.
    fn has_room(&mut self, hash: u64, now: Timestamp) -> bool {
        let index = self.touch(hash, now);
        !self.segments[index].is_full() || self.make_room(index, now)
    }

    /// Drops what can go from a full segment, or else makes it larger, or splits it. `false` if the memory is used up.
    #[cold]
    fn make_room(&mut self, index: usize, now: Timestamp) -> bool {
        let mut needed = self.segments[index].bytes_to_grow();
        if !self.budget.reserve(needed) {
            // At the ceiling every new key comes here: they look through segments only when they have paid for it.
            self.credit += LOOKS;
            if self.credit <= self.segments[index].len() as usize {
                return false;
            }
            self.credit = 0;
            self.sweep(index, now);
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
        self.sweep(index, now);
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
    fn split(&mut self, index: usize, segment: Segment<A::State>) -> usize {
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
    fn sweep_next(&mut self, now: Timestamp) {
        self.sweep(self.hand, now);
        self.hand = (self.hand + 1) % self.segments.len();
    }

    /// Drops what can go from one segment, and gives back memory that it no longer needs.
    fn sweep(&mut self, index: usize, now: Timestamp) {
        self.refresh(index, now);
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
        let new = self.segments[index].bytes();
        self.account(freed + old, new);
    }
}

/// A decision on a one-word state, of which everything but the state itself can still be worked out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneWordStep {
    bucket: OneWordBucket,
    before: u64,
    now: Timestamp,
}

impl Table<OneWordBucket> {
    /// Takes `cost` from a key that has an entry, and leaves working out the answer for after the lock: what is told to
    /// the asker is more arithmetic than the decision. `None` if the key has no entry.
    #[inline(always)]
    pub(crate) fn step(&mut self, hash: u64, now: Timestamp, cost: Cost, patience: Patience) -> Option<OneWordStep> {
        let now = self.tick(now);
        let index = self.touch(hash, now);
        let state = self.segments[index].get_mut(hash)?;
        let step = OneWordStep { bucket: self.algorithm, before: *state, now };
        let _told_later = self.algorithm.take(state, now, cost, patience);
        Some(step)
    }
}

impl OneWordStep {
    /// The answer, by the same function of the same values.
    #[inline(always)]
    pub(crate) fn answer(mut self, cost: Cost, patience: Patience) -> Answer {
        self.bucket.answer(&mut self.before, self.now, cost, patience)
    }
}

impl<A: Algorithm> Drop for Table<A> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// A shared cell; all of them are begun when the first one is needed.
fn cell_mut<'a, A: Algorithm>(
    cells: &'a mut Option<Box<[A::State]>>,
    algorithm: &A,
    now: Timestamp,
    cell: usize,
) -> &'a mut A::State {
    &mut cells.get_or_insert_with(|| (0..CELLS).map(|_| algorithm.fresh(now)).collect())[cell]
}

/// Permits in use, by key and by shared cell: what can be carried from one kind of algorithm to another.
#[derive(Debug)]
pub(crate) struct Uses {
    /// The latest time that the table had seen.
    latest: Timestamp,
    keys: Vec<(u64, u64)>,
    cells: Vec<(usize, u64)>,
}

fn used<A: Algorithm>(algorithm: &A, state: &A::State, now: Timestamp) -> u64 {
    let Standing { limit, remaining, .. } = algorithm.standing(state, now);
    limit.saturating_sub(remaining)
}

fn cell_of(hash: u64) -> usize {
    (hash >> DIRECTORY_SHIFT) as usize % CELLS
}

fn as_entry(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
