//! Exponential backoff with jitter.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The first and the longest wait: a config server that is reachable again is noticed within seconds.
const FIRST: Duration = Duration::from_millis(500);
const MAX: Duration = Duration::from_secs(5);

/// The waits after consecutive failures: half a second, doubled each time, at most five seconds.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// Returns the wait after one more failure.
    pub(super) fn failed(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(MAX);
        jittered(wait)
    }

    pub(super) fn succeeded(&mut self) {
        self.next = FIRST;
    }
}

/// Shortens a wait at random, so that instances that started or lost their config server together do not retry
/// together.
pub(super) fn jittered(wait: Duration) -> Duration {
    let percent = u32::try_from(RandomState::new().hash_one(()) % 25).unwrap_or_default();
    wait.saturating_sub(wait / 100 * percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_seconds() {
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = (0..10).map(|_| backoff.failed()).collect();
        assert!(waits[0] <= FIRST && waits[0] > FIRST / 2, "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= MAX), "{waits:?}");
        assert!(waits[9] > MAX / 2, "{waits:?}");
        backoff.succeeded();
        assert!(backoff.failed() <= FIRST);
    }
}
