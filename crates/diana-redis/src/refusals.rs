//! Refusals that are remembered, so that the same request is refused without asking.
//!
//! A refusal for cost `c` says when the same would be granted. Until then, whoever asks for `c` or more under the same
//! limit and key gets no, whatever others do meanwhile: others can only take. What gives is time, which was reckoned with,
//! and a refund, a reset or a change of the limit, after which the refusal is forgotten.
//!
//! A grant of the last that there was says the same of the next one: so of a flood not even the first needs to be refused
//! by Redis.
//!
//! The time counts from when the question was sent, which is before Redis answered it: so a refusal is forgotten a little
//! too early, never too late.

use crate::plans::Plan;
use crate::request::Item;
use diana_core::{Answer, Outcome, Patience, Retry, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

const SHARDS: usize = 16;
/// The most refusals that are remembered: those that don't fit cost a trip, nothing else.
const MOST: usize = 65_536;
/// How long one is believed at most, since another process may refund or reset.
const LONGEST: Duration = Duration::from_secs(1);

/// The refusals of all keys, by the names of their states.
#[derive(Debug)]
pub(crate) struct Refusals {
    hasher: RandomState,
    shards: [Mutex<HashMap<Vec<u8>, Refusal>>; SHARDS],
}

#[derive(Clone, Debug)]
struct Refusal {
    /// Under which parameters it was refused.
    plan: Arc<Plan>,
    cost: u64,
    patience: Patience,
    asked: Timestamp,
    until: Timestamp,
    answer: Answer,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Refusals {
    /// The answer to `item` at `now`, if it is known to be a refusal.
    pub(crate) fn answer(&self, item: &Item, now: Timestamp) -> Option<Answer> {
        let shard = self.shard(&item.name).lock();
        let refusal = shard.get(&item.name)?;
        let holds = now < refusal.until
            && item.asking.cost.get() >= refusal.cost
            && item.asking.patience <= refusal.patience
            && Arc::ptr_eq(&item.plan, &refusal.plan);
        holds.then(|| refusal.answer_at(now))
    }

    /// Remembers what `item`, which was asked at `asked`, was answered, if that is a refusal.
    pub(crate) fn remember(&self, item: &Item, answer: &Answer, asked: Timestamp) {
        let holds = match answer.retry() {
            Some(Retry::After(after)) => after.min(LONGEST),
            Some(Retry::Never) => LONGEST,
            // Somebody may give back at any time.
            Some(Retry::WhenReturned) | None => return,
        };
        let refusal = Refusal {
            plan: Arc::clone(&item.plan),
            cost: item.asking.cost.get(),
            patience: item.asking.patience,
            asked,
            until: asked + holds,
            answer: *answer,
        };
        let mut shard = self.shard(&item.name).lock();
        if shard.len() >= MOST / SHARDS && !shard.contains_key(&item.name) {
            shard.retain(|_, refusal| asked < refusal.until);
            if shard.len() >= MOST / SHARDS {
                return;
            }
        }
        // A smaller cost says more, while it holds; the newest one is known to hold.
        shard.insert(item.name.clone(), refusal);
    }

    /// Forgets what is known of the state with this name.
    pub(crate) fn forget(&self, name: &[u8]) {
        self.shard(name).lock().remove(name);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            shard.lock().clear();
        }
    }

    fn shard(&self, name: &[u8]) -> &Mutex<HashMap<Vec<u8>, Refusal>> {
        let hash = self.hasher.hash_one(name);
        &self.shards[usize::from(hash.to_le_bytes()[7]) % SHARDS]
    }
}

impl Refusal {
    /// The answer as it is at `now`: times are shorter by what has passed.
    fn answer_at(&self, now: Timestamp) -> Answer {
        let passed = now.since(self.asked);
        let mut answer = self.answer;
        if let Outcome::Denied { retry: Retry::After(after) } = &mut answer.outcome {
            *after = after.saturating_sub(passed);
        }
        answer.standing.reset = answer.standing.reset.saturating_sub(passed);
        answer
    }
}
