//! Changing a state by a function of the caller, with the same bounds as a decision.

use super::grow_and_sweep::SWEEP_INTERVAL;
use super::{OnFull, Table, cell_mut, cell_of};
use crate::{Algorithm, Timestamp};
use std::time::Duration;

/// Why a state could not be changed: the memory is used up, and [`OnFull::Deny`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableFull {
    /// After this time a retry is worthwhile.
    pub(crate) retry_after: Duration,
}

impl<A: Algorithm> Table<A> {
    /// Calls `change` with the state of the key and the time, and stores the result, if it differs from a new key's.
    ///
    /// `change` is called once more, for the state of a shared cell, if there is no memory for a new key. It must not
    /// change the heap memory of the state.
    pub(crate) fn update<R>(
        &mut self,
        hash: u64,
        now: Timestamp,
        change: impl Fn(&mut A::State, Timestamp) -> R,
    ) -> Result<R, TableFull> {
        let now = self.tick(now);
        let index = self.touch(hash);
        match self.segments[index].get_mut(hash) {
            Some(state) => Ok(change(state, now)),
            None => self.update_new(hash, now, change),
        }
    }

    /// [`update`](Self::update) for a key without an entry.
    #[cold]
    #[inline(never)]
    fn update_new<R>(
        &mut self,
        hash: u64,
        now: Timestamp,
        change: impl Fn(&mut A::State, Timestamp) -> R,
    ) -> Result<R, TableFull> {
        if let Some(cell) = self.cell_in_use(hash, now) {
            self.sweep_some(now);
            return Ok(change(cell_mut(&mut self.cells, &self.algorithm, now, cell), now));
        }
        let mut state = self.fresh(now);
        let result = change(&mut state, now);
        if self.algorithm.is_fresh(&state, now) || self.insert(hash, state, now).is_ok() {
            return Ok(result);
        }
        match self.on_full {
            OnFull::Share => Ok(change(cell_mut(&mut self.cells, &self.algorithm, now, cell_of(hash)), now)),
            OnFull::Deny => Err(TableFull { retry_after: SWEEP_INTERVAL }),
            OnFull::Allow => Ok(result),
        }
    }
}
