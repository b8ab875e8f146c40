//! How busy the machine is: what somebody who watches it has told.
//!
//! Numbers only, each an atomic, so that whoever serves connections and bytes may tell at any time. Nothing is measured here.

use diana_core::Timestamp;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// How busy the machine is. Rules with `load` go by it.
///
/// Somebody has to tell: a sampler of the processors and the memory, a gateway of its connections and bytes. What nobody tells
/// is taken to be idle. [`tick`](Self::tick) says that time has passed, a few times a second: only then do rules look again.
///
/// ```
/// use diana::LoadMeter;
/// use diana::core::Timestamp;
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
    /// Bytes a second between the last two ticks, as the bits of a float.
    traffic: AtomicU64,
    ticked: AtomicU64,
    last: Mutex<Option<Tick>>,
}

/// On lines of its own, since every body adds to it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Bytes(AtomicU64);

/// What was known at a tick.
#[derive(Clone, Copy, Debug)]
struct Tick {
    at: Timestamp,
    bytes: u64,
}

/// A share of a whole, from 0 to 1, as the bits of a float.
#[derive(Debug, Default)]
struct Share(AtomicU64);

impl Share {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// What is no number says nothing.
    fn set(&self, share: f64) {
        if !share.is_nan() {
            self.0.store(share.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
        }
    }
}

impl LoadMeter {
    /// Tells how much of all processors is in use, from 0 to 1.
    pub fn set_cpu(&self, share: f64) {
        self.cpu.set(share);
    }

    /// Tells how much of the memory is in use, from 0 to 1.
    pub fn set_memory(&self, share: f64) {
        self.memory.set(share);
    }

    /// Tells how many connections are open.
    pub fn set_connections(&self, open: u64) {
        self.connections.store(i64::try_from(open).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Tells that so many connections more are open, or less.
    pub fn connections_changed(&self, by: i64) {
        self.connections.fetch_add(by, Ordering::Relaxed);
    }

    /// Tells that so many bytes have come or gone.
    pub fn add_traffic(&self, bytes: u64) {
        self.bytes.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Tells that it is `now`: what flows a second is reckoned from the tick before. One that comes at the same time, or
    /// earlier, is none.
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

    /// How much of all processors is in use, from 0 to 1.
    pub fn cpu(&self) -> f64 {
        self.cpu.get()
    }

    /// How much of the memory is in use, from 0 to 1.
    pub fn memory(&self) -> f64 {
        self.memory.get()
    }

    /// How many connections are open.
    pub fn connections(&self) -> u64 {
        u64::try_from(self.connections.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// How many bytes a second flowed between the last two ticks.
    pub fn traffic(&self) -> f64 {
        f64::from_bits(self.traffic.load(Ordering::Relaxed))
    }

    /// When it last ticked, in nanoseconds; 0 if never.
    pub(super) fn ticked(&self) -> u64 {
        self.ticked.load(Ordering::Acquire)
    }
}
