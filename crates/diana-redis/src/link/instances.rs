//! How many instances share the limits, estimated from their heartbeats.

use diana_core::Timestamp;
use std::time::Duration;

/// The estimated number of live instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instances {
    pub(super) count: u64,
    /// Since when fewer instances are seen.
    pub(super) fewer_since: Option<Timestamp>,
}

impl Instances {
    /// Updates the number from the instances seen. A lower number is accepted only after it was seen for
    /// `accepted_after`: after an outage not all instances have reconnected yet, and if a whole machine was paused, so
    /// were the heartbeats of all its instances. The first one that sends a heartbeat again must not assume that it is
    /// the only one.
    pub(super) fn learn(&mut self, seen: u64, now: Timestamp, accepted_after: Duration) {
        let since = *self.fewer_since.get_or_insert(now);
        if seen >= self.count || now.since(since) > accepted_after {
            *self = Self { count: seen, fewer_since: None };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::counters::Counters;
    use diana_core::Timestamp;
    use std::time::Duration;

    #[test]
    fn an_increase_of_instances_counts_at_once_and_a_decrease_after_a_delay() {
        let counters = Counters::default();
        let see = |seen, secs| {
            counters.learn_instances(seen, Timestamp::from_secs(secs), Duration::from_secs(3));
            counters.instances()
        };
        assert_eq!(counters.instances(), 1);
        assert_eq!([see(1, 1), see(3, 2)], [1, 3]);
        // A late heartbeat.
        assert_eq!([see(1, 10), see(2, 11), see(3, 12)], [3, 3, 3]);
        // An instance that has stopped.
        assert_eq!([see(2, 20), see(2, 21), see(2, 23), see(2, 24)], [3, 3, 3, 2]);
        // An outage in which all are unreachable for a while.
        assert_eq!(see(1, 30), 2);
        counters.restart_decrease_timer();
        assert_eq!([see(1, 60), see(1, 61), see(2, 62)], [2, 2, 2]);
    }
}
