//! Durations, in a few buckets.
//!
//! A bucket counts durations above the previous bound up to its own. The cumulative counts that Prometheus expects are
//! computed when they are read.

use crate::counter::AddTo;
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
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub fn observe(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < nanos);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl AddTo<Buckets> for Histogram {
    fn add_to(&self, sum: &mut Buckets) {
        for (sum, bucket) in sum.counts.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        sum.nanos += u128::from(self.nanos.load(Ordering::Relaxed));
    }
}

/// The sum of several histograms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    counts: [u64; BUCKETS],
    nanos: u128,
}

impl Buckets {
    /// The number of buckets.
    pub const LEN: usize = BUCKETS;
    /// The upper bounds of all buckets but the last, in nanoseconds.
    pub const BOUNDS: [u64; BUCKETS - 1] = BOUNDS;

    /// Returns the number of durations in each bucket, not cumulative.
    pub fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// Adds the counts of other buckets.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.nanos += other.nanos;
    }

    /// Returns the duration in seconds below which this share of all durations is, from 0 to 1: interpolated within its
    /// bucket, as Prometheus does. The highest bound stands for durations over it. `None` without durations.
    ///
    /// ```
    /// use diana_metrics::{Metrics, Outcome};
    /// use std::time::Duration;
    ///
    /// let metrics = Metrics::new(1);
    /// assert_eq!(metrics.totals().upstream_seconds.quantile(0.5), None);
    /// metrics.shard(0).upstream_seconds.observe(Duration::from_millis(2));
    /// let median = metrics.totals().upstream_seconds.quantile(0.5).unwrap();
    /// assert!((median - 0.00175).abs() < 1e-9, "half of the way from 1 ms to 2.5 ms");
    /// ```
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = self.count() as f64 * share;
        let (mut below, mut lower) = (0, 0.0);
        for (bound, count) in self.cumulative() {
            let Some(upper) = bound else { break };
            if count > below && count as f64 >= rank {
                let position = (rank - below as f64) / (count - below) as f64;
                return Some(lower + (upper - lower) * position.max(0.0));
            }
            (below, lower) = (count, upper);
        }
        (self.count() > 0).then_some(lower)
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
        let bucket = buckets.cumulative().find(|(bound, _)| bound.is_some_and(|bound| (bound - seconds).abs() < 1e-12));
        bucket.unwrap().1
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        let histogram = Histogram::default();
        for nanos in [0, 10_000, 10_001, 1_000_000, 1_000_001, u64::MAX] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        let mut buckets = Buckets::default();
        histogram.add_to(&mut buckets);
        assert_eq!((below(&buckets, 1e-5), below(&buckets, 2.5e-5)), (2, 3));
        assert_eq!((below(&buckets, 1e-3), below(&buckets, 2.5e-3)), (4, 5));
        assert_eq!((below(&buckets, 30.0), buckets.count()), (5, 6));
        assert_eq!(buckets.cumulative().last(), Some((None, 6)));
    }

    #[test]
    fn counts_durations_over_the_range() {
        let (histogram, mut buckets) = (Histogram::default(), Buckets::default());
        histogram.observe(Duration::MAX);
        histogram.add_to(&mut buckets);
        assert_eq!((buckets.count(), below(&buckets, 30.0)), (1, 0));
    }

    #[test]
    fn a_quantile_is_within_its_bucket() {
        let (histogram, mut buckets) = (Histogram::default(), Buckets::default());
        for millis in [2, 2, 2, 200] {
            histogram.observe(Duration::from_millis(millis));
        }
        histogram.add_to(&mut buckets);
        let is = |share: f64, from: f64, to: f64| {
            let quantile = buckets.quantile(share).unwrap();
            assert!(quantile > from && quantile <= to, "{share}: {quantile}");
        };
        is(0.5, 0.001, 0.0025);
        is(0.75, 0.001, 0.0025);
        is(0.99, 0.1, 0.25);
        is(1.0, 0.1, 0.25);
        histogram.observe(Duration::from_secs(100));
        let mut buckets = Buckets::default();
        histogram.add_to(&mut buckets);
        assert_eq!(buckets.quantile(1.0), Some(30.0));
    }
}
