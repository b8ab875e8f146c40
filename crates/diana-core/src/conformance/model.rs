//! The expected answers of a store: the pure algorithms, and one state for each limit and key.
//!
//! As simple as possible: nothing is ever dropped, shared, or concurrent. It defines the contract of
//! [`LocalStore`](crate::LocalStore).

use crate::algorithm::erased_state::AnyState;
use crate::{Answer, Ask, Cost, Decision, Limit, LimitId, MaxWait, Status, Timestamp};
use std::collections::BTreeMap;

/// One state for each limit and key.
#[derive(Debug, Default)]
pub(super) struct Model {
    keys: BTreeMap<(LimitId, Vec<u8>), KeyState>,
}

#[derive(Debug)]
struct KeyState {
    version: u64,
    state: Box<dyn AnyState>,
}

impl Model {
    pub(super) fn decide(&mut self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        let peeked = self.peek(asks, now, max_wait);
        if !peeked.is_granted() {
            return peeked;
        }
        self.answer(asks, |model, ask, cost, max| model.key(ask.limit, ask.key, now).take(now, cost, max.min(max_wait)))
    }

    pub(super) fn peek(&mut self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        self.answer(asks, |model, ask, cost, max| model.key(ask.limit, ask.key, now).peek(now, cost, max.min(max_wait)))
    }

    pub(super) fn refund(&mut self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) {
        if !decision.is_granted() {
            return;
        }
        for (index, (ask, answer)) in asks.iter().zip(decision.answers()).enumerate() {
            let charged = first_of(asks, index) == index;
            if let Some(receipt) = answer.receipt().filter(|_| charged) {
                self.key(ask.limit, ask.key, now).refund(now, &receipt);
            }
        }
    }

    pub(super) fn charge(&mut self, ask: &Ask<'_>, now: Timestamp) {
        self.key(ask.limit, ask.key, now).charge(now, ask.cost);
    }

    pub(super) fn reset(&mut self, limit: &Limit, key: &[u8], now: Timestamp) {
        self.key(limit, key, now).reset(now);
    }

    /// Answers each count once, at the highest cost and with the shortest maximum wait of its asks.
    fn answer(
        &mut self,
        asks: &[Ask<'_>],
        mut answer_one: impl FnMut(&mut Self, &Ask<'_>, Cost, MaxWait) -> Answer,
    ) -> Decision {
        let mut answers: Vec<Answer> = Vec::new();
        for (index, ask) in asks.iter().enumerate() {
            let first = first_of(asks, index);
            let answer = match answers.get(first) {
                Some(earlier) => *earlier,
                None => {
                    let same = || asks.iter().filter(|other| other.same_count(ask));
                    let cost = same().map(|other| other.cost).fold(ask.cost, Ord::max);
                    let max_wait = same().map(|other| other.max_wait).fold(ask.max_wait, Ord::min);
                    answer_one(self, ask, cost, max_wait)
                }
            };
            answers.push(answer);
        }
        Decision::new(answers)
    }

    /// Returns the state of a key: created if it is new, migrated if the limit has changed.
    fn key(&mut self, limit: &Limit, key: &[u8], now: Timestamp) -> &mut dyn AnyState {
        let algorithm = limit.erased();
        let new = || KeyState { version: limit.version(), state: algorithm.new_state(now) };
        let key = self.keys.entry((limit.id(), key.to_vec())).or_insert_with(new);
        if key.version < limit.version() {
            key.version = limit.version();
            if !key.state.change_to(algorithm.as_any(), now) {
                let Status { limit, remaining, .. } = key.state.status(now);
                key.state = algorithm.occupied(limit - remaining, now);
            }
        }
        &mut *key.state
    }
}

/// Returns the first ask with the same count.
fn first_of(asks: &[Ask<'_>], index: usize) -> usize {
    asks.iter().position(|ask| ask.same_count(&asks[index])).unwrap_or(index)
}
