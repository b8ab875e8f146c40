//! The fast path for one-word token buckets: decides under the lock, computes the answer after it.

use super::Table;
use crate::algorithm::token_bucket::PackedBucket;
use crate::{Algorithm, Answer, Cost, MaxWait, Timestamp};

/// A decision on a one-word state; its answer is computed later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedTake {
    bucket: PackedBucket,
    before: u64,
    now: Timestamp,
}

impl Table<PackedBucket> {
    /// Takes `cost` from a key that has an entry. The answer is computed after the lock is released, since it takes
    /// more arithmetic than the decision. `None` if the key has no entry.
    #[inline(always)]
    pub(crate) fn take_packed(
        &mut self,
        hash: u64,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
    ) -> Option<PackedTake> {
        let now = self.tick(now);
        let index = self.touch(hash);
        let state = self.segments[index].get_mut(hash)?;
        let taken = PackedTake { bucket: self.algorithm, before: *state, now };
        let _outcome = self.algorithm.take(state, now, cost, max_wait);
        Some(taken)
    }
}

impl PackedTake {
    /// Returns the answer, computed by the same function from the same values.
    #[inline(always)]
    pub(crate) fn answer(mut self, cost: Cost, max_wait: MaxWait) -> Answer {
        self.bucket.answer(&mut self.before, self.now, cost, max_wait)
    }
}
