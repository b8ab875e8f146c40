//! Undoing a grant exactly, where a refund would not be exact.
//!
//! Near the memory bound, a request of several asks is charged only after all have been found to grant. So it is undone
//! only when memory runs out in between (elsewhere `tentative_take` undoes what was taken). Then the charged keys are restored: a refund is exact for most algorithms, but not for those
//! that store the time of the last ask. States with much heap memory (the windows, for which a refund is exact) are
//! refunded nevertheless: copying them would take longer than everything else.

use super::{Table, cell_of};
use crate::{Algorithm, Timestamp};
use std::any::Any;

/// States with more heap memory than this are not copied.
const MAX_COPIED_HEAP: usize = 4_096;

/// The state of a key before it was charged.
#[derive(Debug)]
enum SavedState<S> {
    /// Its entry, if it had one.
    Entry(Option<S>),
    /// The cell that it shares.
    Cell(S),
}

impl<A: Algorithm> Table<A> {
    /// Returns the key's state for [`restore`](Self::restore); `None` if it is too large to copy: refund it instead.
    pub(crate) fn save(&mut self, hash: u64, now: Timestamp) -> Option<Box<dyn Any>> {
        let index = self.touch(hash);
        let entry = self.segments[index].get(hash);
        if entry.is_some_and(|state| self.algorithm.heap_bytes(state) > MAX_COPIED_HEAP) {
            return None;
        }
        let entry = entry.cloned();
        let cell =
            self.cell_in_use(hash, self.latest.max(now)).and_then(|cell| self.cells.as_ref()?.get(cell).cloned());
        Some(Box::new(match (entry, cell) {
            (None, Some(state)) => SavedState::Cell(state),
            (entry, _) => SavedState::Entry(entry),
        }))
    }

    /// Restores the saved state of the key.
    pub(crate) fn restore(&mut self, hash: u64, saved: Box<dyn Any>, now: Timestamp) {
        let Ok(saved) = saved.downcast::<SavedState<A::State>>() else { return };
        let index = self.touch(hash);
        match *saved {
            SavedState::Entry(Some(state)) => {
                if let Some(entry) = self.segments[index].get_mut(hash) {
                    let before = self.algorithm.heap_bytes(entry);
                    let after = self.algorithm.heap_bytes(&state);
                    *entry = state;
                    self.account(before, after);
                }
            }
            SavedState::Entry(None) if self.segments[index].get(hash).is_some() => self.reset(hash, now),
            // The key had no entry and got none, so it was counted in an unused cell.
            SavedState::Entry(None) => {
                let fresh = self.fresh(now);
                self.put_cell(hash, fresh);
            }
            SavedState::Cell(state) => self.put_cell(hash, state),
        }
    }

    fn put_cell(&mut self, hash: u64, state: A::State) {
        let Some(cell) = self.cells.as_mut().and_then(|cells| cells.get_mut(cell_of(hash))) else { return };
        let (before, after) = (self.algorithm.heap_bytes(cell), self.algorithm.heap_bytes(&state));
        *cell = state;
        self.account(before, after);
    }
}
