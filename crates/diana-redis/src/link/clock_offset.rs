//! The offset between Redis's clock and this process's, to compute a script's deadline in Redis's time.
//!
//! A reply contains Redis's time when the script ran, which was before the reply arrived. So `redis − ours`, computed
//! when the reply arrives, is too small by the latency of the reply, never too large. A deadline computed with it is
//! early by this latency too: the answer of a script that meets the deadline can arrive in time, and that of one that
//! does not could not have.

use diana_core::Timestamp;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// How long the best sample is valid. Clocks drift by about 20 ppm, 0.2 ms in that time.
const SAMPLE_LIFETIME: Duration = Duration::from_secs(10);
/// A difference that no latency explains: one of the clocks was set.
const STEP_MICROS: i64 = 1_000_000;
/// How old a sample may be for a time that decides: samples of heartbeats are replaced in time.
const MAX_AGE: Duration = Duration::from_secs(12);
/// The difference over which a time that was computed with the offset does not decide.
pub(crate) const MAX_DIFFERENCE: Duration = Duration::from_millis(10);

/// The largest recent difference.
#[derive(Debug, Default)]
pub(crate) struct ClockOffset {
    micros: AtomicI64,
    /// When it was measured, in nanoseconds; 0 if never.
    measured_at: AtomicU64,
}

impl ClockOffset {
    /// Updates the offset from a reply that arrived at `now` and contains Redis's time `redis_micros`.
    pub(crate) fn learn(&self, redis_micros: u64, now: Timestamp) {
        let sample = signed(redis_micros) - signed(now.as_micros());
        let (best, measured_at) = (self.micros.load(Ordering::Relaxed), self.measured_at.load(Ordering::Relaxed));
        let is_old = now.since(Timestamp::from_nanos(measured_at)) > SAMPLE_LIFETIME;
        if measured_at == 0 || sample > best || is_old || best - sample > STEP_MICROS {
            self.micros.store(sample, Ordering::Relaxed);
            self.measured_at.store(now.as_nanos().max(1), Ordering::Relaxed);
        }
    }

    /// Returns the drift between the clocks since the offset was measured, as far as `latency` does not explain it,
    /// from a reply that arrived at `now` after it. Over [`MAX_DIFFERENCE`], the offset is measured anew.
    pub(crate) fn difference(&self, redis_micros: u64, now: Timestamp, latency: Duration) -> Duration {
        if self.measured_at.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        let sample = signed(redis_micros) - signed(now.as_micros());
        let best = self.micros.load(Ordering::Relaxed);
        // The sample is too small by the latency of the reply, so only more than that is a difference.
        let latency = i64::try_from(latency.as_micros()).unwrap_or(i64::MAX);
        let ahead = (sample - best).max((best - sample).saturating_sub(latency)).max(0);
        let difference = Duration::from_micros(ahead.unsigned_abs());
        if difference > MAX_DIFFERENCE {
            self.measured_at.store(0, Ordering::Relaxed);
        }
        difference
    }

    /// Converts like [`redis_micros`](Self::redis_micros); `None` if the last good sample is old.
    pub(crate) fn recent_redis_micros(&self, now: Timestamp) -> Option<u64> {
        let measured_at = Timestamp::from_nanos(self.measured_at.load(Ordering::Relaxed));
        if now.since(measured_at) > MAX_AGE { None } else { self.redis_micros(now) }
    }

    /// Converts this process's time to Redis's, in microseconds; `None` before the first sample.
    pub(crate) fn redis_micros(&self, time: Timestamp) -> Option<u64> {
        if self.measured_at.load(Ordering::Relaxed) == 0 {
            return None;
        }
        u64::try_from(signed(time.as_micros()) + self.micros.load(Ordering::Relaxed)).ok()
    }
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn the_fastest_reply_is_the_best_sample() {
        let offset = ClockOffset::default();
        assert_eq!(offset.redis_micros(at(1)), None);
        offset.learn(5_000_100, at(1_000_400)); // the reply took 300 µs
        offset.learn(5_000_600, at(1_000_700)); // 100 µs
        offset.learn(5_000_900, at(1_001_300)); // 400 µs
        assert_eq!(offset.redis_micros(at(2_000_000)), Some(5_999_900));
    }

    #[test]
    fn a_difference_is_what_the_latency_does_not_explain() {
        let (offset, latency) = (ClockOffset::default(), Duration::from_millis(3));
        assert_eq!(offset.difference(7_000_000, at(1_000_000), latency), Duration::ZERO);
        offset.learn(5_000_000, at(1_000_000));
        assert_eq!(offset.difference(5_997_000, at(2_000_000), latency), Duration::ZERO);
        assert_eq!(offset.difference(5_993_000, at(2_000_000), latency), Duration::from_millis(4));
        assert_eq!(offset.difference(6_002_000, at(2_000_000), latency), Duration::from_millis(2));
        assert_eq!(offset.recent_redis_micros(at(3_000_000)), Some(7_000_000));
        assert_eq!(offset.recent_redis_micros(at(14_000_000)), None, "the sample is old");
        // One of the clocks was set: Redis's is used, until it is measured again.
        assert_eq!(offset.difference(6_050_000, at(2_000_000), latency), Duration::from_millis(50));
        assert_eq!(offset.recent_redis_micros(at(3_000_000)), None);
        offset.learn(6_050_000, at(2_000_000));
        assert_eq!(offset.recent_redis_micros(at(3_000_000)), Some(7_050_000));
    }

    #[test]
    fn a_clock_step_is_detected_at_once() {
        let offset = ClockOffset::default();
        offset.learn(50_000_000, at(50_000_000));
        offset.learn(40_000_000, at(50_000_001));
        assert_eq!(offset.redis_micros(at(60_000_000)), Some(49_999_999));
    }
}
