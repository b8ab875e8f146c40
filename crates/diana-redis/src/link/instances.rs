//! How many instances share the limits, estimated from their heartbeats.

use diana_core::Timestamp;
use std::time::Duration;

/// The estimated number of live instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instances {
    pub(super) count: u64,
    /// Since when fewer instances are alive.
    pub(super) fewer_since: Option<Timestamp>,
}

impl Instances {
    /// Updates the number from the `alive` instances. A lower number is accepted only after it was reported for
    /// `accepted_after`: after an outage not all instances have reconnected yet, and if a whole machine was paused, so
    /// were the heartbeats of all its instances. The first one that sends a heartbeat again must not assume that it is
    /// the only one.
    pub(super) fn learn(&mut self, alive: u64, now: Timestamp, accepted_after: Duration) {
        let since = *self.fewer_since.get_or_insert(now);
        if alive >= self.count || now.since(since) > accepted_after {
            *self = Self { count: alive, fewer_since: None };
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
        let learn = |alive, secs| {
            counters.learn_instances(alive, Timestamp::from_secs(secs), Duration::from_secs(3));
            counters.instances()
        };
        assert_eq!(counters.instances(), 1);
        assert_eq!([learn(1, 1), learn(3, 2)], [1, 3]);
        // A late heartbeat.
        assert_eq!([learn(1, 10), learn(2, 11), learn(3, 12)], [3, 3, 3]);
        // An instance that has stopped.
        assert_eq!([learn(2, 20), learn(2, 21), learn(2, 23), learn(2, 24)], [3, 3, 3, 2]);
        // An outage in which all are unreachable for a while.
        assert_eq!(learn(1, 30), 2);
        counters.restart_decrease_timer();
        assert_eq!([learn(1, 60), learn(1, 61), learn(2, 62)], [2, 2, 2]);
    }
}
