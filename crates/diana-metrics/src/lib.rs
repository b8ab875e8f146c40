//! The gateway's metrics: requests by outcome, their durations, connections and bytes.
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
//! | [`shard`] | the counts of one worker |
//! | [`histogram`] | durations in buckets |
//! | [`upstream`] | the counts of one upstream |
//! | [`services`] | the services for other gateways |
//! | [`totals`] | the sums over all workers |
//! | [`dropped_lines`] | the number of dropped log lines |
//! | [`once_per_second`] | how often a warning is repeated |

mod dropped_lines;
mod histogram;
mod once_per_second;
mod outcome;
mod services;
mod shard;
mod totals;
mod upstream;
mod upstream_status;

pub use dropped_lines::DroppedLines;
pub use histogram::Buckets;
pub use once_per_second::OncePerSecond;
pub use outcome::Outcome;
pub use services::{ServiceMetrics, ServiceShard, ServiceTotals};
pub use shard::Shard;
pub use totals::Totals;
pub use upstream::{UpstreamConnection, UpstreamShard, UpstreamTotals};
pub use upstream_status::{CheckStatus, UpstreamStatus};

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
