//! Decisions over any number of asks, near the memory bound too: all limits are checked without effect first, and charged
//! only if all of them grant.

use super::super::erased_table::{KeyQuery, Keys};
use super::{Ask, MemoryStore, Shard};
use crate::sync::MutexGuard;
use crate::{Answer, Cost, Decision, Limit, MaxWait, Timestamp};
use smallvec::SmallVec;
use std::any::Any;

/// An ask and its location.
pub(super) struct Location {
    hash: u64,
    shard: usize,
    /// The earlier ask with the same count, which is charged for both, if any.
    same_as: Option<usize>,
}

/// A request whose asks are located.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) asks: &'a [Ask<'a>],
    pub(super) locations: &'a Locations,
    pub(super) now: Timestamp,
    pub(super) max_wait: MaxWait,
}

/// How the keys of a limit are looked up: `MemoryStore::keys` or `keys_for_read`.
pub(super) type FindKeys = for<'a> fn(&MemoryStore, &'a mut Shard, &Limit, Timestamp) -> &'a mut Keys;
pub(super) type Answers = SmallVec<[Answer; 8]>;
pub(super) type Locations = SmallVec<[Location; 8]>;
/// The states of keys before they were charged, by the index of the ask; `None` if a refund restores the state.
type Saved = SmallVec<[(usize, Option<Box<dyn Any>>); 4]>;
pub(super) type Locked<'a> = SmallVec<[(usize, MutexGuard<'a, Shard>); 8]>;

impl MemoryStore {
    /// Finds the location of each ask, and which asks use the same count.
    pub(super) fn locate(&self, asks: &[Ask<'_>]) -> Locations {
        let mut locations = Locations::with_capacity(asks.len());
        for (index, ask) in asks.iter().enumerate() {
            let hash = self.shards.hash_bytes(ask.key);
            let same_as = asks[..index].iter().position(|earlier| earlier.same_count(ask));
            locations.push(Location { hash, shard: self.shards.index(hash), same_as });
        }
        locations
    }

    /// Locks every shard of `locations`, in ascending order.
    pub(super) fn lock(&self, locations: &Locations) -> Locked<'_> {
        let mut indexes: SmallVec<[usize; 8]> = locations.iter().map(|location| location.shard).collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes.into_iter().map(|index| (index, self.shards.lock_at(index))).collect()
    }

    /// Answers each ask; one with the same count as an earlier one gets that one's answer.
    pub(super) fn answers(
        &self,
        find: FindKeys,
        request: Request<'_>,
        locked: &mut Locked<'_>,
        query: KeyQuery<'_>,
    ) -> Decision {
        let Request { asks, locations, now, max_wait } = request;
        let mut answers = Answers::with_capacity(asks.len());
        for (index, location) in locations.iter().enumerate() {
            let answer = match location.same_as {
                Some(first) => answers[first],
                None => {
                    let keys = find(self, shard_of(locked, location), asks[index].limit, now);
                    let (cost, own_max_wait) = charge_of(asks, locations, index);
                    keys.query(location.hash, now, cost, own_max_wait.min(max_wait), query)
                }
            };
            answers.push(answer);
        }
        Decision::from(answers)
    }

    /// Decides any number of asks: checks all of them, and charges them only if all limits grant.
    // Apart, so that its variables do not enlarge the stack of the usual decision.
    #[cold]
    #[inline(never)]
    pub(super) fn check_then_take(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        let locations = self.locate(asks);
        let mut locked = self.lock(&locations);
        let request = Request { asks, locations: &locations, now, max_wait };
        let answers = |locked: &mut Locked<'_>, query| self.answers(Self::keys, request, locked, query);
        // In a table that was full, the first lookup may free memory for the second.
        if !answers(&mut locked, KeyQuery::Peek).is_granted() {
            let peeked = answers(&mut locked, KeyQuery::Peek);
            if !peeked.is_granted() {
                return peeked;
            }
        }
        // Near the bound there may be memory for one new key but not for two, which is known only while charging.
        let mut saved = Saved::new();
        if self.budget.is_nearly_used_up() {
            for (index, location) in locations.iter().enumerate().filter(|(_, location)| location.same_as.is_none()) {
                let keys = self.keys(shard_of(&mut locked, location), asks[index].limit, now);
                saved.push((index, keys.save(location.hash, now)));
            }
        }
        let taken = answers(&mut locked, KeyQuery::Take);
        if taken.is_granted() {
            return taken;
        }
        if saved.is_empty() {
            // One key's heap memory exceeded all free memory.
            self.refund_locked(asks, &locations, &mut locked, &taken, now);
        }
        for (index, before) in saved {
            let location = &locations[index];
            let keys = self.keys(shard_of(&mut locked, location), asks[index].limit, now);
            match (before, taken.answers()[index].receipt()) {
                (Some(before), _) => keys.restore(location.hash, before, now),
                (None, Some(receipt)) => drop(keys.refund(location.hash, now, &receipt)),
                (None, None) => {}
            }
        }
        let restored = answers(&mut locked, KeyQuery::Peek);
        let answers = restored.answers().iter().zip(taken.answers());
        Decision::new(answers.map(|(restored, taken)| if taken.is_granted() { *restored } else { *taken }))
    }

    pub(super) fn refund_locked(
        &self,
        asks: &[Ask<'_>],
        locations: &Locations,
        locked: &mut Locked<'_>,
        decision: &Decision,
        now: Timestamp,
    ) {
        for ((ask, location), answer) in asks.iter().zip(locations).zip(decision.answers()) {
            let (None, Some(receipt)) = (location.same_as, answer.receipt()) else { continue };
            // A late refund does not recreate a limit that was dropped.
            if !shard_of(locked, location).limits.contains_key(&ask.limit.id()) {
                continue;
            }
            let keys = self.keys(shard_of(locked, location), ask.limit, now);
            // A receipt is valid only for the kind of algorithm that created it.
            if keys.is_of_kind(ask.limit.erased()) {
                keys.refund(location.hash, now, &receipt);
            }
        }
    }
}

/// Returns the charge of the ask at `index`: the highest cost and the shortest maximum wait of all asks with its count.
fn charge_of(asks: &[Ask<'_>], locations: &Locations, index: usize) -> (Cost, MaxWait) {
    let same = asks.iter().zip(locations).filter(|(_, location)| location.same_as == Some(index));
    let Ask { cost, max_wait, .. } = asks[index];
    same.fold((cost, max_wait), |(cost, max_wait), (ask, _)| (cost.max(ask.cost), max_wait.min(ask.max_wait)))
}

/// Returns the locked shard of a location.
fn shard_of<'a>(locked: &'a mut Locked<'_>, location: &Location) -> &'a mut Shard {
    let locked_shard = locked.iter_mut().find(|(shard, _)| *shard == location.shard);
    locked_shard.map_or_else(|| unreachable!("the shard of every location was locked"), |(_, shard)| shard)
}
