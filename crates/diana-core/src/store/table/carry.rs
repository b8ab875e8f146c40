//! Carrying keys over when their limit changes.
//!
//! To other parameters of the same kind: segment by segment, when one is next touched, so that no decision pays for all.
//! To another kind of algorithm: by what each key has in use, which is all that both understand.

use super::{Table, cell_mut, cell_of};
use crate::sync::Arc;
use crate::{Algorithm, Cost, Standing, Timestamp};

/// Changes of parameters that are carried over lazily; at one more, everything is brought up to date.
pub(super) const MAX_PAST: usize = 4;

/// Permits in use, by key and by shared cell: what can be carried from one kind of algorithm to another.
#[derive(Debug)]
pub(crate) struct Uses {
    /// The latest time that the table had seen.
    latest: Timestamp,
    keys: Vec<(u64, u64)>,
    cells: Vec<(usize, u64)>,
}

impl<A: Algorithm> Table<A> {
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

    /// Carries a segment's states over to the present parameters.
    #[cold]
    pub(super) fn refresh(&mut self, index: usize, now: Timestamp) {
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
}

fn used<A: Algorithm>(algorithm: &A, state: &A::State, now: Timestamp) -> u64 {
    let Standing { limit, remaining, .. } = algorithm.standing(state, now);
    limit.saturating_sub(remaining)
}
