//! A token bucket in one atomic word, whose parameters can change while threads are taking from it.
//!
//! # How it works
//! The state is one word, so taking is a compare-and-swap. The parameters stand beside it in words of their own, and a
//! sequence number tells which belong together: it is odd while they change. Who takes reads the sequence, everything
//! else, and the sequence again; if both are the same, all of it belongs together.
//!
//! One gap is left: a thread may read everything, sleep while the parameters change, and then swap in what it worked
//! out under the old ones, if the word happens to look the same. So the word is masked with a number of its generation:
//! words of different generations differ in their highest bits, which would be decades of time.
//!
//! # What always holds (tests in limiter/atomic/loom.rs)
//! - Every grant is counted under the parameters that it was worked out with, or carried over to the new ones.
//! - While the bucket is closed (sequence odd), nobody takes from it.

use crate::Timestamp;
use crate::algorithm::token_bucket::OneWordBucket;
use crate::sync::{AtomicU64, Ordering, fence};

/// A token bucket in one atomic word. Closed, it holds nothing, and every call answers `None`.
///
/// All of it is on one cache line, so that a check touches one.
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

/// The word while closed: a time at the other end of the range from any that a bucket has, charges without end aside.
const CLOSED: u64 = u64::MAX;

impl AtomicBucket {
    /// A bucket that nobody has taken from.
    pub(crate) fn open_with(bucket: &OneWordBucket) -> Self {
        let (interval, limit) = bucket.parameters();
        Self {
            sequence: AtomicU64::new(0),
            word: AtomicU64::new(0),
            mask: AtomicU64::new(0),
            interval: AtomicU64::new(interval),
            limit: AtomicU64::new(limit),
        }
    }

    /// A bucket that is closed until it is [opened](Self::open).
    pub(crate) fn closed() -> Self {
        Self {
            sequence: AtomicU64::new(1),
            word: AtomicU64::new(CLOSED),
            mask: AtomicU64::new(0),
            interval: AtomicU64::new(1),
            limit: AtomicU64::new(1),
        }
    }

    /// Works on the state; what `work` makes of it is swapped in as one step. `None` if the bucket is closed.
    #[inline(always)]
    pub(crate) fn update<R>(&self, mut work: impl FnMut(&OneWordBucket, &mut u64) -> R) -> Option<R> {
        loop {
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence & 1 == 1 {
                return None;
            }
            let word = self.word.load(Ordering::Acquire);
            let mask = self.mask.load(Ordering::Relaxed);
            let bucket = OneWordBucket::from_parameters(
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

    /// Closes the bucket and tells what was in it. Only one thread at a time may close and open.
    pub(crate) fn close(&self) -> Option<(OneWordBucket, u64)> {
        let sequence = self.sequence.load(Ordering::Relaxed);
        if sequence & 1 == 1 {
            return None;
        }
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let word = self.word.swap(CLOSED, Ordering::AcqRel);
        let bucket =
            OneWordBucket::from_parameters(self.interval.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed));
        Some((bucket, word ^ self.mask.load(Ordering::Relaxed)))
    }

    /// Opens a closed bucket with new parameters and the state that belongs to them.
    pub(crate) fn open(&self, bucket: &OneWordBucket, full_at: u64) {
        let sequence = self.sequence.load(Ordering::Relaxed) + 1;
        let (interval, limit) = bucket.parameters();
        self.interval.store(interval, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        self.mask.store(mask(sequence), Ordering::Relaxed);
        self.word.store(full_at ^ mask(sequence), Ordering::Release);
        self.sequence.store(sequence, Ordering::Release);
    }

    /// Goes on with other parameters; what is in use is kept, clamped. `false` if the bucket is closed.
    pub(crate) fn change(&self, bucket: &OneWordBucket, now: Timestamp) -> bool {
        let Some((old, mut full_at)) = self.close() else { return false };
        if *bucket != old {
            crate::Algorithm::rescale(bucket, &mut full_at, &old, now);
        }
        self.open(bucket, full_at);
        true
    }
}

/// What words of one generation are masked with: nothing for the first, then multiples of the golden ratio, which keep
/// far away from each other.
fn mask(sequence: u64) -> u64 {
    sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(all(test, loom))]
mod loom;
