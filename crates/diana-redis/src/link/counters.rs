//! The counters of the link.

use super::instances::Instances;
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
    clock_difference_micros: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let zero = AtomicU64::default;
        let instances = Mutex::new(Instances { count: 1, fewer_since: None });
        Self {
            commands: zero(),
            waits: zero(),
            deny_cache: zero(),
            leases: zero(),
            batching: zero(),
            instances,
            clock_difference_micros: zero(),
        }
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
        self.atomic(counter).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.atomic(counter).load(Ordering::Relaxed)
    }

    /// Returns the difference of the clocks at the last heartbeat.
    pub(crate) fn clock_difference(&self) -> Duration {
        Duration::from_micros(self.clock_difference_micros.load(Ordering::Relaxed))
    }

    pub(crate) fn set_clock_difference(&self, difference: Duration) {
        let micros = u64::try_from(difference.as_micros()).unwrap_or(u64::MAX);
        self.clock_difference_micros.store(micros, Ordering::Relaxed);
    }

    /// Returns how many instances were last seen alive, at least this one.
    pub(crate) fn instances(&self) -> u64 {
        self.instances.lock().count.max(1)
    }

    /// Updates how many instances were seen alive. A lower number is accepted only after it was seen for
    /// `accepted_after`.
    pub(crate) fn learn_instances(&self, alive: u64, now: Timestamp, accepted_after: Duration) {
        self.instances.lock().learn(alive, now, accepted_after);
    }

    /// Restarts the time for which a lower number must be seen: there was an outage.
    pub(crate) fn restart_decrease_timer(&self) {
        self.instances.lock().fewer_since = None;
    }

    fn atomic(&self, counter: Counter) -> &AtomicU64 {
        match counter {
            Counter::Command => &self.commands,
            Counter::Wait => &self.waits,
            Counter::SavedByDenyCache => &self.deny_cache,
            Counter::SavedByLease => &self.leases,
            Counter::SavedByBatching => &self.batching,
        }
    }
}
