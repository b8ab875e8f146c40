//! Decisions over several limits in one pass: each key is hashed once and looked up once.
//!
//! # How it works
//! The shards of all keys are locked in ascending order. Then each limit is asked in turn and takes at once; if a later
//! one denies, the states before are put back, bit for bit, before the locks are released. So no other
//! request sees them.
//!
//! Two kinds of asks can't be undone like that: those of new keys, whose insertion may grow a table, and those of states
//! with heap memory, which are too large to copy. They are taken last, after all others have granted.
//!
//! # What is decided elsewhere
//! Requests with two asks of the same table, or more than sixteen asks, and all requests near the memory bound, where a
//! take may leave no memory for the next: [`check_then_take`](MemoryStore::check_then_take).

use super::super::erased_table::{KeyQuery, Keys};
use super::super::shards::MAX_SHARDS;
use super::super::table::TentativeTake;
use super::check_then_take::Answers;
use super::{Ask, MemoryStore, Shard};
use crate::sync::MutexGuard;
use crate::{Answer, MaxWait, Outcome, Status, Timestamp};
use smallvec::SmallVec;
use std::time::Duration;

/// The maximum number of asks. More are rare, and would need larger lists on the stack of every request.
const MAX_ASKS: usize = 16;

/// Fills the place of an answer that is not known yet.
const UNKNOWN: Answer = Answer::new(Outcome::never(), Status { limit: 0, remaining: 0, reset: Duration::ZERO });

/// Locked shards, each with its index.
type Guards<'a> = SmallVec<[(usize, MutexGuard<'a, Shard>); MAX_ASKS]>;

/// The locked shards of a request.
enum Locked<'a, 'b> {
    One(&'a mut Shard),
    Several(&'a mut [(usize, MutexGuard<'b, Shard>)]),
}

/// The shards of the keys of a request.
enum KeyShards {
    One(usize),
    Several,
}

/// A request that is being decided.
struct Request<'a, 'b> {
    store: &'a MemoryStore,
    asks: &'a [Ask<'a>],
    hashes: &'a [u64],
    locked: Locked<'a, 'b>,
    now: Timestamp,
    max_wait: MaxWait,
    /// The asks that could not be taken tentatively, one bit for each.
    pending: u32,
}

impl MemoryStore {
    /// Decides `asks`, and appends the answers to `answers`. Returns `false` if they can't be decided in one pass: then
    /// nothing has changed, and the answers mean nothing.
    #[inline(always)]
    pub(super) fn take_in_one_pass(
        &self,
        asks: &[Ask<'_>],
        now: Timestamp,
        max_wait: MaxWait,
        answers: &mut Answers,
    ) -> bool {
        let mut hashes = [0; MAX_ASKS];
        let Some(hashes) = hashes.get_mut(..asks.len()) else { return false };
        if self.budget.is_short() || self.budget.is_nearly_used_up() {
            return false;
        }
        let Some(shard) = self.hash_keys(asks, hashes) else { return false };
        let (mut one, mut several);
        let locked = match shard {
            KeyShards::One(shard) => {
                one = self.shards.lock_at(shard);
                Locked::One(&mut one)
            }
            KeyShards::Several => {
                several = Guards::new();
                self.lock_several(hashes, &mut several);
                Locked::Several(&mut several)
            }
        };
        Request { store: self, asks, hashes, locked, now, max_wait, pending: 0 }.take(answers)
    }

    /// Hashes the keys. `None` if there are no asks, or two of the same table, which can undo only one take.
    #[inline(always)]
    fn hash_keys(&self, asks: &[Ask<'_>], hashes: &mut [u64]) -> Option<KeyShards> {
        let (first, rest) = asks.split_first()?;
        let (mut key, mut hash) = (first.key, self.shards.hash_bytes(first.key));
        // One bit for each remainder of a limit's number: if it is not set, no earlier ask has the same limit.
        let mut limits = limit_bit(first);
        *hashes.first_mut()? = hash;
        let first_shard = self.shards.index(hash);
        let mut shards = KeyShards::One(first_shard);
        for (index, ask) in (1..hashes.len().min(MAX_ASKS)).zip(rest) {
            // The limits of one key are often next to each other, and comparing keys is cheaper than hashing one.
            if !std::ptr::eq(key, ask.key) && key != ask.key {
                (key, hash) = (ask.key, self.shards.hash_bytes(ask.key));
                if self.shards.index(hash) != first_shard {
                    shards = KeyShards::Several;
                }
            }
            let bit = limit_bit(ask);
            if limits & bit != 0 && self.has_same_table(&asks[..index], hashes, ask, hash) {
                return None;
            }
            limits |= bit;
            hashes[index] = hash;
        }
        Some(shards)
    }

    /// Returns `true` if one of the `earlier` asks is of the same table as `ask`.
    #[cold]
    fn has_same_table(&self, earlier: &[Ask<'_>], hashes: &[u64], ask: &Ask<'_>, hash: u64) -> bool {
        let same_shard = |earlier_hash: u64| self.shards.index(earlier_hash) == self.shards.index(hash);
        let mut earlier = earlier.iter().zip(hashes);
        earlier.any(|(earlier, earlier_hash)| earlier.limit.id() == ask.limit.id() && same_shard(*earlier_hash))
    }

    /// Locks the shards of `hashes`, in ascending order.
    #[inline(always)]
    fn lock_several<'a>(&'a self, hashes: &[u64], guards: &mut Guards<'a>) {
        // One bit for each shard: so they are in order, and each is locked once.
        let mut shards = [0_u64; MAX_SHARDS / 64];
        for hash in hashes {
            let shard = self.shards.index(*hash);
            shards[shard / 64] |= 1 << (shard % 64);
        }
        for (word, mut bits) in shards.into_iter().enumerate() {
            while bits != 0 {
                let shard = word * 64 + bits.trailing_zeros() as usize;
                guards.push((shard, self.shards.lock_at(shard)));
                bits &= bits - 1;
            }
        }
    }
}

/// Returns the bit of an ask's limit in a set of 64.
#[inline(always)]
fn limit_bit(ask: &Ask<'_>) -> u64 {
    1 << (ask.limit.id().number() % 64)
}

impl Request<'_, '_> {
    /// Takes from each limit, and undoes that if one denies. Returns `false` if memory ran out; nothing has changed.
    #[inline(always)]
    fn take(mut self, answers: &mut Answers) -> bool {
        for (index, (ask, hash)) in self.asks.iter().zip(self.hashes).enumerate() {
            let shard = self.locked.shard(self.store.shards.index(*hash));
            let keys = self.store.keys_for_read(shard, ask.limit, self.now);
            let max_wait = self.max_wait.min(ask.max_wait);
            match keys.take_tentatively(*hash, self.now, ask.cost, max_wait, answers) {
                TentativeTake::Granted => {}
                TentativeTake::Denied => {
                    answers.resize(self.asks.len(), UNKNOWN);
                    for other in (0..self.asks.len()).filter(|other| *other != index) {
                        answers[other] = self.undo_and_peek(other, index);
                    }
                    return true;
                }
                TentativeTake::Unsupported => {
                    answers.push(UNKNOWN);
                    self.pending |= 1 << index;
                }
            }
        }
        self.pending == 0 || self.take_pending(answers)
    }

    /// Takes the asks that could not be taken tentatively, after all others have granted.
    #[inline(never)]
    fn take_pending(&mut self, answers: &mut Answers) -> bool {
        let pending = self.pending;
        let mut in_reverse = (0..self.asks.len()).rev().filter(move |index| pending & (1 << index) != 0);
        let Some(last) = in_reverse.next() else { return true };
        // The last one decides by its take: if it denies, there is nothing of it to undo.
        let mut all_grant = in_reverse.clone().all(|index| self.query(index, KeyQuery::Peek).is_granted());
        if all_grant {
            answers[last] = self.query(last, KeyQuery::TakeIfGranted);
            all_grant = answers[last].is_granted();
        }
        if !all_grant {
            for (index, answer) in answers.iter_mut().enumerate() {
                *answer = self.undo_and_peek(index, self.asks.len());
            }
            // In a table that was full, the second lookup may have freed memory.
            return !answers.iter().all(Answer::is_granted);
        }
        for index in in_reverse {
            answers[index] = self.query(index, KeyQuery::TakeIfGranted);
            if !answers[index].is_granted() {
                // The takes since its check have used the last of the memory.
                self.refund_all(answers);
                return false;
            }
        }
        true
    }

    /// Asks the key of the ask at `index`.
    fn query(&mut self, index: usize, query: KeyQuery<'_>) -> Answer {
        let (hash, now, Ask { cost, max_wait, .. }) = (self.hashes[index], self.now, self.asks[index]);
        let max_wait = self.max_wait.min(max_wait);
        self.keys(index).query(hash, now, cost, max_wait, query)
    }

    fn keys(&mut self, index: usize) -> &mut Keys {
        let shard = self.locked.shard(self.store.shards.index(self.hashes[index]));
        self.store.keys_for_read(shard, self.asks[index].limit, self.now)
    }

    /// Undoes the ask at `index` if it was taken tentatively, as one of the asks before `end`; returns its answer to a
    /// request that is denied.
    fn undo_and_peek(&mut self, index: usize, end: usize) -> Answer {
        if index < end && self.pending & (1 << index) == 0 {
            let hash = self.hashes[index];
            self.keys(index).undo_take(hash);
        }
        self.query(index, KeyQuery::Peek)
    }

    /// Undoes all tentative takes, and refunds the takes that are not undone like that.
    #[cold]
    fn refund_all(&mut self, answers: &Answers) {
        for (index, answer) in answers.iter().enumerate() {
            let (hash, now, is_pending) = (self.hashes[index], self.now, self.pending & (1 << index) != 0);
            let keys = self.keys(index);
            match answer.receipt() {
                _ if !is_pending => keys.undo_take(hash),
                Some(receipt) => drop(keys.refund(hash, now, &receipt)),
                None => {}
            }
        }
    }
}

impl Locked<'_, '_> {
    /// Returns the shard with this index, which must be locked.
    #[inline(always)]
    fn shard(&mut self, index: usize) -> &mut Shard {
        match self {
            Self::One(shard) => shard,
            Self::Several(shards) => {
                let locked_shard = shards.iter_mut().find(|(shard, _)| *shard == index);
                locked_shard.map_or_else(|| unreachable!("the shard of every key was locked"), |(_, shard)| shard)
            }
        }
    }
}
