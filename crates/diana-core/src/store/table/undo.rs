//! Undoing a grant without a trace, where a refund would leave one.
//!
//! A request of several asks is charged only if all grant. That is known before anything is charged, except where memory
//! runs out in the middle. Then those that were charged are put back as they were: a refund is exact for most algorithms,
//! but not for those that remember when they were last asked. States that keep much outside of themselves (the windows,
//! for which a refund is exact) are given back by it all the same: to copy them would take longer than all the rest.

use super::{Table, cell_of};
use crate::{Algorithm, Timestamp};
use std::any::Any;

/// States that keep more bytes than this outside of themselves are not copied.
const LARGE: usize = 4_096;

/// What a key was before it was charged.
#[derive(Debug)]
enum Before<S> {
    /// Its entry, if it had one.
    Entry(Option<S>),
    /// The cell that it shares.
    Cell(S),
}

impl<A: Algorithm> Table<A> {
    /// What the key is now, to [put back](Self::restore); nothing if it is too large to be copied, so that it is to be
    /// refunded.
    pub(crate) fn save(&mut self, hash: u64, now: Timestamp) -> Option<Box<dyn Any>> {
        let index = self.touch(hash);
        let entry = self.segments[index].get(hash);
        if entry.is_some_and(|state| self.algorithm.heap_bytes(state) > LARGE) {
            return None;
        }
        let entry = entry.cloned();
        let cell =
            self.cell_in_use(hash, self.latest.max(now)).and_then(|cell| self.cells.as_ref()?.get(cell).cloned());
        Some(Box::new(match (entry, cell) {
            (None, Some(state)) => Before::Cell(state),
            (entry, _) => Before::Entry(entry),
        }))
    }

    /// Puts the key back as it was saved.
    pub(crate) fn restore(&mut self, hash: u64, saved: Box<dyn Any>, now: Timestamp) {
        let Ok(saved) = saved.downcast::<Before<A::State>>() else { return };
        let index = self.touch(hash);
        match *saved {
            Before::Entry(Some(state)) => {
                if let Some(entry) = self.segments[index].get_mut(hash) {
                    let now_held = self.algorithm.heap_bytes(entry);
                    let held = self.algorithm.heap_bytes(&state);
                    *entry = state;
                    self.account(now_held, held);
                }
            }
            Before::Entry(None) if self.segments[index].get(hash).is_some() => self.reset(hash, now),
            // It had nothing, found no room, and so was counted in a cell that nobody used.
            Before::Entry(None) => {
                let fresh = self.fresh(now);
                self.put_cell(hash, fresh);
            }
            Before::Cell(state) => self.put_cell(hash, state),
        }
    }

    fn put_cell(&mut self, hash: u64, state: A::State) {
        let Some(cell) = self.cells.as_mut().and_then(|cells| cells.get_mut(cell_of(hash))) else { return };
        let (now_held, held) = (self.algorithm.heap_bytes(cell), self.algorithm.heap_bytes(&state));
        *cell = state;
        self.account(now_held, held);
    }
}
