//! What the gateway counts: requests by what became of them, how long they took, connections and bytes.
//!
//! ```text
//!  worker 0 ──▶ Shard 0 ─┐
//!  worker 1 ──▶ Shard 1 ─┼──▶ Totals ──▶ /metrics, /status      summed when somebody asks
//!  worker n ──▶ Shard n ─┘
//! ```
//!
//! Each worker writes a [`Shard`] of its own, on cache lines of its own: counting costs a few nanoseconds, whatever the other
//! workers do. Nothing is summed, formatted or allocated before somebody asks.

mod histogram;
mod outcome;
mod shard;
mod text;
mod totals;

pub use histogram::{BOUNDS, Buckets, Histogram};
pub use outcome::Outcome;
pub use shard::Shard;
pub use text::{Kind, Text};
pub use totals::Totals;

use diana::core::{Clock, SystemClock, Timestamp};
use std::sync::Arc;

/// All that the gateway counts.
///
/// ```
/// use diana_server::metrics::{Metrics, Outcome};
/// use std::time::Duration;
///
/// let metrics = Metrics::new(2);
/// metrics.shard(0).request(Outcome::Forwarded, Duration::from_millis(3));
/// metrics.shard(1).request(Outcome::Denial, Duration::from_micros(40));
/// assert_eq!(metrics.totals().requests(Outcome::Denial), 1);
/// ```
#[derive(Debug)]
pub struct Metrics {
    shards: Box<[Arc<Shard>]>,
    started: Timestamp,
}

impl Metrics {
    /// Counts for so many workers, all zero.
    pub fn new(workers: usize) -> Arc<Self> {
        let shards = (0..workers.max(1)).map(|_| Arc::default()).collect();
        Arc::new(Self { shards, started: SystemClock.now() })
    }

    /// The counts of one worker. One that has no shard shares another's, which is only slower.
    pub fn shard(&self, worker: usize) -> Arc<Shard> {
        Arc::clone(&self.shards[worker % self.shards.len()])
    }

    /// What all workers have counted.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.shards.iter().for_each(|shard| totals.add(shard));
        totals
    }

    /// When counting began.
    pub fn started(&self) -> Timestamp {
        self.started
    }
}
