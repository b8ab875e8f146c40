//! The short way for token buckets of one word: decide under the lock, tell after it.

use super::Table;
use crate::algorithm::token_bucket::OneWordBucket;
use crate::{Algorithm, Answer, Cost, MaxWait, Timestamp};

/// A decision on a one-word state, of which everything but the state itself can still be worked out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneWordStep {
    bucket: OneWordBucket,
    before: u64,
    now: Timestamp,
}

impl Table<OneWordBucket> {
    /// Takes `cost` from a key that has an entry, and leaves working out the answer for after the lock: what is told to
    /// the asker is more arithmetic than the decision. `None` if the key has no entry.
    #[inline(always)]
    pub(crate) fn step(&mut self, hash: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Option<OneWordStep> {
        let now = self.tick(now);
        let index = self.touch(hash);
        let state = self.segments[index].get_mut(hash)?;
        let step = OneWordStep { bucket: self.algorithm, before: *state, now };
        let _told_later = self.algorithm.take(state, now, cost, max_wait);
        Some(step)
    }
}

impl OneWordStep {
    /// The answer, by the same function of the same values.
    #[inline(always)]
    pub(crate) fn answer(mut self, cost: Cost, max_wait: MaxWait) -> Answer {
        self.bucket.answer(&mut self.before, self.now, cost, max_wait)
    }
}
