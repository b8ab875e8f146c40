//! The counts of one worker.

use crate::Outcome;
use crate::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The counts of one worker. Any thread may write them; they are fast while only one does.
///
/// Aligned to two cache lines, since processors prefetch them in pairs: no two workers write the same one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Shard {
    /// Durations of whole requests, by outcome; their number follows from it.
    pub(crate) requests: [Histogram; Outcome::COUNT],
    pub(crate) decisions: Histogram,
    pub(crate) waits: Histogram,
    pub(crate) upstream: Histogram,
    pub(crate) upstream_failures: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) queued: AtomicU64,
    pub(crate) dequeued: AtomicU64,
}

impl Shard {
    /// Counts an accepted connection.
    #[inline]
    pub fn connection_opened(&self) {
        add(&self.accepted, 1);
    }

    /// Counts an accepted connection that is closed.
    #[inline]
    pub fn connection_closed(&self) {
        add(&self.closed, 1);
    }

    /// Counts a rejected connection: too many are open, or its handshake failed.
    #[inline]
    pub fn connection_rejected(&self) {
        add(&self.rejected, 1);
    }

    /// Counts a connection that is queued, since too many are open.
    #[inline]
    pub fn connection_queued(&self) {
        add(&self.queued, 1);
    }

    /// Counts a connection that leaves the queue.
    #[inline]
    pub fn connection_dequeued(&self) {
        add(&self.dequeued, 1);
    }

    /// Counts a finished request, with the time since its head was read.
    #[inline]
    pub fn request(&self, outcome: Outcome, took: Duration) {
        self.requests[outcome.index()].add(took);
    }

    /// Counts a decision of the rules, with its duration; delays imposed by the rules are not included.
    #[inline]
    pub fn decision(&self, took: Duration) {
        self.decisions.add(took);
    }

    /// Counts a request that the rules made wait, in a queue or for a reserved time, with the duration of its wait.
    #[inline]
    pub fn waited(&self, wait: Duration) {
        self.waits.add(wait);
    }

    /// Counts a response of an upstream, with the time from the request to the head of the response.
    #[inline]
    pub fn upstream(&self, took: Duration) {
        self.upstream.add(took);
    }

    /// Counts an upstream failure: unreachable, no valid response in time, or a response that was cut off.
    #[inline]
    pub fn upstream_failed(&self) {
        add(&self.upstream_failures, 1);
    }

    /// Counts bytes received from clients.
    #[inline]
    pub fn bytes_in(&self, bytes: u64) {
        add(&self.bytes_in, bytes);
    }

    /// Counts bytes sent to clients.
    #[inline]
    pub fn bytes_out(&self, bytes: u64) {
        add(&self.bytes_out, bytes);
    }
}

#[inline]
fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
