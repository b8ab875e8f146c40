//! The retry budget: retries are a bounded share of the requests, so that they can't multiply an outage.
//!
//! ```text
//!  worker 0 ──▶ requests of each second ─┐
//!  worker n ──▶ requests of each second ─┼──▶ retries < share × requests + minimum × 10       over the last 10 s
//!               retries of each second  ─┘
//! ```
//!
//! A worker counts its requests on its own cache lines. Only a retry, which is rare, reads the counts of all workers, under
//! a lock. Finagle and linkerd have the same budget, with the same window.

use crate::section::RetryPolicy;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The length of the window, in seconds.
const WINDOW: u64 = 10;
/// The number of slots: at least one more than the window has seconds, and a power of two.
const SLOTS: usize = 16;
const COUNT_BITS: u32 = 32;

/// The retry budget of a group of upstreams, shared by all workers.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    policy: RetryPolicy,
    workers: Mutex<Vec<Arc<SecondCounts>>>,
    /// The retries; locked from the decision until it is counted.
    retries: Mutex<SecondCounts>,
}

/// The retries of a group of upstreams, in one worker.
pub(crate) struct GroupRetries {
    budget: Arc<RetryBudget>,
    /// The requests of this worker.
    requests: Arc<SecondCounts>,
}

/// Counts of the last seconds; each slot has its second and its count. There is one writer.
#[derive(Debug, Default)]
#[repr(align(128))]
struct SecondCounts([AtomicU64; SLOTS]);

impl SecondCounts {
    fn add(&self, second: u64) {
        let slot = &self.0[usize::try_from(second).unwrap_or_default() % SLOTS];
        if slot.load(Ordering::Relaxed) >> COUNT_BITS == second {
            slot.fetch_add(1, Ordering::Relaxed);
        } else {
            slot.store(second << COUNT_BITS | 1, Ordering::Relaxed);
        }
    }

    /// Returns the sum of the window that ends with this second.
    fn sum(&self, second: u64) -> u64 {
        let is_recent = |slot: &u64| second.checked_sub(slot >> COUNT_BITS).is_some_and(|age| age < WINDOW);
        let slots = self.0.iter().map(|slot| slot.load(Ordering::Relaxed));
        slots.filter(is_recent).map(|slot| slot & u64::from(u32::MAX)).sum()
    }
}

impl RetryBudget {
    pub(crate) fn new(policy: RetryPolicy) -> Arc<Self> {
        Arc::new(Self { policy, workers: Mutex::default(), retries: Mutex::default() })
    }
}

impl GroupRetries {
    pub(super) fn new(budget: &Arc<RetryBudget>) -> Self {
        let requests = Arc::<SecondCounts>::default();
        budget.workers.lock().push(Arc::clone(&requests));
        Self { budget: Arc::clone(budget), requests }
    }

    pub(super) fn policy(&self) -> &RetryPolicy {
        &self.budget.policy
    }

    /// Counts a request, on the gateway's clock in milliseconds.
    pub(super) fn count_request(&self, now: u64) {
        self.requests.add(now / 1_000);
    }

    /// Counts a retry, if the budget allows it.
    pub(super) fn try_retry(&self, now: u64) -> bool {
        let RetryBudget { policy, workers, retries } = &*self.budget;
        let second = now / 1_000;
        let requests: u64 = workers.lock().iter().map(|worker| worker.sum(second)).sum();
        let share = requests.saturating_mul(policy.budget.tenths().into()) / 1_000;
        let allowed = share + u64::from(policy.min_per_second) * WINDOW;
        let retries = retries.lock();
        let is_allowed = retries.sum(second) < allowed;
        if is_allowed {
            retries.add(second);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diana_rules::rule::Percent;

    fn workers(budget: u8, min_per_second: u32) -> [GroupRetries; 2] {
        let mut policy = RetryPolicy::default();
        (policy.budget, policy.min_per_second) = (Percent::whole(budget), min_per_second);
        let budget = RetryBudget::new(policy);
        [(); 2].map(|()| GroupRetries::new(&budget))
    }

    fn granted(worker: &GroupRetries, now: u64) -> usize {
        (0..1_000).filter(|_| worker.try_retry(now)).count()
    }

    #[test]
    fn retries_are_a_share_of_the_requests_of_all_workers() {
        let [one, two] = workers(20, 0);
        assert_eq!(granted(&one, 0), 0, "no request, no retry");
        (0..60).for_each(|_| one.count_request(500));
        (0..40).for_each(|_| two.count_request(9_999));
        assert_eq!(granted(&two, 9_999), 20);
        assert_eq!(granted(&one, 9_999), 0, "the budget is shared");
        // The requests and the retries of the first second have left the window.
        assert_eq!(granted(&one, 10_000), 0);
        assert_eq!(granted(&one, 19_999), 0);
        assert_eq!(granted(&one, 20_000), 0);
        (0..10).for_each(|_| one.count_request(20_000));
        assert_eq!(granted(&one, 20_000), 2);
    }

    #[test]
    fn a_minimum_is_allowed_without_requests() {
        let [one, two] = workers(20, 3);
        assert_eq!(granted(&one, 1_000) + granted(&two, 1_000), 30);
        assert_eq!(granted(&one, 10_999), 0);
        assert_eq!(granted(&one, 11_000), 30);
    }

    #[test]
    fn a_slot_is_reused_after_a_long_pause() {
        let [one, _] = workers(100, 0);
        (0..5).for_each(|_| one.count_request(3_000));
        // 16 seconds later the same slot is used.
        one.count_request(19_000);
        assert_eq!(granted(&one, 19_000), 1);
    }
}
