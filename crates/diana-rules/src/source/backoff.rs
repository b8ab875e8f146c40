//! How long to wait: longer after each failure, and never all instances at the same moment.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// After the first failure, and the most: a centre that is back is seen within seconds.
const FIRST: Duration = Duration::from_millis(500);
const MOST: Duration = Duration::from_secs(5);

/// The waits after failures in a row: half a second, twice as long each time, five seconds at most.
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
    /// What to wait after one more failure.
    pub(super) fn failed(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(MOST);
        jittered(wait)
    }

    pub(super) fn succeeded(&mut self) {
        self.next = FIRST;
    }
}

/// A little less, by chance: instances that were started, or lost their centre, together do not come back together.
pub(super) fn jittered(wait: Duration) -> Duration {
    let percent = u32::try_from(RandomState::new().hash_one(()) % 25).unwrap_or_default();
    wait.saturating_sub(wait / 100 * percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_each_time_but_five_seconds_at_most() {
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = (0..10).map(|_| backoff.failed()).collect();
        assert!(waits[0] <= FIRST && waits[0] > FIRST / 2, "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= MOST), "{waits:?}");
        assert!(waits[9] > MOST / 2, "{waits:?}");
        backoff.succeeded();
        assert!(backoff.failed() <= FIRST);
    }
}
