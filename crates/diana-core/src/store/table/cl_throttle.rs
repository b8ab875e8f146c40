//! `CL.THROTTLE` calls, with the same bounds on memory as other decisions.

use super::grow_and_sweep::SWEEP_INTERVAL;
use super::{OnFull, Table, cell_mut, cell_of};
use crate::{Algorithm, Answer, ClThrottle, Timestamp};

impl<A: Algorithm> Table<A> {
    /// Decides one call, and stores the key's state if it differs from a new key's. A new key is denied if there is no
    /// memory for it and [`OnFull::Deny`] applies.
    pub(crate) fn cl_throttle(&mut self, hash: u64, now: Timestamp, call: &ClThrottle) -> Answer {
        let now = self.tick(now);
        let index = self.touch(hash);
        match self.segments[index].get_mut(hash) {
            Some(state) => self.algorithm.cl_throttle(state, now, call),
            None => self.cl_throttle_new(hash, now, call),
        }
    }

    /// Decides like [`cl_throttle`](Self::cl_throttle), for a key without an entry.
    #[cold]
    #[inline(never)]
    fn cl_throttle_new(&mut self, hash: u64, now: Timestamp, call: &ClThrottle) -> Answer {
        if let Some(cell) = self.cell_in_use(hash, now) {
            self.sweep_some(now);
            return self.cl_throttle_cell(cell, now, call);
        }
        let mut state = self.fresh(now);
        let answer = self.algorithm.cl_throttle(&mut state, now, call);
        if self.algorithm.is_fresh(&state, now) || self.insert(hash, state, now).is_ok() {
            return answer;
        }
        match self.on_full {
            OnFull::Share => self.cl_throttle_cell(cell_of(hash), now, call),
            OnFull::Deny => call.denied(SWEEP_INTERVAL),
            OnFull::Allow => answer,
        }
    }

    fn cl_throttle_cell(&mut self, cell: usize, now: Timestamp, call: &ClThrottle) -> Answer {
        self.algorithm.cl_throttle(cell_mut(&mut self.cells, &self.algorithm, now, cell), now, call)
    }
}
