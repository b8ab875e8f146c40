//! Migrating keys when their limit changes.
//!
//! To other parameters of the same kind: segment by segment, when one is next touched, so that no decision pays for
//! all. To another kind of algorithm: by each key's permits in use, the only fact that both kinds share.

use super::{Table, cell_mut, cell_of};
use crate::sync::Arc;
use crate::{Algorithm, Cost, Status, Timestamp};

/// Changes of parameters that are migrated lazily; at one more, everything is migrated.
pub(super) const MAX_PAST: usize = 4;

/// Earlier parameters, and until when they were active.
#[derive(Debug)]
pub(super) struct OldParameters<A> {
    version: u32,
    algorithm: A,
    until: Timestamp,
}

/// Permits in use, by key and by shared cell: the part of a state that migrates between kinds of algorithms.
#[derive(Debug)]
pub(crate) struct Usage {
    /// The latest time that the table had seen.
    latest: Timestamp,
    keys: Vec<(u64, u64)>,
    cells: Vec<(usize, u64)>,
}

impl<A: Algorithm> Table<A> {
    /// Changes the parameters. Each key's usage is migrated, clamped, when its segment is next touched. Setting the
    /// same parameters again changes nothing.
    pub(crate) fn change(&mut self, algorithm: A, now: Timestamp) {
        // The time is not recorded: the first call with the changed limit may be a peek at a future time.
        let now = self.latest.max(now);
        if algorithm == self.algorithm {
            return;
        }
        if self.past.len() >= MAX_PAST {
            for index in 0..self.segments.len() {
                self.refresh(index);
            }
            self.past.clear();
        }
        let old = std::mem::replace(&mut self.algorithm, algorithm);
        let (mut before, mut after) = (0, 0);
        for cell in self.cells.iter_mut().flatten() {
            before += old.heap_bytes(cell);
            self.algorithm.rescale(cell, &old, now);
            after += self.algorithm.heap_bytes(cell);
        }
        self.account(before, after);
        self.past.push(OldParameters { version: self.version, algorithm: old, until: now });
        self.version = self.version.wrapping_add(1);
    }

    /// Migrates a segment's states to the current parameters: through every change since, each at its own time, as if
    /// the segment had been touched then.
    #[cold]
    pub(super) fn refresh(&mut self, index: usize) {
        let segment = &mut self.segments[index];
        let Some(first) = self.past.iter().position(|past| past.version == segment.version) else { return };
        let (mut before, mut after) = (0, 0);
        for (_, state) in segment.iter_mut() {
            before += self.past[first].algorithm.heap_bytes(state);
            migrate(state, &self.past[first..], &self.algorithm);
            after += self.algorithm.heap_bytes(state);
        }
        segment.version = self.version;
        self.account(before, after);
    }

    /// Returns the state at `now` of a key without an entry.
    #[inline]
    pub(super) fn fresh(&self, now: Timestamp) -> A::State {
        match self.past.last() {
            Some(past) if self.algorithm.migrates_fresh(past.until, now) => self.fresh_through_changes(now),
            _ => self.algorithm.fresh(now),
        }
    }

    /// Returns an idle key's state after all changes at this time: the same whether it was stored or dropped.
    #[cold]
    fn fresh_through_changes(&self, now: Timestamp) -> A::State {
        let first = self.past.iter().position(|past| self.algorithm.migrates_fresh(past.until, now));
        let changes = &self.past[first.unwrap_or(self.past.len())..];
        let Some(past) = changes.first() else { return self.algorithm.fresh(now) };
        let mut state = past.algorithm.fresh(past.until);
        migrate(&mut state, changes, &self.algorithm);
        state
    }

    /// Returns the usage of every key; the table is empty afterwards.
    pub(crate) fn drain(&mut self, now: Timestamp) -> Usage {
        let latest = self.latest;
        let now = latest.max(now);
        let mut usage = Usage { latest, keys: Vec::with_capacity(self.len), cells: Vec::new() };
        for index in 0..self.segments.len() {
            self.refresh(index);
            for (hash, state) in self.segments[index].iter_mut() {
                usage.keys.push((hash, used(&self.algorithm, state, now)));
            }
        }
        let cells = self.cells.iter().flatten();
        usage.cells.extend(cells.map(|state| used(&self.algorithm, state, now)).enumerate());
        self.restart();
        usage
    }

    /// Drops everything, including the latest time.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.algorithm.clone(), self.on_full, Arc::clone(&self.budget));
    }

    /// Takes over the usage of the keys of another table.
    pub(crate) fn adopt(&mut self, usage: Usage, now: Timestamp) {
        let Usage { latest, keys, cells: mut shared } = usage;
        let now = self.tick(latest).max(now);
        for (hash, used) in keys.into_iter().filter(|(_, used)| *used > 0) {
            let state = self.algorithm.occupied(used, now);
            if self.insert(hash, state, now).is_err() {
                shared.push((cell_of(hash), used));
            }
        }
        for (cell, used) in shared.into_iter().filter(|(_, used)| *used > 0) {
            let state = cell_mut(&mut self.cells, &self.algorithm, now, cell);
            // Several keys may share this cell. Clamped, as each would be on its own: a key at the limit stays there.
            let remaining = self.algorithm.status(state, now).remaining;
            if let Ok(cost) = Cost::new(used.min(remaining)) {
                let before = self.algorithm.heap_bytes(state);
                self.algorithm.charge(state, now, cost);
                let after = self.algorithm.heap_bytes(state);
                self.account(before, after);
            }
        }
    }
}

/// Migrates a state over `changes`, each at its own time, to the `current` parameters.
fn migrate<A: Algorithm>(state: &mut A::State, changes: &[OldParameters<A>], current: &A) {
    for (change, past) in changes.iter().enumerate() {
        let next = changes.get(change + 1).map_or(current, |next| &next.algorithm);
        next.rescale(state, &past.algorithm, past.until);
    }
}

pub(super) fn used<A: Algorithm>(algorithm: &A, state: &A::State, now: Timestamp) -> u64 {
    let Status { limit, remaining, .. } = algorithm.status(state, now);
    limit.saturating_sub(remaining)
}
