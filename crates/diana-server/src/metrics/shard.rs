//! The counts of one worker.

use super::{Histogram, Outcome};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The counts of one worker. Any thread may write them; they are quick while one does.
///
/// Aligned to two cache lines, since processors fetch them in pairs: no two workers write the same one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Shard {
    /// Whole requests, by what became of them: how many there were follows.
    pub(super) requests: [Histogram; Outcome::COUNT],
    pub(super) decisions: Histogram,
    pub(super) upstream: Histogram,
    pub(super) upstream_failures: AtomicU64,
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) turned_away: AtomicU64,
}

impl Shard {
    /// A connection was accepted.
    #[inline]
    pub fn connection_opened(&self) {
        add(&self.accepted, 1);
    }

    /// A connection that was accepted is closed.
    #[inline]
    pub fn connection_closed(&self) {
        add(&self.closed, 1);
    }

    /// A connection was turned away: there are too many, or it began with no good header.
    #[inline]
    pub fn connection_refused(&self) {
        add(&self.turned_away, 1);
    }

    /// A request is done, so long after its head was there.
    #[inline]
    pub fn request(&self, outcome: Outcome, took: Duration) {
        self.requests[outcome.index()].add(took);
    }

    /// The rules were asked, which took so long; what they made the request wait is not in it.
    #[inline]
    pub fn decision(&self, took: Duration) {
        self.decisions.add(took);
    }

    /// An upstream answered, so long after it was asked: until the head of its answer.
    #[inline]
    pub fn upstream(&self, took: Duration) {
        self.upstream.add(took);
    }

    /// An upstream could not be reached, gave no good answer in time, or broke off.
    #[inline]
    pub fn upstream_failed(&self) {
        add(&self.upstream_failures, 1);
    }

    /// So many bytes came from clients.
    #[inline]
    pub fn bytes_in(&self, bytes: u64) {
        add(&self.bytes_in, bytes);
    }

    /// So many bytes went to clients.
    #[inline]
    pub fn bytes_out(&self, bytes: u64) {
        add(&self.bytes_out, bytes);
    }
}

#[inline]
fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
