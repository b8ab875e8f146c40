//! How many wait for a time that they were promised, where a rule's `queue` bounds them.
//!
//! An algorithm that reserves (`smooth_*`, `refill`, `every`) promises everybody a time, and knows only the last one. So those
//! whose time has not come are kept here, by count. Beyond the bound a request is granted only if it need not wait. Who gives
//! up takes its time along, or those who are gone would keep others out.
//!
//! (A token bucket needs no such list: its last promise tells how many there are.)

use super::local::LocalCounts;
use super::queries::{AskList, Queries, Scope};
use super::verdict::Verdict;
use diana_core::{Decision, MaxWait, Timestamp};
use std::collections::{HashMap, VecDeque};

/// The promised times that have not come yet, by count.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    by_count: HashMap<u64, VecDeque<Timestamp>>,
    /// Counts are looked through for those that nobody waits for any more when there are twice as many as the last time.
    sweep_at: usize,
}

impl Reservations {
    /// Takes the maximum wait from asks of which too many wait already.
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

    /// Keeps the times that were promised.
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

    /// Forgets the times that were promised to a request that gave up.
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
