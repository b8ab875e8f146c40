//! Durations of each second of the last hour, in the buckets of the metrics, and percentiles over any span of them.

use super::series::Series;
use diana_metrics::Buckets;
use std::ops::Range;

/// The number of durations in each bucket.
type Counts = [u32; Buckets::LEN];

/// The durations of one kind.
#[derive(Debug, Default)]
pub(super) struct Latency {
    series: Series<Counts>,
}

/// The percentiles that are reported.
pub(super) const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

impl Latency {
    /// The maximum memory, in bytes.
    pub(super) const MAX_BYTES: usize = Series::<Counts>::MAX_BYTES;

    /// Adds durations to a second.
    pub(super) fn add(&mut self, counts: &[u64; Buckets::LEN], second: u64) {
        if counts.iter().all(|count| *count == 0) {
            return;
        }
        for (sum, count) in self.series.at(second).iter_mut().zip(counts) {
            *sum = sum.saturating_add(u32::try_from(*count).unwrap_or(u32::MAX));
        }
    }

    /// Frees what is older than an hour.
    pub(super) fn expire(&mut self, now: u64) {
        self.series.expire(now);
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.series.bytes()
    }

    /// Returns the buckets of each step.
    pub(super) fn bins(&self, seconds: &Range<u64>, step: u64) -> Vec<[u64; Buckets::LEN]> {
        let number = usize::try_from((seconds.end - seconds.start) / step).unwrap_or_default();
        let mut bins = vec![[0; Buckets::LEN]; number];
        self.series.visit(seconds.clone(), |second, counts| {
            let bin = usize::try_from((second - seconds.start) / step).ok().and_then(|bin| bins.get_mut(bin));
            let Some(bin) = bin else { return };
            for (sum, count) in bin.iter_mut().zip(counts) {
                *sum += u64::from(*count);
            }
        });
        bins
    }
}

/// Returns a percentile in milliseconds, with microseconds; `None` without durations.
///
/// Durations are assumed to be spread evenly over their bucket. One over the last bound (30 s) counts as that.
#[allow(clippy::cast_precision_loss, reason = "counts and bounds are far below 2^53, and an estimate is returned")]
pub(super) fn percentile(counts: &[u64; Buckets::LEN], percentile: f64) -> Option<f64> {
    let total = counts.iter().sum::<u64>();
    if total == 0 {
        return None;
    }
    let rank = (total as f64 * percentile).max(1.0);
    let (mut below, mut lower) = (0.0, 0.0);
    for (count, upper) in counts.iter().zip(Buckets::BOUNDS) {
        let (count, upper) = (*count as f64, upper as f64);
        if count > 0.0 && below + count >= rank {
            return Some(milliseconds(lower + (upper - lower) * (rank - below) / count));
        }
        below += count;
        lower = upper;
    }
    Some(milliseconds(lower))
}

fn milliseconds(nanos: f64) -> f64 {
    (nanos / 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated_within_a_bucket() {
        let mut counts = [0; Buckets::LEN];
        assert_eq!(percentile(&counts, 0.5), None);
        // 100 durations between 1 and 2.5 ms.
        counts[7] = 100;
        assert_eq!(percentile(&counts, 0.5), Some(1.75));
        assert_eq!(percentile(&counts, 0.99), Some(2.485));
        // 10 more over 30 s.
        counts[Buckets::LEN - 1] = 10;
        assert_eq!(percentile(&counts, 0.99), Some(30_000.0));
        assert_eq!(percentile(&counts, 0.5), Some(1.825));
    }

    #[test]
    fn steps_sum_up_their_seconds() {
        let mut latency = Latency::default();
        let mut counts = [0; Buckets::LEN];
        counts[0] = 3;
        latency.add(&counts, 100);
        latency.add(&counts, 101);
        latency.add(&counts, 102);
        let bins = latency.bins(&(100..104), 2);
        assert_eq!(bins.iter().map(|bin| bin[0]).collect::<Vec<_>>(), [6, 3]);
        latency.expire(100_000);
        assert_eq!(latency.bytes(), 0);
    }
}
