//! How far Redis's clock is ahead of ours, so that a script can be told its deadline.
//!
//! A reply tells Redis's time at which the script ran, which was before the reply came. So `redis − ours`, taken when the
//! reply comes, is too small by the way back, never too large. A deadline reckoned with it is early by the way back too:
//! a script that keeps it can have its answer here in time, and one that does not could not have.

use diana_core::Timestamp;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// How long the best sample counts. Clocks drift by some 20 ppm, 0.2 ms in that time.
const REMEMBERED: Duration = Duration::from_secs(10);
/// A difference that no way back explains: one of the clocks was set.
const STEP_MICROS: i64 = 1_000_000;

/// The largest difference seen lately.
#[derive(Debug, Default)]
pub(crate) struct ClockOffset {
    micros: AtomicI64,
    /// When it was seen, in nanoseconds; 0 if never.
    seen: AtomicU64,
}

impl ClockOffset {
    /// Learns from a reply that came at `now` and says that Redis's time was `redis_micros`.
    pub(crate) fn learn(&self, redis_micros: u64, now: Timestamp) {
        let sample = signed(redis_micros) - signed(now.as_micros());
        let (best, seen) = (self.micros.load(Ordering::Relaxed), self.seen.load(Ordering::Relaxed));
        let is_old = now.since(Timestamp::from_nanos(seen)) > REMEMBERED;
        if seen == 0 || sample > best || is_old || best - sample > STEP_MICROS {
            self.micros.store(sample, Ordering::Relaxed);
            self.seen.store(now.as_nanos().max(1), Ordering::Relaxed);
        }
    }

    /// A moment of ours in Redis's time, in microseconds; `None` until something was learned.
    pub(crate) fn redis_micros(&self, moment: Timestamp) -> Option<u64> {
        if self.seen.load(Ordering::Relaxed) == 0 {
            return None;
        }
        u64::try_from(signed(moment.as_micros()) + self.micros.load(Ordering::Relaxed)).ok()
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
    fn the_fastest_reply_tells_best() {
        let offset = ClockOffset::default();
        assert_eq!(offset.redis_micros(at(1)), None);
        offset.learn(5_000_100, at(1_000_400)); // 300 µs on the way back
        offset.learn(5_000_600, at(1_000_700)); // 100 µs
        offset.learn(5_000_900, at(1_001_300)); // 400 µs
        assert_eq!(offset.redis_micros(at(2_000_000)), Some(5_999_900));
    }

    #[test]
    fn a_clock_that_was_set_is_noticed_at_once() {
        let offset = ClockOffset::default();
        offset.learn(50_000_000, at(50_000_000));
        offset.learn(40_000_000, at(50_000_001));
        assert_eq!(offset.redis_micros(at(60_000_000)), Some(49_999_999));
    }
}
