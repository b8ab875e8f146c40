//! The keys of one limit and their states: found by hash, grown and reclaimed incrementally, with bounded memory.
//!
//! # How it works
//! A directory, indexed by some bits of the hash, points to small [segments](super::segment). A full segment grows by a
//! quarter; a large one splits in two, and the directory uses one more bit for the halves. So no decision copies more
//! than one segment (unless the limit changes to another kind of algorithm, which migrates a whole shard), and the
//! table is about four fifths full at every size.
//!
//! ```text
//!   hash  ┌ shard ┬── directory ──┬──── order within the segment ────┐
//!         63     56              32                                  0
//! ```
//!
//! # What is never stored
//! The key itself: a 64-bit keyed hash identifies it, and two keys with the same hash share a count (three in a million
//! tables of ten million keys). A state that equals a fresh one: each new key pays for checking a few old ones, so a
//! key that is full again is dropped within a few hundred insertions.
//!
//! # What is never dropped
//! A state that differs from a fresh one. When the memory is used up and no entry can be dropped, new keys are handled
//! by [`OnFull`]; with [`OnFull::Share`] they share a fixed number of cells, and a key that is counted in a cell stays
//! in it until that cell is full again, so no usage is lost when the table has space again.

use super::budget::Budget;
use super::erased_table::{AnyTable, KeyQuery};
use super::segment::Segment;
use crate::sync::Arc;
use crate::wait::count_wait_from;
use crate::{Algorithm, Answer, Cost, MaxWait, Outcome, Receipt, Refund, Retry, Sample, Status, Timestamp, WaitMode};
use smallvec::{SmallVec, smallvec};

mod cl_throttle;
mod grow_and_sweep;
mod limit_change;
mod packed_bucket_take;
mod saved_keys;
mod tentative_take;
mod undo;

use grow_and_sweep::SWEEP_INTERVAL;
use limit_change::OldParameters;
pub(crate) use limit_change::Usage;
pub(crate) use saved_keys::SavedKey;
use tentative_take::BeforeTake;
pub(crate) use tentative_take::TentativeTake;

/// The handling of new keys when the memory is used up and no entry can be dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFull {
    /// New keys share a fixed number of counts. No key is locked out permanently, and no key gets more than the limit.
    #[default]
    Share,
    /// New keys are denied with a retry after 10 ms. A charge to them is lost.
    Deny,
    /// New keys are granted and not counted. A charge to them is lost.
    Allow,
}

/// The number of counts, per shard of the table, shared by keys without an entry.
const CELLS: usize = 16;
/// The lowest bit of the directory index.
const DIRECTORY_SHIFT: u32 = 32;

/// The keys of one limit in one shard.
///
/// Fields are in the order in which a decision needs them: those that every decision writes come first, beside the
/// shard's lock, so that they move between cores with it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table<A: Algorithm> {
    /// The latest time seen, so that time never goes back for a key.
    latest: Timestamp,
    /// Counts changes of the parameters; a segment of an older version is migrated when it is next touched.
    version: u32,
    algorithm: A,
    directory: Vec<u32>,
    /// The first segment is inline: a small table has no other, and needs no indirection.
    segments: SmallVec<[Segment<A::State>; 1]>,
    past: Vec<OldParameters<A>>,
    cells: Option<Box<[A::State]>>,
    before: BeforeTake<A::State>,
    len: usize,
    /// The next segment to sweep, and the checks paid for it.
    next_sweep: usize,
    sweep_credit: usize,
    on_full: OnFull,
    budget: Arc<Budget>,
    /// The bytes that this table has reserved from the budget.
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
            before: BeforeTake::default(),
            len: 0,
            next_sweep: 0,
            sweep_credit: 0,
            latest: Timestamp::EPOCH,
            on_full,
            budget,
            bytes: 0,
        }
    }

    /// Moves the memory of its keys to another budget.
    pub(crate) fn set_budget(&mut self, budget: &Arc<Budget>) {
        if Arc::ptr_eq(&self.budget, budget) {
            return;
        }
        budget.record(self.bytes);
        std::mem::replace(&mut self.budget, Arc::clone(budget)).release(self.bytes);
    }

    /// Returns the number of stored keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory of its keys in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `cost` from the key with `hash`, waiting at most `max_wait`.
    #[inline(always)]
    pub(crate) fn take(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let now = self.tick(now);
        let index = self.touch(hash);
        let Some(state) = self.segments[index].get_mut(hash) else { return self.take_new(hash, now, cost, max_wait) };
        let growth = self.algorithm.heap_growth(state, now);
        if growth > 0 && !self.budget.has_room(growth) {
            let peeked = peek_state(&self.algorithm, state, now, cost, max_wait);
            return self.without_growth(peeked, now);
        }
        let before = self.algorithm.heap_bytes(state);
        let answer = self.algorithm.answer(state, now, cost, max_wait);
        let after = self.algorithm.heap_bytes(state);
        if after == before {
            return answer;
        }
        self.check_growth(hash, now, answer, before, after)
    }

    /// Takes like [`take`](Self::take), for a caller that was due at `since` but was woken late; the wait counts from `since`. If
    /// the algorithm queues, the state has heap memory, or the key has no state, it is asked as of now.
    pub(crate) fn take_since(
        &mut self,
        hash: u64,
        since: Timestamp,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
    ) -> Answer {
        let now = self.tick(now);
        let since = since.min(now);
        let index = self.touch(hash);
        match self.segments[index].get_mut(hash) {
            Some(state) if self.algorithm.wait_mode() == WaitMode::Reserve && self.algorithm.heap_bytes(state) == 0 => {
                let max_wait = MaxWait::up_to(max_wait.as_duration().saturating_add(now.since(since)));
                let answer = self.algorithm.answer(state, since, cost, max_wait);
                let after = self.algorithm.heap_bytes(state);
                if after == 0 { answer } else { self.check_growth(hash, now, answer, 0, after) }
            }
            _ => count_wait_from(self.query(hash, now, cost, max_wait, KeyQuery::Take), since),
        }
    }

    /// Returns the answer that [`take`](Self::take) would give, with the status before it.
    #[inline(always)]
    pub(crate) fn peek(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        // The time is not recorded: a peek at a future time must not advance the time of other requests.
        let now = self.latest.max(now);
        let index = self.touch(hash);
        if let Some(state) = self.segments[index].get(hash) {
            return self.peek_entry(state, now, cost, max_wait);
        }
        if let Some(state) = self.cell_in_use(hash, now).and_then(|cell| self.cells.as_ref()?.get(cell)) {
            return self.peek_entry(state, now, cost, max_wait);
        }
        let answer = peek_state(&self.algorithm, &self.fresh(now), now, cost, max_wait);
        // Free memory matters only to requests that would be denied without it. Freeing some changes no answer, as long
        // as only states that can be dropped now are dropped, not those that could be at the future time.
        if self.on_full == OnFull::Deny && answer.is_granted() && !self.has_room(hash, self.latest) {
            return self.denied_full(now);
        }
        answer
    }

    /// Charges `cost` unconditionally.
    pub(crate) fn charge(&mut self, hash: u64, now: Timestamp, cost: Cost) {
        let now = self.tick(now);
        let index = self.touch(hash);
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
        let mut state = self.fresh(now);
        self.algorithm.charge(&mut state, now, cost);
        if cell.is_none() && self.insert(hash, state, now).is_ok() {
            return;
        }
        if let Some(cell) = cell.or_else(|| (self.on_full == OnFull::Share).then(|| cell_of(hash))) {
            let state = cell_mut(&mut self.cells, &self.algorithm, now, cell);
            let before = self.algorithm.heap_bytes(state);
            self.algorithm.charge(state, now, cost);
            let after = self.algorithm.heap_bytes(state);
            self.account(before, after);
        }
    }

    /// Refunds `receipt`.
    pub(crate) fn refund(&mut self, hash: u64, now: Timestamp, receipt: &Receipt) -> Refund {
        let now = self.tick(now);
        let index = self.touch(hash);
        if let Some(state) = self.segments[index].get_mut(hash) {
            let before = self.algorithm.heap_bytes(state);
            let refund = self.algorithm.refund(state, now, receipt);
            let after = self.algorithm.heap_bytes(state);
            self.account(before, after);
            return refund;
        }
        let Some(cell) = self.cell_in_use(hash, now) else { return Refund::Void };
        let state = cell_mut(&mut self.cells, &self.algorithm, now, cell);
        let before = self.algorithm.heap_bytes(state);
        let refund = self.algorithm.refund(state, now, receipt);
        let after = self.algorithm.heap_bytes(state);
        self.account(before, after);
        refund
    }

    /// Reports the result of one response to the key. A key without a state ignores it.
    pub(crate) fn observe(&mut self, hash: u64, now: Timestamp, sample: &Sample) {
        let now = self.tick(now);
        let index = self.touch(hash);
        if let Some(state) = self.segments[index].get_mut(hash) {
            self.algorithm.observe(state, now, sample);
        } else if let Some(cell) = self.cell_in_use(hash, now) {
            self.algorithm.observe(cell_mut(&mut self.cells, &self.algorithm, now, cell), now, sample);
        }
    }

    /// Resets the key. A key that shares a cell is unchanged: other keys are counted in it.
    pub(crate) fn reset(&mut self, hash: u64, now: Timestamp) {
        self.tick(now);
        let index = self.touch(hash);
        if let Some(state) = self.segments[index].remove(hash) {
            self.len -= 1;
            self.account(self.algorithm.heap_bytes(&state), 0);
        }
    }

    /// Scans all entries and drops those that can be dropped.
    pub(crate) fn reclaim(&mut self, now: Timestamp) {
        let now = self.tick(now);
        for index in 0..self.segments.len() {
            self.sweep(index, now);
        }
    }

    #[inline]
    fn tick(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Returns the segment of `hash`, migrated to the current parameters.
    #[inline]
    fn touch(&mut self, hash: u64) -> usize {
        let index = self.index(hash);
        if self.segments[index].version != self.version {
            self.refresh(index);
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

    /// Takes like [`take`](Self::take), for a key without an entry.
    #[cold]
    #[inline(never)]
    fn take_new(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        if let Some(cell) = self.cell_in_use(hash, now) {
            // New keys pay for scanning even if they get no entry, or nothing would ever be dropped.
            self.sweep_some(now);
            return self.take_from_cell(cell, now, cost, max_wait);
        }
        let mut state = self.fresh(now);
        let answer = self.algorithm.answer(&mut state, now, cost, max_wait);
        if !answer.is_granted() || self.insert(hash, state, now).is_ok() {
            return answer;
        }
        match self.on_full {
            OnFull::Share => self.take_from_cell(cell_of(hash), now, cost, max_wait),
            OnFull::Deny => self.denied_full(now),
            OnFull::Allow => answer,
        }
    }

    fn take_from_cell(&mut self, cell: usize, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let state = cell_mut(&mut self.cells, &self.algorithm, now, cell);
        // The heap memory of the cells is under the memory bound as well.
        let growth = self.algorithm.heap_growth(state, now);
        if growth > 0 && !self.budget.has_room(growth) {
            let peeked = peek_state(&self.algorithm, state, now, cost, max_wait);
            return if peeked.is_granted() { self.denied_full(now) } else { peeked };
        }
        let before = self.algorithm.heap_bytes(state);
        let answer = self.algorithm.answer(state, now, cost, max_wait);
        let after = self.algorithm.heap_bytes(state);
        if self.account(before, after) {
            return answer;
        }
        let state = cell_mut(&mut self.cells, &self.algorithm, now, cell);
        if let Some(receipt) = answer.receipt() {
            self.algorithm.refund(state, now, &receipt);
        }
        *state = state.clone();
        let compact = self.algorithm.heap_bytes(state);
        self.account(after, compact);
        self.denied_full(now)
    }

    /// Returns the answer of a peek at a key with a state.
    #[inline(always)]
    fn peek_entry(&self, state: &A::State, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let peeked = peek_state(&self.algorithm, state, now, cost, max_wait);
        let growth = self.algorithm.heap_growth(state, now);
        if growth > 0 && !self.budget.has_room(growth) { self.without_growth(peeked, now) } else { peeked }
    }

    /// Returns the answer if a grant would need more memory than is free.
    #[cold]
    fn without_growth(&self, peeked: Answer, now: Timestamp) -> Answer {
        match self.on_full {
            OnFull::Share | OnFull::Deny if peeked.is_granted() => self.denied_full(now),
            _ => peeked,
        }
    }

    fn denied_full(&self, now: Timestamp) -> Answer {
        let fresh = self.algorithm.status(&self.algorithm.fresh(now), now);
        // When another key's entry can be dropped is unknown; after this time a retry is worthwhile.
        let outcome = Outcome::Denied { retry: Retry::After(SWEEP_INTERVAL) };
        Answer::new(outcome, Status { remaining: 0, ..fresh })
    }

    /// Undoes a grant that exceeded the memory bound, after a state's heap memory has changed.
    #[cold]
    fn check_growth(&mut self, hash: u64, now: Timestamp, answer: Answer, before: usize, after: usize) -> Answer {
        let fits = self.account(before, after);
        let (false, Some(receipt)) = (fits, answer.receipt()) else { return answer };
        self.refund(hash, now, &receipt);
        self.compact(hash);
        match self.on_full {
            OnFull::Allow => answer,
            OnFull::Share | OnFull::Deny => self.denied_full(now),
        }
    }

    /// Returns the cell of `hash`, if it is in use.
    fn cell_in_use(&self, hash: u64, now: Timestamp) -> Option<usize> {
        let cell = cell_of(hash);
        let state = &self.cells.as_ref()?[cell];
        (!self.algorithm.is_fresh(state, now)).then_some(cell)
    }
}

impl<A: Algorithm> Drop for Table<A> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// Returns a shared cell; all of them are created when the first one is needed.
fn cell_mut<'a, A: Algorithm>(
    cells: &'a mut Option<Box<[A::State]>>,
    algorithm: &A,
    now: Timestamp,
    cell: usize,
) -> &'a mut A::State {
    &mut cells.get_or_insert_with(|| (0..CELLS).map(|_| algorithm.fresh(now)).collect())[cell]
}

/// Returns the outcome of an ask, with the status before it.
#[inline(always)]
fn peek_state<A: Algorithm>(algorithm: &A, state: &A::State, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
    Answer::new(algorithm.peek(state, now, cost, max_wait), algorithm.status(state, now))
}

fn cell_of(hash: u64) -> usize {
    (hash >> DIRECTORY_SHIFT) as usize % CELLS
}

#[cfg(test)]
mod tests;
