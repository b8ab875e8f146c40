//! What the link has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of what was asked of Redis, and of what was spared.
#[derive(Debug)]
pub(crate) struct Counters {
    commands: AtomicU64,
    waits: AtomicU64,
    refusals: AtomicU64,
    leases: AtomicU64,
    batching: AtomicU64,
    instances: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let zero = AtomicU64::default;
        let instances = AtomicU64::new(1);
        Self { commands: zero(), waits: zero(), refusals: zero(), leases: zero(), batching: zero(), instances }
    }
}

/// Something that is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    /// A command that was sent.
    Command,
    /// A request that waited for Redis.
    Wait,
    /// A request that a remembered refusal answered.
    ByRefusal,
    /// A request that a lease answered.
    ByLease,
    /// A request that travelled with another one.
    ByBatching,
}

impl Counters {
    pub(crate) fn count(&self, what: Counted) {
        self.of(what).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, what: Counted) -> u64 {
        self.of(what).load(Ordering::Relaxed)
    }

    /// How many instances were last seen alive, at least this one.
    pub(crate) fn instances(&self) -> u64 {
        self.instances.load(Ordering::Relaxed).max(1)
    }

    pub(crate) fn set_instances(&self, instances: u64) {
        self.instances.store(instances, Ordering::Relaxed);
    }

    fn of(&self, what: Counted) -> &AtomicU64 {
        match what {
            Counted::Command => &self.commands,
            Counted::Wait => &self.waits,
            Counted::ByRefusal => &self.refusals,
            Counted::ByLease => &self.leases,
            Counted::ByBatching => &self.batching,
        }
    }
}
