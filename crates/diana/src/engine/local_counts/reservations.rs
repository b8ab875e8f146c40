//! The number of requests that wait for a reserved time, where a rule's `queue` bounds it.
//!
//! An algorithm with reservations (`smooth_*`, `refill`, `every`) assigns a time to every request, but only stores the
//! last one. So the pending times are stored here, per count. Over the bound a request is granted only if it need not
//! wait. A cancelled request removes its time, since it would otherwise block others.
//!
//! (A token bucket needs no such list: the number follows from its last reservation.)

use super::LocalCounts;
use diana_core::{Ask, Decision, MaxWait, Timestamp};
use std::collections::{HashMap, VecDeque};

/// The pending reserved times, per count. The bound of each query is `None` if its rule has none.
#[derive(Debug, Default)]
pub(in crate::engine) struct Reservations {
    by_count: HashMap<u64, VecDeque<Timestamp>>,
    /// Counts without waiters are swept when the number of counts has doubled since the last sweep.
    sweep_at: usize,
}

impl Reservations {
    /// Sets the maximum wait of queries to zero if their count has too many waiters.
    pub(in crate::engine) fn bound(
        &mut self,
        counts: &LocalCounts,
        asks: &mut [Ask<'_>],
        bounds: impl Iterator<Item = Option<usize>>,
        now: Timestamp,
    ) {
        for (ask, max) in asks.iter_mut().zip(bounds) {
            let Some(max) = max else { continue };
            let Some(times) = self.by_count.get_mut(&counts.queue_id(ask)) else { continue };
            while times.front().is_some_and(|time| *time <= now) {
                times.pop_front();
            }
            if times.len() >= max {
                ask.max_wait = MaxWait::NONE;
            }
        }
    }

    /// Stores the reserved times of a decision that was made at `now`.
    pub(in crate::engine) fn add(
        &mut self,
        counts: &LocalCounts,
        asks: &[Ask<'_>],
        bounds: impl Iterator<Item = Option<usize>>,
        decision: &Decision,
        now: Timestamp,
    ) {
        for (count, time) in reserved(counts, asks, bounds, decision, now) {
            self.by_count.entry(count).or_default().push_back(time);
        }
        if self.by_count.len() > self.sweep_at {
            self.by_count.retain(|_, times| times.back().is_some_and(|time| *time > now));
            self.sweep_at = (self.by_count.len() * 2).max(1_024);
        }
    }

    /// Removes the reserved times of a cancelled request, whose decision was made at `at`.
    pub(in crate::engine) fn remove(
        &mut self,
        counts: &LocalCounts,
        asks: &[Ask<'_>],
        bounds: impl Iterator<Item = Option<usize>>,
        decision: &Decision,
        at: Timestamp,
    ) {
        for (count, reserved) in reserved(counts, asks, bounds, decision, at) {
            let Some(times) = self.by_count.get_mut(&count) else { continue };
            if let Some(index) = times.iter().rposition(|time| *time == reserved) {
                times.remove(index);
            }
            if times.is_empty() {
                self.by_count.remove(&count);
            }
        }
    }
}

/// Returns the counts with a bound for which a decision reserved a time, and that time.
fn reserved(
    counts: &LocalCounts,
    asks: &[Ask<'_>],
    bounds: impl Iterator<Item = Option<usize>>,
    decision: &Decision,
    at: Timestamp,
) -> impl Iterator<Item = (u64, Timestamp)> {
    let answers = if decision.is_granted() { decision.answers() } else { &[] };
    asks.iter().zip(bounds).zip(answers).filter_map(move |((ask, max), answer)| {
        let wait = answer.wait().filter(|wait| max.is_some() && !wait.is_zero())?;
        Some((counts.queue_id(ask), at + wait))
    })
}
