//! A token bucket in one atomic word, whose parameters can change while threads take from it.
//!
//! # How it works
//! The state is one word, so taking is a compare-and-swap. The parameters are in separate words beside it, and a
//! sequence number identifies those that belong together (a seqlock): it is odd while they change. A taking thread reads the
//! sequence, everything else, and the sequence again; if both are the same, all values belong together.
//!
//! One race is left: a thread may read everything, be descheduled while the parameters change, and then swap in a state
//! computed with the old ones, if the word happens to be the same. So the word is masked with a number of its
//! generation: words of different generations differ in their highest bits, which would be decades of time.
//!
//! # What always holds (tests in limiter/atomic/loom.rs)
//! - Every grant is counted under the parameters that it was computed with, or migrated to the new ones.
//! - While the bucket is closed (sequence odd), no thread takes from it.

use crate::Timestamp;
use crate::algorithm::token_bucket::PackedBucket;
use crate::sync::{AtomicU64, Ordering, fence};

/// A token bucket in one atomic word. While it is closed it is empty, and every call returns `None`.
///
/// It fits one cache line, so that a check touches only one.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct AtomicBucket {
    /// Odd while closed.
    sequence: AtomicU64,
    /// When the bucket is full again, masked.
    word: AtomicU64,
    mask: AtomicU64,
    interval: AtomicU64,
    limit: AtomicU64,
}

/// The word while closed: a time at the other end of the range from any bucket's, except after unbounded charges.
const CLOSED: u64 = u64::MAX;

impl AtomicBucket {
    /// Creates an unused bucket.
    pub(crate) fn open_with(bucket: &PackedBucket) -> Self {
        let (interval, limit) = bucket.parameters();
        Self {
            sequence: AtomicU64::new(0),
            word: AtomicU64::new(0),
            mask: AtomicU64::new(0),
            interval: AtomicU64::new(interval),
            limit: AtomicU64::new(limit),
        }
    }

    /// Creates a bucket that is closed until it is [opened](Self::open).
    pub(crate) fn closed() -> Self {
        Self {
            sequence: AtomicU64::new(1),
            word: AtomicU64::new(CLOSED),
            mask: AtomicU64::new(0),
            interval: AtomicU64::new(1),
            limit: AtomicU64::new(1),
        }
    }

    /// Applies `work` to the state in one atomic step. Returns `None` if the bucket is closed.
    #[inline(always)]
    pub(crate) fn update<R>(&self, mut work: impl FnMut(&PackedBucket, &mut u64) -> R) -> Option<R> {
        loop {
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence & 1 == 1 {
                return None;
            }
            let word = self.word.load(Ordering::Acquire);
            let mask = self.mask.load(Ordering::Relaxed);
            let bucket = PackedBucket::from_parameters(
                self.interval.load(Ordering::Relaxed),
                self.limit.load(Ordering::Relaxed),
            );
            fence(Ordering::Acquire);
            if self.sequence.load(Ordering::Relaxed) != sequence {
                continue;
            }
            let before = word ^ mask;
            let mut after = before;
            let result = work(&bucket, &mut after);
            if after == before {
                return Some(result);
            }
            let swapped = self.word.compare_exchange_weak(word, after ^ mask, Ordering::AcqRel, Ordering::Relaxed);
            if swapped.is_ok() {
                return Some(result);
            }
        }
    }

    /// Closes the bucket and returns its content. Only one thread at a time may close and open.
    pub(crate) fn close(&self) -> Option<(PackedBucket, u64)> {
        let sequence = self.sequence.load(Ordering::Relaxed);
        if sequence & 1 == 1 {
            return None;
        }
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let word = self.word.swap(CLOSED, Ordering::AcqRel);
        let bucket =
            PackedBucket::from_parameters(self.interval.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed));
        Some((bucket, word ^ self.mask.load(Ordering::Relaxed)))
    }

    /// Opens a closed bucket with new parameters and their state.
    pub(crate) fn open(&self, bucket: &PackedBucket, full_at: u64) {
        let sequence = self.sequence.load(Ordering::Relaxed) + 1;
        let (interval, limit) = bucket.parameters();
        self.interval.store(interval, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        self.mask.store(mask(sequence), Ordering::Relaxed);
        self.word.store(full_at ^ mask(sequence), Ordering::Release);
        self.sequence.store(sequence, Ordering::Release);
    }

    /// Changes the parameters; the usage is kept, clamped. Returns `false` if the bucket is closed.
    pub(crate) fn change(&self, bucket: &PackedBucket, now: Timestamp) -> bool {
        let Some((old, mut full_at)) = self.close() else { return false };
        if *bucket != old {
            crate::Algorithm::rescale(bucket, &mut full_at, &old, now);
        }
        self.open(bucket, full_at);
        true
    }
}

/// Returns the mask of the words of one generation: 0 for the first, then multiples of the golden ratio, which are far apart.
fn mask(sequence: u64) -> u64 {
    sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(all(test, loom))]
mod loom;
