//! Type-erased tables, so that the keys of limits of different kinds can be in one list.

use super::budget::Budget;
use super::erased_algorithm::AnyAlgorithm;
use super::table::{OnFull, SavedKey, Table, TentativeTake, Usage};
use crate::algorithm::Packed;
use crate::algorithm::token_bucket::PackedBucket;
use crate::sync::Arc;
use crate::{Algorithm, Answer, ClThrottle, Cost, MaxWait, Receipt, Refund, Sample, Timestamp};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

/// A question about one key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyQuery<'a> {
    Take,
    /// [`Take`](Self::Take), but a denial does not record the time.
    TakeIfGranted,
    /// Takes as of an earlier time, for a caller that was woken late.
    TakeSince(Timestamp),
    Peek,
    ClThrottle(&'a ClThrottle),
}

/// A change of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyChange<'a> {
    Charge(Cost),
    /// Reports the result of one response.
    Observe(&'a Sample),
    Reset,
}

/// A [`Table`] of any algorithm; each function is documented there.
pub(crate) trait AnyTable: Debug + Send {
    fn query(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait, query: KeyQuery<'_>) -> Answer;
    fn change(&mut self, hash: u64, now: Timestamp, change: KeyChange<'_>);
    fn refund(&mut self, hash: u64, now: Timestamp, receipt: &Receipt) -> Refund;
    fn take_tentatively(
        &mut self,
        hash: u64,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
        answers: &mut SmallVec<[Answer; 8]>,
    ) -> TentativeTake;
    fn undo_take(&mut self, hash: u64);
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
    /// Returns `true` if `algorithm` is of the kind of these keys.
    fn is_of_kind(&self, algorithm: &dyn AnyAlgorithm) -> bool;
    /// Changes to `algorithm` if it is of the same kind; otherwise returns `false`.
    fn change_to(&mut self, algorithm: &dyn AnyAlgorithm, now: Timestamp) -> bool;
}

impl<A: Algorithm> AnyTable for Table<A> {
    #[inline(always)]
    fn query(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait, query: KeyQuery<'_>) -> Answer {
        match query {
            KeyQuery::Take => self.take(hash, now, cost, max_wait),
            KeyQuery::TakeIfGranted => self.take_if_granted(hash, now, cost, max_wait),
            KeyQuery::TakeSince(since) => self.take_since(hash, since, now, cost, max_wait),
            KeyQuery::Peek => self.peek(hash, now, cost, max_wait),
            KeyQuery::ClThrottle(call) => self.cl_throttle(hash, now, call),
        }
    }

    fn change(&mut self, hash: u64, now: Timestamp, change: KeyChange<'_>) {
        match change {
            KeyChange::Charge(cost) => self.charge(hash, now, cost),
            KeyChange::Observe(sample) => self.observe(hash, now, sample),
            KeyChange::Reset => self.reset(hash, now),
        }
    }

    fn refund(&mut self, hash: u64, now: Timestamp, receipt: &Receipt) -> Refund {
        self.refund(hash, now, receipt)
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

    fn change_to(&mut self, algorithm: &dyn AnyAlgorithm, now: Timestamp) -> bool {
        let Some(same_kind) = algorithm.as_any().downcast_ref::<A>() else { return false };
        self.change(same_kind.clone(), now);
        true
    }
}

/// The table of a limit. Its type is known at compile time in the common case, which avoids dynamic dispatch in the
/// functions that decide; all others are those of [`AnyTable`].
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

impl Deref for Keys {
    type Target = dyn AnyTable;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Packed(table) => table,
            Self::Any(table) => &**table,
        }
    }
}

impl DerefMut for Keys {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Packed(table) => table,
            Self::Any(table) => &mut **table,
        }
    }
}

impl Keys {
    pub(crate) fn new(algorithm: &dyn AnyAlgorithm, on_full: OnFull, budget: Arc<Budget>) -> Self {
        match algorithm.packed() {
            Some(Packed(bucket)) => Self::Packed(Table::new(bucket, on_full, budget)),
            None => Self::Any(algorithm.new_table(on_full, budget)),
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
        let packed = algorithm.packed();
        let algorithm_of_keys = packed.as_ref().map_or(algorithm, |Packed(bucket)| bucket);
        if (**self).change_to(algorithm_of_keys, now) {
            self.set_budget(budget);
        } else {
            // Only the permits in use can be migrated to another kind of algorithm.
            let usage = self.drain(now);
            *self = Self::new(algorithm, on_full, Arc::clone(budget));
            self.adopt(usage, now);
        }
    }

    /// Returns `true` if `algorithm` is of the kind of these keys.
    pub(crate) fn is_of_kind(&self, algorithm: &dyn AnyAlgorithm) -> bool {
        match algorithm.packed() {
            Some(Packed(bucket)) => (**self).is_of_kind(&bucket),
            None => (**self).is_of_kind(algorithm),
        }
    }

    /// Calls [`AnyTable::query`], which is inlined for packed tables: most callers know the query.
    #[inline(always)]
    pub(crate) fn query(
        &mut self,
        hash: u64,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
        query: KeyQuery<'_>,
    ) -> Answer {
        match self {
            Self::Packed(table) => table.query(hash, now, cost, max_wait, query),
            Self::Any(table) => table.query(hash, now, cost, max_wait, query),
        }
    }

    #[inline(always)]
    pub(crate) fn take_tentatively(
        &mut self,
        hash: u64,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
        answers: &mut SmallVec<[Answer; 8]>,
    ) -> TentativeTake {
        match self {
            Self::Packed(table) => table.take_tentatively(hash, now, cost, max_wait, answers),
            Self::Any(table) => table.take_tentatively(hash, now, cost, max_wait, answers),
        }
    }
}
