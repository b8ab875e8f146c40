//! Chooses an upstream for a request.
//!
//! # Round robin
//! Upstreams of equal weight are used in turn. With different weights, nginx's smooth weighted round robin spreads the
//! turns of each evenly: weights 3 and 1 yield `a a b a`. Each worker has its own turns, so that no worker waits for
//! another; of every `sum of weights` requests of a worker, each upstream gets exactly its weight.
//!
//! # Least requests
//! The upstream with the fewest requests in flight relative to its weight, of all workers together; among equals, the
//! next one in turn. It is the exact minimum, as in nginx (`least_conn`) and HAProxy (`leastconn`): reading a count costs
//! a few nanoseconds and lists are short, so choosing the better of two at random would save little.
//!
//! # Health
//! Upstreams that are ejected or fail their checks are skipped. If none is left, those that pass their checks are
//! tried, and otherwise all: that is better than failing every request.

use super::endpoint::Endpoint;
use super::health::ActiveHealth;
use super::retry_budget::GroupRetries;
use crate::section::Balance;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Upstreams that serve the same requests, in one worker.
pub(crate) struct Balancer {
    members: Box<[Member]>,
    selection: Selection,
    /// The number of turns so far.
    turns: AtomicUsize,
    /// The current weights of the smooth round robin.
    smooth: Mutex<Box<[i64]>>,
    pub(super) retries: Option<GroupRetries>,
}

/// An upstream of a group.
pub(super) struct Member {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) weight: u32,
    /// Whether its checks pass, if it is checked.
    pub(super) check: Option<Arc<ActiveHealth>>,
}

/// The algorithm that chooses an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    /// Round robin with equal weights.
    InTurn,
    Weighted,
    LeastRequests,
}

/// The state that an upstream must have at least to be chosen, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Require {
    /// The upstream passes its checks and is not ejected.
    Healthy,
    /// The upstream passes its checks.
    Passing,
    Nothing,
}

/// The indexes of the upstreams that may be chosen.
type Candidates = SmallVec<[usize; 16]>;

impl Member {
    fn has(&self, required: Require, now: u64) -> bool {
        let passes = || self.check.as_ref().is_none_or(|check| check.is_passing());
        match required {
            Require::Healthy => self.endpoint.is_healthy(now) && passes(),
            Require::Passing => passes(),
            Require::Nothing => true,
        }
    }
}

impl Balancer {
    pub(super) fn new(members: Vec<Member>, balance: Balance, retries: Option<GroupRetries>) -> Self {
        let has_equal_weights = members.windows(2).all(|pair| pair[0].weight == pair[1].weight);
        let selection = match balance {
            Balance::LeastRequests => Selection::LeastRequests,
            Balance::RoundRobin if has_equal_weights => Selection::InTurn,
            Balance::RoundRobin => Selection::Weighted,
        };
        let smooth = Mutex::new(vec![0; members.len()].into());
        Self { members: members.into(), selection, turns: AtomicUsize::new(0), smooth, retries }
    }

    /// Creates a balancer that always chooses the same upstream.
    pub(super) fn of_one(endpoint: Arc<Endpoint>) -> Self {
        Self::new(vec![Member { endpoint, weight: 1, check: None }], Balance::RoundRobin, None)
    }

    /// Returns the upstream for a request; `None` if the group is empty.
    pub(super) fn next(&self, now: u64) -> Option<&Arc<Endpoint>> {
        if self.selection == Selection::InTurn && !self.members.is_empty() {
            let turn = self.turns.fetch_add(1, Ordering::Relaxed);
            let member = &self.members[turn % self.members.len()];
            if member.has(Require::Healthy, now) {
                return Some(&member.endpoint);
            }
        }
        self.next_except(now, &[], Require::Nothing)
    }

    /// Returns an upstream for a request that others have failed, which has at least the `required` state.
    pub(super) fn next_except(&self, now: u64, failed: &[Arc<Endpoint>], required: Require) -> Option<&Arc<Endpoint>> {
        let is_failed = |member: &Member| failed.iter().any(|endpoint| Arc::ptr_eq(endpoint, &member.endpoint));
        let states = [Require::Healthy, Require::Passing, Require::Nothing].into_iter();
        for state in states.filter(|state| *state <= required) {
            let is_candidate = |member: &Member| !is_failed(member) && member.has(state, now);
            let members = self.members.iter().enumerate();
            let candidates: Candidates =
                members.filter(|(_, member)| is_candidate(member)).map(|(index, _)| index).collect();
            if let Some(index) = self.choose(candidates) {
                return Some(&self.members[index].endpoint);
            }
        }
        None
    }

    /// Chooses one of the candidates; `None` if there is none.
    fn choose(&self, mut candidates: Candidates) -> Option<usize> {
        if self.selection == Selection::LeastRequests {
            // Loads are read once: they change all the time.
            let load = |index: usize| self.members[index].endpoint.load();
            let loads: SmallVec<[u64; 16]> = candidates.iter().map(|index| load(*index)).collect();
            let relative = |at: usize| (loads[at], u64::from(self.members[candidates[at]].weight));
            let is_less = |one: usize, other: usize| {
                let ((load, weight), (other_load, other_weight)) = (relative(one), relative(other));
                load.saturating_mul(other_weight) < other_load.saturating_mul(weight)
            };
            let least = (0..candidates.len()).reduce(|least, at| if is_less(at, least) { at } else { least })?;
            let equal: Candidates =
                (0..candidates.len()).filter(|at| !is_less(least, *at)).map(|at| candidates[at]).collect();
            candidates = equal;
        }
        match *candidates {
            [] => None,
            [only] => Some(only),
            _ => Some(self.smooth_round_robin(&candidates)),
        }
    }

    /// Chooses in proportion to the weights. Each candidate gains its weight, and the one that is then highest is chosen
    /// and loses the sum of all.
    fn smooth_round_robin(&self, candidates: &[usize]) -> usize {
        let mut current = self.smooth.lock();
        let (mut best, mut total) = (candidates[0], 0);
        for &index in candidates {
            let weight = i64::from(self.members[index].weight);
            current[index] += weight;
            total += weight;
            if current[index] > current[best] {
                best = index;
            }
        }
        current[best] -= total;
        best
    }
}
