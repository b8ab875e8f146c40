//! Type-erased tables, so that the keys of limits of different kinds can be in one list.

use super::budget::Budget;
use super::table::{OnFull, SavedKey, Table, TentativeTake, Usage};
use crate::algorithm::Packed;
use crate::algorithm::erased_algorithm::AnyAlgorithm;
use crate::algorithm::token_bucket::PackedBucket;
use crate::sync::Arc;
use crate::{Algorithm, Answer, Cost, MaxWait, Receipt, Refund, Sample, Timestamp};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt::Debug;

/// Any [`Table`].
pub(crate) trait AnyTable: Debug + Send {
    fn take(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer;
    fn peek(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer;
    fn grants(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> bool;
    fn take_tentatively(
        &mut self,
        hash: u64,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
        answers: &mut SmallVec<[Answer; 8]>,
    ) -> TentativeTake;
    fn undo_take(&mut self, hash: u64);
    fn take_if_granted(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer;
    fn charge(&mut self, hash: u64, now: Timestamp, cost: Cost);
    fn refund(&mut self, hash: u64, now: Timestamp, receipt: &Receipt) -> Refund;
    fn observe(&mut self, hash: u64, now: Timestamp, sample: &Sample);
    fn reset(&mut self, hash: u64, now: Timestamp);
    fn take_since(&mut self, hash: u64, since: Timestamp, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer;
    fn save(&mut self, hash: u64, now: Timestamp) -> Option<Box<dyn Any>>;
    fn restore(&mut self, hash: u64, saved: Box<dyn Any>, now: Timestamp);
    fn restart(&mut self);
    fn reclaim(&mut self, now: Timestamp);
    fn sweep_some(&mut self, now: Timestamp);
    fn set_budget(&mut self, budget: &Arc<Budget>);
    fn len(&self) -> usize;
    fn bytes(&self) -> usize;
    fn drain(&mut self, now: Timestamp) -> Usage;
    fn adopt(&mut self, usage: Usage, now: Timestamp);
    fn save_segment(&mut self, index: usize, now: Timestamp, used_at: Timestamp, words: &mut Vec<u64>) -> bool;
    fn load(&mut self, key: &SavedKey<'_>, now: Timestamp) -> bool;
    fn is_of_kind(&self, algorithm: &dyn AnyAlgorithm) -> bool;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// Changes to `algorithm` if it is of the same kind; otherwise returns `false`.
    fn change_to(&mut self, algorithm: &dyn AnyAlgorithm, now: Timestamp) -> bool;
}

impl<A: Algorithm> AnyTable for Table<A> {
    fn take(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        self.take(hash, now, cost, max_wait)
    }

    fn peek(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        self.peek(hash, now, cost, max_wait)
    }

    fn grants(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> bool {
        self.grants(hash, now, cost, max_wait)
    }

    fn take_tentatively(
        &mut self,
        hash: u64,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
        answers: &mut SmallVec<[Answer; 8]>,
    ) -> TentativeTake {
        self.take_tentatively(hash, now, cost, max_wait, answers)
    }

    fn undo_take(&mut self, hash: u64) {
        self.undo_take(hash);
    }

    fn take_if_granted(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        self.take_if_granted(hash, now, cost, max_wait)
    }

    fn charge(&mut self, hash: u64, now: Timestamp, cost: Cost) {
        self.charge(hash, now, cost);
    }

    fn refund(&mut self, hash: u64, now: Timestamp, receipt: &Receipt) -> Refund {
        self.refund(hash, now, receipt)
    }

    fn observe(&mut self, hash: u64, now: Timestamp, sample: &Sample) {
        self.observe(hash, now, sample);
    }

    fn reset(&mut self, hash: u64, now: Timestamp) {
        self.reset(hash, now);
    }

    fn take_since(&mut self, hash: u64, since: Timestamp, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        self.take_since(hash, since, now, cost, max_wait)
    }

    fn save(&mut self, hash: u64, now: Timestamp) -> Option<Box<dyn Any>> {
        self.save(hash, now)
    }

    fn restore(&mut self, hash: u64, saved: Box<dyn Any>, now: Timestamp) {
        self.restore(hash, saved, now);
    }

    fn restart(&mut self) {
        self.restart();
    }

    fn reclaim(&mut self, now: Timestamp) {
        self.reclaim(now);
    }

    fn sweep_some(&mut self, now: Timestamp) {
        self.sweep_some(now);
    }

    fn set_budget(&mut self, budget: &Arc<Budget>) {
        self.set_budget(budget);
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn drain(&mut self, now: Timestamp) -> Usage {
        self.drain(now)
    }

    fn adopt(&mut self, usage: Usage, now: Timestamp) {
        self.adopt(usage, now);
    }

    fn save_segment(&mut self, index: usize, now: Timestamp, used_at: Timestamp, words: &mut Vec<u64>) -> bool {
        self.save_segment(index, now, used_at, words)
    }

    fn load(&mut self, key: &SavedKey<'_>, now: Timestamp) -> bool {
        self.load(key, now)
    }

    fn is_of_kind(&self, algorithm: &dyn AnyAlgorithm) -> bool {
        algorithm.as_any().is::<A>()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn change_to(&mut self, algorithm: &dyn AnyAlgorithm, now: Timestamp) -> bool {
        let Some(same_kind) = algorithm.as_any().downcast_ref::<A>() else { return false };
        self.change(same_kind.clone(), now);
        true
    }
}

/// A table whose type is known at compile time in the common case, which avoids dynamic dispatch.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most are packed, and a box would be one more cache miss for each decision"
)]
pub(crate) enum Keys {
    /// One-word token buckets: the most common limit.
    Packed(Table<PackedBucket>),
    Any(Box<dyn AnyTable>),
}

/// Applies the same expression to either kind of table.
macro_rules! either {
    ($keys:expr, $table:ident => $body:expr) => {
        match $keys {
            Keys::Packed($table) => $body,
            Keys::Any($table) => $body,
        }
    };
}

impl Keys {
    pub(crate) fn new(algorithm: &dyn AnyAlgorithm, on_full: OnFull, budget: Arc<Budget>) -> Self {
        match algorithm.packed() {
            Some(Packed(bucket)) => Self::Packed(Table::new(bucket, on_full, budget)),
            None => Self::Any(algorithm.new_table(on_full, budget)),
        }
    }

    /// Returns `true` if `algorithm` is of the kind of these keys.
    pub(crate) fn is_of_kind(&self, algorithm: &dyn AnyAlgorithm) -> bool {
        match self {
            Self::Packed(_) => algorithm.packed().is_some(),
            Self::Any(table) => algorithm.packed().is_none() && table.is_of_kind(algorithm),
        }
    }

    /// Returns the table if its algorithm is an `A`.
    #[inline]
    pub(crate) fn table_of<A: Algorithm>(&mut self) -> Option<&mut Table<A>> {
        match self {
            Self::Packed(_) => None,
            Self::Any(table) => table.as_any_mut().downcast_mut(),
        }
    }

    /// Changes to `algorithm`; the keys' usage is kept, clamped.
    pub(crate) fn change_to(
        &mut self,
        algorithm: &dyn AnyAlgorithm,
        on_full: OnFull,
        budget: &Arc<Budget>,
        now: Timestamp,
    ) {
        let changed = match (&mut *self, algorithm.packed()) {
            (Self::Packed(table), Some(Packed(bucket))) => {
                table.change(bucket, now);
                true
            }
            (Self::Any(table), None) => table.change_to(algorithm, now),
            _ => false,
        };
        if changed {
            either!(self, table => table.set_budget(budget));
        } else {
            // Another kind of algorithm: only the permits in use can be migrated.
            let usage = either!(self, table => table.drain(now));
            *self = Self::new(algorithm, on_full, Arc::clone(budget));
            either!(self, table => table.adopt(usage, now));
        }
    }

    pub(crate) fn take(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        either!(self, table => table.take(hash, now, cost, max_wait))
    }

    pub(crate) fn peek(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        either!(self, table => table.peek(hash, now, cost, max_wait))
    }

    /// Returns `true` if [`take`](Self::take) would grant.
    pub(crate) fn grants(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> bool {
        either!(self, table => table.grants(hash, now, cost, max_wait))
    }

    /// Takes so that [`undo_take`](Self::undo_take) can undo a grant. Appends the
    /// answer to `answers`.
    #[inline(always)]
    pub(crate) fn take_tentatively(
        &mut self,
        hash: u64,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
        answers: &mut SmallVec<[Answer; 8]>,
    ) -> TentativeTake {
        either!(self, table => table.take_tentatively(hash, now, cost, max_wait, answers))
    }

    /// Undoes the last [tentative take](Self::take_tentatively), which was granted to the key with `hash`.
    pub(crate) fn undo_take(&mut self, hash: u64) {
        either!(self, table => table.undo_take(hash));
    }

    /// [`take`](Self::take), but a denial does not record the time.
    pub(crate) fn take_if_granted(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        either!(self, table => table.take_if_granted(hash, now, cost, max_wait))
    }

    pub(crate) fn charge(&mut self, hash: u64, now: Timestamp, cost: Cost) {
        either!(self, table => table.charge(hash, now, cost));
    }

    pub(crate) fn refund(&mut self, hash: u64, now: Timestamp, receipt: &Receipt) -> Refund {
        either!(self, table => table.refund(hash, now, receipt))
    }

    pub(crate) fn observe(&mut self, hash: u64, now: Timestamp, sample: &Sample) {
        either!(self, table => table.observe(hash, now, sample));
    }

    pub(crate) fn reset(&mut self, hash: u64, now: Timestamp) {
        either!(self, table => table.reset(hash, now));
    }

    /// Takes as of `since`, for a caller that was woken late.
    pub(crate) fn take_since(
        &mut self,
        hash: u64,
        since: Timestamp,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
    ) -> Answer {
        either!(self, table => table.take_since(hash, since, now, cost, max_wait))
    }

    /// Returns the key's current state for [`restore`](Self::restore).
    pub(crate) fn save(&mut self, hash: u64, now: Timestamp) -> Option<Box<dyn Any>> {
        either!(self, table => table.save(hash, now))
    }

    /// Restores the saved state of the key.
    pub(crate) fn restore(&mut self, hash: u64, saved: Box<dyn Any>, now: Timestamp) {
        either!(self, table => table.restore(hash, saved, now));
    }

    /// Drops everything, including the latest time.
    pub(crate) fn restart(&mut self) {
        either!(self, table => table.restart());
    }

    /// Appends the keys of one segment that are still in use at `used_at`; `false` if there is no such segment.
    pub(crate) fn save_segment(
        &mut self,
        index: usize,
        now: Timestamp,
        used_at: Timestamp,
        words: &mut Vec<u64>,
    ) -> bool {
        either!(self, table => table.save_segment(index, now, used_at, words))
    }

    /// Adds a saved key; `false` if its state is not one of this algorithm.
    pub(crate) fn load(&mut self, key: &SavedKey<'_>, now: Timestamp) -> bool {
        either!(self, table => table.load(key, now))
    }

    pub(crate) fn reclaim(&mut self, now: Timestamp) {
        either!(self, table => table.reclaim(now));
    }

    pub(crate) fn sweep_some(&mut self, now: Timestamp) {
        either!(self, table => table.sweep_some(now));
    }

    pub(crate) fn len(&self) -> usize {
        either!(self, table => table.len())
    }

    pub(crate) fn bytes(&self) -> usize {
        either!(self, table => table.bytes())
    }
}
