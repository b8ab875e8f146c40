//! Taking with the option to undo: for a request of several limits, of which a later one may deny.
//!
//! The table keeps one copy of the state before the take. The copy is exact, unlike a refund for algorithms that store
//! the time of the last ask, and it needs no second lookup if all limits grant, which is the common case: it is
//! overwritten by the next tentative take, or never read.

use super::super::erased_table::{AnyTable, KeyQuery};
use super::Table;
use crate::{Algorithm, Answer, Cost, MaxWait, Timestamp};
use smallvec::SmallVec;

/// The result of a tentative take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TentativeTake {
    /// The permits are taken, and the take can be undone.
    Granted,
    /// Nothing has changed.
    Denied,
    /// A take could not be undone, so nothing was taken, and there is no answer. The key has no entry, and inserting one may
    /// grow the table; or its state has heap memory, which is not copied.
    Unsupported,
}

/// The values that the last tentative take has changed.
#[derive(Debug)]
pub(super) struct BeforeTake<S> {
    state: S,
    latest: Timestamp,
}

impl<S: Default> Default for BeforeTake<S> {
    fn default() -> Self {
        Self { state: S::default(), latest: Timestamp::EPOCH }
    }
}

impl<A: Algorithm> Table<A> {
    /// Takes `cost`, as [`take`](Self::take) does, and appends the answer to `answers`, where it stays: an answer is large
    /// to copy. [`undo_take`](Self::undo_take) undoes a grant. A denial changes nothing, not even the latest time.
    #[inline(never)]
    pub(crate) fn take_tentatively(
        &mut self,
        hash: u64,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
        answers: &mut SmallVec<[Answer; 8]>,
    ) -> TentativeTake {
        let latest = self.latest;
        let now = latest.max(now);
        let index = self.index(hash);
        let segment = &mut self.segments[index];
        if segment.version != self.version {
            return TentativeTake::Unsupported;
        }
        let Some(state) = segment.get_mut(hash) else { return TentativeTake::Unsupported };
        if self.algorithm.heap_bytes(state) > 0 || self.algorithm.heap_growth(state, now) > 0 {
            return TentativeTake::Unsupported;
        }
        let before = state.clone();
        let answer = self.algorithm.answer(state, now, cost, max_wait);
        if self.algorithm.heap_bytes(state) > 0 {
            *state = before;
            return TentativeTake::Unsupported;
        }
        let is_granted = answer.is_granted();
        answers.push(answer);
        if !is_granted {
            return TentativeTake::Denied;
        }
        self.latest = now;
        self.before = BeforeTake { state: before, latest };
        TentativeTake::Granted
    }

    /// Undoes the last [tentative take](Self::take_tentatively), which was granted to the key with `hash`.
    pub(crate) fn undo_take(&mut self, hash: u64) {
        let index = self.index(hash);
        let BeforeTake { state: before, latest } = std::mem::take(&mut self.before);
        if let Some(state) = self.segments[index].get_mut(hash) {
            *state = before;
        }
        self.latest = latest;
    }

    /// Takes `cost`, as [`take`](Self::take) does, but a denial does not record the time.
    pub(crate) fn take_if_granted(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let latest = self.latest;
        let answer = self.query(hash, now, cost, max_wait, KeyQuery::Take);
        if !answer.is_granted() {
            self.latest = latest;
        }
        answer
    }
}
