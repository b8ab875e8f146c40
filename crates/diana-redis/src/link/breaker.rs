//! The breaker: whether a part of Redis is up.
//!
//! ```text
//!        a call fails or times out
//!   up ──────────────────────────────────▶ down: no calls are sent
//!      ◀──────────────────────────────────
//!        a probe could write in time
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
    generation: AtomicU64,
    outage: Mutex<Option<Outage>>,
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
    /// Returns the current generation if the part is up; `None` while it is down.
    pub(crate) fn up(&self) -> Option<u64> {
        let generation = self.generation.load(Ordering::Acquire);
        generation.is_multiple_of(2).then_some(generation)
    }

    /// Takes the part down, if this is still the generation in which it failed. Returns `true` if this call did it.
    pub(crate) fn take_down(&self, generation: u64, outage: Outage) -> bool {
        let mut current = self.outage.lock();
        let is_first =
            self.generation.compare_exchange(generation, generation + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_first {
            *current = Some(outage);
        }
        is_first
    }

    /// Brings the part up again. Returns the outage that ended.
    pub(crate) fn bring_up(&self) -> Option<Outage> {
        let outage = self.outage.lock().take();
        if outage.is_some() {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        outage
    }

    /// Updates the reason why the part is down, if it is. Returns `true` if the reason is new.
    pub(crate) fn explain(&self, reason: &str) -> bool {
        let mut outage = self.outage.lock();
        let Some(outage) = outage.as_mut().filter(|outage| outage.reason != reason) else { return false };
        reason.clone_into(&mut outage.reason);
        true
    }

    pub(crate) fn outage(&self) -> Option<Outage> {
        self.outage.lock().clone()
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
    fn a_late_failure_does_not_take_down_a_restored_part() {
        let breaker = Breaker::default();
        let outage = || Outage { since: Timestamp::from_secs(1), reason: "connection closed".to_owned() };
        let before = breaker.up().unwrap();
        assert!(breaker.take_down(before, outage()));
        assert!(!breaker.take_down(before, outage()));
        assert_eq!(breaker.up(), None);
        assert_eq!(breaker.bring_up(), Some(outage()));
        assert!(!breaker.take_down(before, outage()));
        assert!(breaker.up().is_some());
        assert_eq!(breaker.bring_up(), None);
        assert!(breaker.up().is_some());
    }

    #[test]
    fn every_part_has_its_own_probe() {
        for (part, probe) in probes("diana").iter().enumerate() {
            assert_eq!(part_of(crate::key::slot(probe.as_bytes())), part);
        }
        assert_eq!(probes("diana").len(), usize::from(CLUSTER_PARTS));
        assert_eq!(part_of(SLOTS - 1), usize::from(CLUSTER_PARTS) - 1);
    }

    #[test]
    fn probes_terminate_for_a_prefix_with_a_hash_tag() {
        assert_eq!(probes("{shop}").len(), 1);
    }

    #[test]
    fn no_state_has_the_name_of_a_probe() {
        for probe in probes("diana") {
            // A state's name has a colon after the prefix, and another one after the limit.
            assert_eq!(probe.matches(':').count(), 1, "{probe}");
        }
    }
}
