//! The counts of one upstream: its responses and their durations, its failures and their retries, and its connections.

use crate::Buckets;
use crate::histogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The counts of one upstream in one worker, on their own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct UpstreamShard {
    responses: Histogram,
    failures: AtomicU64,
    aborted: AtomicU64,
    opened: AtomicU64,
    closed: AtomicU64,
    in_flight: AtomicU64,
    retries: AtomicU64,
    retries_denied: AtomicU64,
}

/// The sums of one upstream over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamTotals {
    /// The time from a request to the head of its response.
    pub response_seconds: Buckets,
    /// Requests without a response: the upstream was unreachable, or gave no valid response in time.
    pub unanswered: u64,
    /// Responses that the upstream aborted after their head.
    pub aborted: u64,
    /// Open connections.
    pub connections: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that it failed, and that were then sent to another upstream.
    pub retries: u64,
    /// Requests that it failed, and that were not retried as the retry budget was used up.
    pub retries_denied: u64,
}

/// An open connection to an upstream; dropping it counts the end of the connection.
#[derive(Debug)]
pub struct UpstreamConnection(Arc<UpstreamShard>);

impl UpstreamShard {
    /// Counts a response, with the time from the request to the head of the response.
    #[inline]
    pub fn response(&self, took: Duration) {
        self.responses.add(took);
    }

    /// Counts a request without a response.
    pub fn unanswered(&self) {
        add(&self.failures);
    }

    /// Counts a response that was aborted after its head.
    pub fn aborted(&self) {
        add(&self.aborted);
    }

    /// Counts a request in flight. [`request_ended`](Self::request_ended) must follow.
    #[inline]
    pub fn request_began(&self) {
        add(&self.in_flight);
    }

    /// Counts the end of a request that was in flight.
    #[inline]
    pub fn request_ended(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a failed request that another upstream gets.
    pub fn retried(&self) {
        add(&self.retries);
    }

    /// Counts a failed request that was not retried as the retry budget was used up.
    pub fn retry_denied(&self) {
        add(&self.retries_denied);
    }

    /// Counts a connection, until the returned value is dropped.
    #[must_use]
    pub fn connection_opened(self: &Arc<Self>) -> UpstreamConnection {
        add(&self.opened);
        UpstreamConnection(Arc::clone(self))
    }
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        add(&self.0.closed);
    }
}

impl UpstreamTotals {
    /// Adds the counts of one worker.
    ///
    /// ```
    /// use diana_metrics::{UpstreamShard, UpstreamTotals};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// let shard = Arc::new(UpstreamShard::default());
    /// let _open = shard.connection_opened();
    /// shard.response(Duration::from_millis(3));
    /// shard.unanswered();
    /// let mut totals = UpstreamTotals::default();
    /// totals.add(&shard);
    /// assert_eq!((totals.requests(), totals.failures(), totals.connections), (2, 1, 1));
    /// ```
    pub fn add(&mut self, shard: &UpstreamShard) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.response_seconds.add(&shard.responses);
        self.unanswered += read(&shard.failures);
        self.aborted += read(&shard.aborted);
        // Reads `closed` first: otherwise a connection closed in between would be subtracted without having been added.
        let closed = read(&shard.closed);
        self.connections += read(&shard.opened).saturating_sub(closed);
        self.in_flight += read(&shard.in_flight);
        self.retries += read(&shard.retries);
        self.retries_denied += read(&shard.retries_denied);
    }

    /// Adds the sums of another upstream.
    pub fn add_totals(&mut self, other: &Self) {
        self.response_seconds.add_buckets(&other.response_seconds);
        self.unanswered += other.unanswered;
        self.aborted += other.aborted;
        self.connections += other.connections;
        self.in_flight += other.in_flight;
        self.retries += other.retries;
        self.retries_denied += other.retries_denied;
    }

    /// Returns the number of requests that were sent to it, or that should have been sent.
    pub fn requests(&self) -> u64 {
        self.response_seconds.count() + self.unanswered
    }

    /// Returns the number of requests that it failed: without a response, or with an aborted one.
    pub fn failures(&self) -> u64 {
        self.unanswered + self.aborted
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aborted_response_is_one_request_and_one_failure() {
        let (shard, mut totals) = (UpstreamShard::default(), UpstreamTotals::default());
        shard.response(Duration::from_millis(1));
        shard.aborted();
        totals.add(&shard);
        assert_eq!((totals.requests(), totals.failures()), (1, 1));
    }

    #[test]
    fn a_connection_is_counted_until_it_is_dropped() {
        let shard = Arc::new(UpstreamShard::default());
        let open = || {
            let mut totals = UpstreamTotals::default();
            totals.add(&shard);
            totals.connections
        };
        let connections = [shard.connection_opened(), shard.connection_opened()];
        assert_eq!(open(), 2);
        drop(connections);
        assert_eq!(open(), 0);
    }
}
