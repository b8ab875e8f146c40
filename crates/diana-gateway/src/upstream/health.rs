//! The health of an upstream, shared by all workers. An upstream gets requests if it is not ejected and passes its checks.
//!
//! # Ejection
//! An upstream that fails [`FAILURES`] times in a row (it is unreachable, aborts, or times out) is ejected for some
//! time, longer each time. After that, one request tries it. If all are ejected, all are tried: that is better than
//! failing every request.
//!
//! # Checks
//! [`ActiveHealth`] is the state of the checks of an upstream, which the [checker](super::checker) runs. It starts as
//! passing, so that a gateway serves from its first moment; an upstream that is down is then found by its checks, or by
//! ejection. The two are independent: a passing check ends no ejection, since other requests failed.

use crate::section::HealthCheck;
use diana_metrics::CheckStatus;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The number of failures in a row that ejects an upstream.
const FAILURES: u32 = 3;
/// The time of the first ejection of an upstream, in milliseconds; and the maximum.
const EJECTION: u64 = 5_000;
const MAX_EJECTION: u64 = 60_000;

/// The health of an upstream.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Health {
    /// Failures in a row.
    failures: AtomicU32,
    /// The end of the ejection, in milliseconds since the gateway started.
    ejected_until: AtomicU64,
    /// The number of ejections.
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

/// The number of requests in flight at an upstream, of all workers. It is counted only if a balancer reads it, as every
/// change moves a cache line between the workers.
#[derive(Debug, Default)]
pub(super) struct Load {
    is_enabled: AtomicBool,
    count: OwnLine,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine(AtomicU64);

impl Load {
    pub(super) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    /// Adds a request. Returns `true` if it is counted, and must be removed.
    pub(super) fn add(&self) -> bool {
        let is_enabled = self.is_enabled.load(Ordering::Relaxed);
        if is_enabled {
            self.count.0.fetch_add(1, Ordering::Relaxed);
        }
        is_enabled
    }

    pub(super) fn remove(&self) {
        self.count.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.count.0.load(Ordering::Relaxed)
    }
}

/// Whether the checks of an upstream pass. The checker writes it, and the workers read it.
#[derive(Debug, Default)]
pub(crate) struct ActiveHealth {
    is_failing: AtomicBool,
    /// Results in a row that differ from the state.
    streak: AtomicU32,
    passed: AtomicU64,
    failed: AtomicU64,
    /// The reason why the last check failed; `None` if it passed.
    error: Mutex<Option<String>>,
}

impl ActiveHealth {
    /// Creates the state of new checks: passing, or as in other checks of the same upstream.
    pub(super) fn like(others: impl IntoIterator<Item = bool>) -> Self {
        let is_failing = others.into_iter().any(|is_passing| !is_passing);
        Self { is_failing: AtomicBool::new(is_failing), ..Self::default() }
    }

    pub(super) fn is_passing(&self) -> bool {
        !self.is_failing.load(Ordering::Relaxed)
    }

    /// Records the result of a check. Returns `true` if it changes whether the upstream gets requests.
    pub(super) fn record(&self, result: Result<(), String>, check: &HealthCheck) -> bool {
        let is_failure = result.is_err();
        let count = if is_failure { &self.failed } else { &self.passed };
        count.fetch_add(1, Ordering::Relaxed);
        *self.error.lock() = result.err();
        if is_failure == self.is_failing.load(Ordering::Relaxed) {
            self.streak.store(0, Ordering::Relaxed);
            return false;
        }
        let threshold = if is_failure { check.unhealthy } else { check.healthy };
        if self.streak.fetch_add(1, Ordering::Relaxed) + 1 < threshold {
            return false;
        }
        self.streak.store(0, Ordering::Relaxed);
        self.is_failing.store(is_failure, Ordering::Relaxed);
        true
    }

    pub(super) fn status(&self) -> CheckStatus {
        CheckStatus {
            passing: self.is_passing(),
            passed: self.passed.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            error: self.error.lock().clone(),
        }
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

    #[test]
    fn checks_in_a_row_change_the_state() {
        let (health, check) = (ActiveHealth::default(), HealthCheck::new("/"));
        let record = |results: &str| -> String {
            let results = results.chars().map(|result| if result == '+' { Ok(()) } else { Err("down".to_owned()) });
            results.map(|result| if health.record(result, &check) { '!' } else { '.' }).collect()
        };
        assert_eq!(record("--+---"), ".....!", "the third failure in a row");
        assert_eq!(record("-+-++"), "....!", "the second success in a row");
        assert_eq!(record("+--+--"), "......");
        let status = health.status();
        assert_eq!((status.passing, status.passed, status.failed), (true, 6, 11));
        assert_eq!(status.error.as_deref(), Some("down"));
        assert!(!ActiveHealth::like([true, false]).is_passing() && ActiveHealth::like([]).is_passing());
    }
}
