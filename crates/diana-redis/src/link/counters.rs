//! The counters of the link.

use diana_core::Timestamp;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts of commands to Redis, and of saved round trips.
#[derive(Debug)]
pub(crate) struct Counters {
    commands: AtomicU64,
    waits: AtomicU64,
    deny_cache: AtomicU64,
    leases: AtomicU64,
    batching: AtomicU64,
    instances: Mutex<Instances>,
}

/// The estimated number of live instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instances {
    count: u64,
    /// Since when fewer instances are seen.
    fewer_since: Option<Timestamp>,
}

impl Instances {
    /// Updates the number from the instances seen. A lower number is accepted only after it was seen for
    /// `accepted_after`: after an outage not all instances have reconnected yet, and if a whole machine was paused, so
    /// were the heartbeats of all its instances. The first one that sends a heartbeat again must not assume that it is
    /// the only one.
    fn learn(&mut self, seen: u64, now: Timestamp, accepted_after: Duration) {
        let since = *self.fewer_since.get_or_insert(now);
        if seen >= self.count || now.since(since) > accepted_after {
            *self = Self { count: seen, fewer_since: None };
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        let zero = AtomicU64::default;
        let instances = Mutex::new(Instances { count: 1, fewer_since: None });
        Self { commands: zero(), waits: zero(), deny_cache: zero(), leases: zero(), batching: zero(), instances }
    }
}

/// An event that is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {
    /// A command that was sent.
    Command,
    /// A request that waited for Redis.
    Wait,
    /// A request that was denied from the deny cache.
    SavedByDenyCache,
    /// A request that was answered from a lease.
    SavedByLease,
    /// A request that was sent in the same call as another one.
    SavedByBatching,
}

impl Counters {
    pub(crate) fn count(&self, counter: Counter) {
        self.of(counter).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.of(counter).load(Ordering::Relaxed)
    }

    /// Returns how many instances were last seen alive, at least this one.
    pub(crate) fn instances(&self) -> u64 {
        self.instances.lock().count.max(1)
    }

    /// Updates how many instances were seen alive. A lower number is accepted only after it was seen for
    /// `accepted_after`.
    pub(crate) fn learn_instances(&self, seen: u64, now: Timestamp, accepted_after: Duration) {
        self.instances.lock().learn(seen, now, accepted_after);
    }

    /// Restarts the time for which a lower number must be seen: there was an outage.
    pub(crate) fn restart_decrease_timer(&self) {
        self.instances.lock().fewer_since = None;
    }

    fn of(&self, counter: Counter) -> &AtomicU64 {
        match counter {
            Counter::Command => &self.commands,
            Counter::Wait => &self.waits,
            Counter::SavedByDenyCache => &self.deny_cache,
            Counter::SavedByLease => &self.leases,
            Counter::SavedByBatching => &self.batching,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
