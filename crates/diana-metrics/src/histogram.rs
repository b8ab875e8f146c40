//! Durations, in a few buckets.
//!
//! A bucket counts durations above the previous bound up to its own. The cumulative counts that Prometheus expects are
//! computed when they are read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets, in nanoseconds; one more bucket has everything above them.
///
/// From a denial (tens of microseconds) to a slow upstream (tens of seconds), two or three per power of ten.
const BOUNDS: [u64; 18] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    5_000_000_000,
    30_000_000_000,
];

const BUCKETS: usize = BOUNDS.len() + 1;

/// A histogram of durations, written by one thread and read by any.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub(crate) fn add(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < nanos);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// The sum of several histograms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    counts: [u64; BUCKETS],
    nanos: u128,
}

impl Buckets {
    /// Adds the counts of one histogram.
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        for (sum, bucket) in self.counts.iter_mut().zip(&histogram.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        self.nanos += u128::from(histogram.nanos.load(Ordering::Relaxed));
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations, in seconds.
    #[allow(clippy::cast_precision_loss, reason = "the metrics are floats")]
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }

    /// Returns each bound in seconds with the number of durations up to it; the last has no bound.
    #[allow(clippy::cast_precision_loss, reason = "bounds are far below 2^53")]
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let bounds = BOUNDS.iter().map(|bound| Some(*bound as f64 / 1e9)).chain([None]);
        bounds.zip(&self.counts).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(buckets: &Buckets, seconds: f64) -> u64 {
        let found = buckets.cumulative().find(|(bound, _)| bound.is_some_and(|bound| (bound - seconds).abs() < 1e-12));
        found.unwrap().1
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        let histogram = Histogram::default();
        for nanos in [0, 10_000, 10_001, 1_000_000, 1_000_001, u64::MAX] {
            histogram.add(Duration::from_nanos(nanos));
        }
        let mut buckets = Buckets::default();
        buckets.add(&histogram);
        assert_eq!((below(&buckets, 1e-5), below(&buckets, 2.5e-5)), (2, 3));
        assert_eq!((below(&buckets, 1e-3), below(&buckets, 2.5e-3)), (4, 5));
        assert_eq!((below(&buckets, 30.0), buckets.count()), (5, 6));
        assert_eq!(buckets.cumulative().last(), Some((None, 6)));
    }

    #[test]
    fn counts_durations_over_the_range() {
        let (histogram, mut buckets) = (Histogram::default(), Buckets::default());
        histogram.add(Duration::MAX);
        buckets.add(&histogram);
        assert_eq!((buckets.count(), below(&buckets, 30.0)), (1, 0));
    }
}
