//! The gateway's counts and metrics: requests by outcome, their durations, connections and bytes.
//!
//! ```text
//!  worker 0 ──▶ Shard 0 ─┐
//!  worker 1 ──▶ Shard 1 ─┼──▶ Totals ──▶ /metrics, /status      summed on request
//!  worker n ──▶ Shard n ─┘
//! ```
//!
//! Each worker writes its own [`Shard`], on its own cache lines: counting costs a few nanoseconds, independent of the
//! other workers. Nothing is summed, formatted or allocated before the metrics are read.
//!
//! | module | subject |
//! |---|---|
//! | [`outcome`] | how a request ended |
//! | [`counter`], [`histogram`] | numbers, and durations in buckets; what each worker counts, and the sums |
//! | [`metric`] | a metric: its name, its meaning, and how it is read |
//! | [`gateway`], [`services`], [`upstream`] | what is counted of each subject, and the list of its metrics |
//! | [`dropped_lines`] | the number of dropped log lines |
//! | [`once_per_second`] | how often a warning is repeated |

mod counter;
mod dropped_lines;
mod gateway;
mod histogram;
mod metric;
mod once_per_second;
mod outcome;
mod services;
mod upstream;

pub use counter::{Counter, Gauge};
pub use dropped_lines::DroppedLines;
pub use gateway::{Shard, Totals};
pub use histogram::{Buckets, Histogram};
pub use metric::{Kind, Metric, Reading, Readings};
pub use once_per_second::OncePerSecond;
pub use outcome::Outcome;
pub use services::{ServiceMetrics, ServiceShard, ServiceTotals};
pub use upstream::{CheckStatus, UpstreamConnection, UpstreamShard, UpstreamStatus, UpstreamTotals};

use diana_core::{Clock, SystemClock, Timestamp};
use std::sync::Arc;

/// All metrics of the gateway.
///
/// ```
/// use diana_metrics::{Metrics, Outcome};
/// use std::time::Duration;
///
/// let metrics = Metrics::new(2);
/// metrics.shard(0).request(Outcome::Forwarded, Duration::from_millis(3));
/// metrics.shard(1).request(Outcome::Denied, Duration::from_micros(40));
/// assert_eq!(metrics.totals().requests(Outcome::Denied), 1);
/// ```
#[derive(Debug)]
pub struct Metrics {
    shards: Box<[Arc<Shard>]>,
    started: Timestamp,
}

impl Metrics {
    /// Creates metrics for this number of workers, all zero.
    pub fn new(workers: usize) -> Arc<Self> {
        let shards = (0..workers.max(1)).map(|_| Arc::default()).collect();
        Arc::new(Self { shards, started: SystemClock.now() })
    }

    /// Returns the counts of one worker. A worker without a shard shares another's, which is only slower.
    pub fn shard(&self, worker: usize) -> Arc<Shard> {
        Arc::clone(&self.shards[worker % self.shards.len()])
    }

    /// Returns the sums over all workers.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.shards.iter().for_each(|shard| totals.add(shard));
        totals
    }

    /// Returns the time at which counting started.
    pub fn started(&self) -> Timestamp {
        self.started
    }
}
