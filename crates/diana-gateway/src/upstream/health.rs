//! The health of an upstream, shared by all workers.
//!
//! # Ejection
//! An upstream that fails [`FAILURES`] times in a row (it is unreachable, aborts, or times out) is ejected for some
//! time, longer each time. After that, one request tries it. If all are ejected, all are tried: that is better than
//! failing every request.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How many failures in a row eject an upstream.
const FAILURES: u32 = 3;
/// How long an upstream is ejected at first, in milliseconds; and at most.
const EJECTION: u64 = 5_000;
const MAX_EJECTION: u64 = 60_000;

/// The health of an upstream.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Health {
    /// Failures in a row.
    failures: AtomicU32,
    /// When the ejection ends, in milliseconds since the gateway started.
    ejected_until: AtomicU64,
    /// How often it was ejected.
    ejections: AtomicU64,
}

impl Health {
    pub(super) fn is_healthy(&self, now: u64) -> bool {
        self.ejected_until.load(Ordering::Relaxed) <= now
    }

    /// Records a response. Returns `true` if the upstream was ejected before.
    pub(super) fn succeeded(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.ejected_until.store(0, Ordering::Relaxed);
        self.failures.swap(0, Ordering::Relaxed) >= FAILURES
    }

    /// Records a failure. Returns `true` if the upstream was healthy until now and is ejected from now on.
    pub(super) fn failed(&self, now: u64) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let Some(excess) = failures.checked_sub(FAILURES) else { return false };
        let time = EJECTION.saturating_mul(1 << excess.min(8)).min(MAX_EJECTION);
        let is_new = self.ejected_until.swap(now + time, Ordering::Relaxed) <= now;
        if is_new {
            self.ejections.fetch_add(1, Ordering::Relaxed);
        }
        is_new
    }

    /// Returns for how many more milliseconds it is ejected; `None` if it is not.
    pub(super) fn ejected_for(&self, now: u64) -> Option<u64> {
        self.ejected_until.load(Ordering::Relaxed).checked_sub(now).filter(|time| *time > 0)
    }

    /// Returns how often it was ejected.
    pub(super) fn ejections(&self) -> u64 {
        self.ejections.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_failure_in_a_row_ejects_it_until_a_response() {
        let health = Health::default();
        assert_eq!([0, 1, 2].map(|now| health.failed(now)), [false, false, true]);
        assert!(!health.is_healthy(5_001) && health.is_healthy(5_002));
        assert_eq!((health.ejected_for(2), health.ejected_for(5_002)), (Some(5_000), None));
        // The next request fails as well: it is ejected for longer.
        assert!(health.failed(6_000));
        assert_eq!((health.ejected_for(6_000), health.ejections()), (Some(10_000), 2));
        assert!(health.succeeded() && !health.succeeded());
        assert!(health.is_healthy(6_000) && health.ejected_for(6_000).is_none());
        assert!(!health.failed(6_000) && !health.succeeded(), "one failure ejects nothing");
    }
}
