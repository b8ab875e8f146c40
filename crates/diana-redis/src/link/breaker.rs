//! The breaker: whether a part of Redis is up.
//!
//! ```text
//!           a request fails or waits too long
//!   up ────────────────────────────────────────▶ down: nobody asks
//!      ◀────────────────────────────────────────
//!           the repairer could write, in time
//! ```
//!
//! A single server is one part. A cluster has many, since one of its masters may be unreachable while the others are
//! not: blocks of adjacent slots, which is how clusters distribute them.

use super::clock_offset::ClockOffset;
use diana_core::Timestamp;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of parts of a cluster.
pub(crate) const CLUSTER_PARTS: u16 = 64;
const SLOTS: u16 = 16_384;

/// One part of Redis.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// Odd while the part is down; incremented with each change, so that a late failure can't take down a part that is
    /// up again.
    turn: AtomicU64,
    trouble: Mutex<Option<Outage>>,
    /// The clock of the node that has this part.
    pub(crate) offset: ClockOffset,
}

/// Since when a part is down, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) since: Timestamp,
    pub(crate) reason: String,
}

impl Breaker {
    /// Returns the current turn if the part is up; `None` while it is down.
    pub(crate) fn up(&self) -> Option<u64> {
        let turn = self.turn.load(Ordering::Acquire);
        turn.is_multiple_of(2).then_some(turn)
    }

    /// Takes the part down, if this is still the turn in which it failed. Returns `true` if this call did it.
    pub(crate) fn take_down(&self, turn: u64, trouble: Outage) -> bool {
        let mut current = self.trouble.lock();
        let is_first = self.turn.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_first {
            *current = Some(trouble);
        }
        is_first
    }

    /// Brings the part up again. Returns the outage that ended.
    pub(crate) fn bring_up(&self) -> Option<Outage> {
        let trouble = self.trouble.lock().take();
        if trouble.is_some() {
            self.turn.fetch_add(1, Ordering::AcqRel);
        }
        trouble
    }

    /// Updates the reason why the part is down, if it is. Returns `true` if the reason is new.
    pub(crate) fn explain(&self, reason: &str) -> bool {
        let mut trouble = self.trouble.lock();
        let Some(trouble) = trouble.as_mut().filter(|trouble| trouble.reason != reason) else { return false };
        reason.clone_into(&mut trouble.reason);
        true
    }

    pub(crate) fn trouble(&self) -> Option<Outage> {
        self.trouble.lock().clone()
    }
}

/// Returns the part of a cluster that a slot belongs to.
pub(crate) fn part_of(slot: u16) -> usize {
    usize::from(slot / (SLOTS / CLUSTER_PARTS))
}

/// Returns a key name in each part of a cluster, for probes. They differ from all state names, which have a colon after
/// the limit's name.
pub(crate) fn probes(prefix: &str) -> Vec<String> {
    let name = |tag: u16| format!("{prefix}:probe{{{tag}}}");
    let mut probes = vec![None; usize::from(CLUSTER_PARTS)];
    // About 300 are enough, unless all names have the same hash tag.
    for tag in 0..u16::MAX {
        if probes.iter().all(Option::is_some) {
            break;
        }
        let part = part_of(crate::key::slot(name(tag).as_bytes()));
        if let Some(probe) = probes.get_mut(part).filter(|probe| probe.is_none()) {
            *probe = Some(name(tag));
        }
    }
    probes.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_failure_does_not_break_what_was_repaired() {
        let part = Breaker::default();
        let trouble = || Outage { since: Timestamp::from_secs(1), reason: "gone".to_owned() };
        let before = part.up().unwrap();
        assert!(part.take_down(before, trouble()));
        assert!(!part.take_down(before, trouble()));
        assert_eq!(part.up(), None);
        assert_eq!(part.bring_up(), Some(trouble()));
        assert!(!part.take_down(before, trouble()));
        assert!(part.up().is_some());
        assert_eq!(part.bring_up(), None);
        assert!(part.up().is_some());
    }

    #[test]
    fn every_part_has_a_name_of_its_own() {
        for (part, probe) in probes("diana").iter().enumerate() {
            assert_eq!(part_of(crate::key::slot(probe.as_bytes())), part);
        }
        assert_eq!(probes("diana").len(), usize::from(CLUSTER_PARTS));
        assert_eq!(part_of(SLOTS - 1), usize::from(CLUSTER_PARTS) - 1);
    }

    #[test]
    fn a_prefix_with_a_hash_tag_comes_to_an_end() {
        assert_eq!(probes("{shop}").len(), 1);
    }

    #[test]
    fn no_state_is_called_like_a_probe() {
        for probe in probes("diana") {
            // A state's name has a colon after the prefix, and another one after the limit.
            assert_eq!(probe.matches(':').count(), 1, "{probe}");
        }
    }
}
