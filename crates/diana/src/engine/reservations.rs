//! The number of requests that wait for a reserved time, where a rule's `queue` bounds it.
//!
//! An algorithm with reservations (`smooth_*`, `refill`, `every`) assigns a time to every request, but only stores the
//! last one. So the pending times are stored here, per count. Over the bound a request is granted only if it need not
//! wait. A cancelled request removes its time, since it would otherwise block others.
//!
//! (A token bucket needs no such list: the number follows from its last reservation.)

use super::local::LocalCounts;
use super::queries::{AskList, Queries, Scope};
use super::verdict::Verdict;
use diana_core::{Decision, MaxWait, Timestamp};
use std::collections::{HashMap, VecDeque};

/// The pending reserved times, per count.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    by_count: HashMap<u64, VecDeque<Timestamp>>,
    /// Counts without waiters are swept when the number of counts has doubled since the last sweep.
    sweep_at: usize,
}

impl Reservations {
    /// Sets the maximum wait of queries to zero if their count has too many waiters.
    pub(super) fn bound(&mut self, counts: &LocalCounts, verdict: &Verdict, part: Scope, asks: &mut AskList<'_>) {
        for ((_, limit), ask) in Queries::places(verdict, part).zip(asks) {
            let Some(most) = limit.reserved else { continue };
            let Some(times) = self.by_count.get_mut(&counts.line(ask.limit.id(), ask.key)) else { continue };
            while times.front().is_some_and(|time| *time <= verdict.at()) {
                times.pop_front();
            }
            if times.len() >= most {
                ask.max_wait = MaxWait::NONE;
            }
        }
    }

    /// Stores the reserved times.
    pub(super) fn keep(&mut self, counts: &LocalCounts, verdict: &Verdict, part: Scope, made: &Decision) {
        if !made.is_granted() {
            return;
        }
        for ((applied, limit), answer) in Queries::places(verdict, part).zip(made.answers()) {
            let wait = answer.wait().filter(|wait| limit.reserved.is_some() && !wait.is_zero());
            let Some(wait) = wait else { continue };
            let count = counts.line(limit.limit.id(), verdict.found().key(applied));
            self.by_count.entry(count).or_default().push_back(verdict.at() + wait);
        }
        if self.by_count.len() > self.sweep_at {
            self.by_count.retain(|_, times| times.back().is_some_and(|time| *time > verdict.at()));
            self.sweep_at = (self.by_count.len() * 2).max(1_024);
        }
    }

    /// Removes the reserved times of a cancelled request.
    pub(super) fn give_up(&mut self, counts: &LocalCounts, verdict: &Verdict, part: Scope, made: &Decision) {
        for ((applied, limit), answer) in Queries::places(verdict, part).zip(made.answers()) {
            let wait = answer.wait().filter(|wait| limit.reserved.is_some() && !wait.is_zero());
            let Some(wait) = wait else { continue };
            let count = counts.line(limit.limit.id(), verdict.found().key(applied));
            let Some(times) = self.by_count.get_mut(&count) else { continue };
            let promised = verdict.at() + wait;
            if let Some(place) = times.iter().rposition(|time| *time == promised) {
                times.remove(place);
            }
            if times.is_empty() {
                self.by_count.remove(&count);
            }
        }
    }
}
