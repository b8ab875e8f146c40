//! The table and the waiters under many random schedules: nothing is lost, nothing is granted twice, no thread hangs.
//!
//! Run by `cargo xtask test` with `--cfg shuttle`. A thread that waits only for a wake-up parks without a timeout, and
//! shuttle reports when all remaining threads are parked: a lost wake-up is a failure and not a slow test.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

#[path = "shuttle/limit_change.rs"]
mod limit_change;
#[path = "shuttle/pool.rs"]
mod pool;
#[path = "shuttle/store.rs"]
mod store;
#[path = "shuttle/wait_queue.rs"]
mod wait_queue;

use diana_core::{Clock, Timestamp};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;
use std::time::Duration;

const ITERATIONS: usize = 2_000;
const T0: Timestamp = Timestamp::from_secs(1_700_000_000);

/// Runs `body` under many random schedules.
fn check(body: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(body, ITERATIONS);
}

/// A clock that a timed wait advances, and a wait for a wake-up does not.
#[derive(Clone, Debug)]
struct TestClock(Arc<AtomicU64>);

impl TestClock {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(T0.as_nanos())))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn park(&self, timeout: Duration) {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        if timeout > DAY {
            return thread::park();
        }
        // Other threads may run before the wait is over, or it is over immediately.
        let end = self.now() + timeout;
        thread::yield_now();
        self.0.fetch_max(end.as_nanos(), Ordering::SeqCst);
    }
}
