//! The pauses of hosts.

use super::MAX_HOSTS;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// The end of each host's pause.
#[derive(Debug)]
pub(super) struct Pauses {
    until: Mutex<HashMap<Box<str>, Instant>>,
    max_pause: Duration,
}

impl Pauses {
    pub(super) fn new(max_pause: Duration) -> Self {
        Self { until: Mutex::default(), max_pause }
    }

    /// Returns the remaining pause of a host.
    pub(super) fn remaining(&self, host: &str, now: Instant) -> Option<Duration> {
        let mut until = self.until.lock();
        let remaining = until.get(host)?.saturating_duration_since(now);
        if remaining.is_zero() {
            until.remove(host);
            return None;
        }
        Some(remaining)
    }

    /// Pauses a host. An earlier pause stays if it is longer.
    pub(super) fn pause(&self, host: &str, time: Duration, now: Instant) {
        let end = now + time.min(self.max_pause);
        let mut until = self.until.lock();
        if let Some(current) = until.get_mut(host) {
            *current = end.max(*current);
            return;
        }
        if until.len() >= MAX_HOSTS {
            until.retain(|_, end| *end > now);
        }
        if until.len() >= MAX_HOSTS {
            // Evicts the one that ends first, which matters least.
            let first = until.iter().min_by_key(|(_, end)| **end).map(|(host, _)| host.clone());
            first.and_then(|first| until.remove(&first));
        }
        until.insert(host.into(), end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stores_a_bounded_number_of_hosts() {
        let (pauses, now) = (Pauses::new(Duration::from_secs(100)), Instant::now());
        pauses.pause("long", Duration::from_secs(99), now);
        for number in 0..2 * MAX_HOSTS {
            pauses.pause(&format!("host-{number}"), Duration::from_secs(10), now);
        }
        assert_eq!(pauses.until.lock().len(), MAX_HOSTS);
        assert_eq!(pauses.remaining("long", now), Some(Duration::from_secs(99)));
        // Pauses that are over are evicted.
        pauses.pause("new", Duration::from_secs(1_000), now + Duration::from_secs(50));
        assert_eq!(pauses.until.lock().len(), 2);
        assert_eq!(pauses.remaining("long", now + Duration::from_secs(99)), None);
        assert_eq!(pauses.remaining("new", now + Duration::from_secs(50)), Some(Duration::from_secs(100)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_pause_does_not_replace_a_longer_one() {
        let (pauses, now) = (Pauses::new(Duration::from_secs(100)), Instant::now());
        for seconds in [5, 20, 1] {
            pauses.pause("a", Duration::from_secs(seconds), now);
        }
        assert_eq!((pauses.remaining("a", now), pauses.remaining("b", now)), (Some(Duration::from_secs(20)), None));
    }
}
