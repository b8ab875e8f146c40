//! The load of the machine, as reported by samplers and servers.
//!
//! Each value is an atomic, so that it can be updated at any time. This module measures nothing itself.

use diana_core::Timestamp;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The load of the machine, which `load` rules read.
///
/// It has to be reported: CPU and memory by a sampler, connections and bytes by a gateway. Unreported values count as
/// idle. [`tick`](Self::tick) has to be called a few times per second: rules are only re-evaluated then.
///
/// ```
/// use diana::{LoadMeter, Timestamp};
///
/// let load = LoadMeter::default();
/// load.set_cpu(0.93);
/// load.connections_changed(1);
/// load.tick(Timestamp::from_secs(10));
/// load.add_traffic(4_000);
/// load.tick(Timestamp::from_secs(12));
/// assert_eq!((load.cpu(), load.connections(), load.traffic()), (0.93, 1, 2_000.0));
/// ```
#[derive(Debug, Default)]
pub struct LoadMeter {
    cpu: Share,
    memory: Share,
    connections: AtomicI64,
    bytes: Bytes,
    /// Bytes per second between the last two ticks, as the bits of a float.
    traffic: AtomicU64,
    ticked: AtomicU64,
    last: Mutex<Option<Tick>>,
}

/// On separate cache lines, since every body updates it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Bytes(AtomicU64);

/// The values at a tick.
#[derive(Clone, Copy, Debug)]
struct Tick {
    at: Timestamp,
    bytes: u64,
}

/// A fraction from 0 to 1, as the bits of a float.
#[derive(Debug, Default)]
struct Share(AtomicU64);

impl Share {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Sets the share; NaN is ignored.
    fn set(&self, share: f64) {
        if !share.is_nan() {
            self.0.store(share.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
        }
    }
}

impl LoadMeter {
    /// Sets the CPU usage of the whole machine, from 0 to 1.
    pub fn set_cpu(&self, share: f64) {
        self.cpu.set(share);
    }

    /// Sets the memory usage, from 0 to 1.
    pub fn set_memory(&self, share: f64) {
        self.memory.set(share);
    }

    /// Sets the number of open connections.
    pub fn set_connections(&self, open: u64) {
        self.connections.store(i64::try_from(open).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Adds to the number of open connections; `by` may be negative.
    pub fn connections_changed(&self, by: i64) {
        self.connections.fetch_add(by, Ordering::Relaxed);
    }

    /// Adds sent or received bytes.
    pub fn add_traffic(&self, bytes: u64) {
        self.bytes.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Advances the time to `now` and computes the traffic per second since the previous tick. A tick at the same or an
    /// earlier time is ignored.
    pub fn tick(&self, now: Timestamp) {
        let mut last = self.last.lock();
        let bytes = self.bytes.0.load(Ordering::Relaxed);
        if let Some(before) = *last {
            let passed = now.since(before.at);
            if passed.is_zero() {
                return;
            }
            #[allow(clippy::cast_precision_loss, reason = "a rate is not exact")]
            let rate = bytes.wrapping_sub(before.bytes) as f64 / passed.as_secs_f64();
            self.traffic.store(rate.to_bits(), Ordering::Relaxed);
        }
        *last = Some(Tick { at: now, bytes });
        self.ticked.store(now.as_nanos(), Ordering::Release);
    }

    /// Returns the CPU usage of the whole machine, from 0 to 1.
    pub fn cpu(&self) -> f64 {
        self.cpu.get()
    }

    /// Returns the memory usage, from 0 to 1.
    pub fn memory(&self) -> f64 {
        self.memory.get()
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> u64 {
        u64::try_from(self.connections.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the bytes per second between the last two ticks.
    pub fn traffic(&self) -> f64 {
        f64::from_bits(self.traffic.load(Ordering::Relaxed))
    }

    /// Returns the time of the last tick in nanoseconds; 0 if there was none.
    pub(super) fn ticked(&self) -> u64 {
        self.ticked.load(Ordering::Acquire)
    }
}
