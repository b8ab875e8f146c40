//! Wait queues: no waiter is lost, none overtakes, and the queue stays within its bound.

use crate::{TestClock, check};
use diana_core::{Clock, Concurrency, FixedWindow, KeyedLimiter, Limiter, Quota, Timestamp};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use std::time::Duration;

fn limiter(permits: u64) -> Arc<KeyedLimiter<str>> {
    Arc::new(KeyedLimiter::with_algorithm(Concurrency::new(permits).unwrap()).with_clock(TestClock::new()))
}

#[test]
fn every_waiter_is_granted_when_permits_are_released() {
    check(|| {
        let (limiter, in_flight) = (limiter(1), Arc::new(AtomicU64::new(0)));
        let waiters = [0, 1, 2].map(|_| {
            let (limiter, in_flight) = (Arc::clone(&limiter), Arc::clone(&in_flight));
            thread::spawn(move || {
                for _ in 0..2 {
                    let receipt = limiter.blocking_acquire("key", 1).unwrap().receipt;
                    assert_eq!(in_flight.fetch_add(1, Ordering::SeqCst), 0, "two in flight");
                    in_flight.fetch_sub(1, Ordering::SeqCst);
                    limiter.refund("key", &receipt);
                }
            })
        });
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(limiter.status("key").remaining, 1);
    });
}

#[test]
fn guards_and_resets_wake_waiters() {
    check(|| {
        let limiter = limiter(1);
        let receipt = limiter.check("key").receipt();
        assert!(receipt.is_some());
        let waiter = {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || assert!(limiter.blocking_acquire("key", 1).is_ok()))
        };
        let other = {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || drop(limiter.try_hold("other key").unwrap()))
        };
        limiter.reset("key");
        waiter.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn raising_the_limit_wakes_the_waiters_of_every_key() {
    check(|| {
        let limiter = limiter(1);
        let held = ["front", "back"].map(|name| limiter.check(name).receipt().unwrap());
        let waiters = ["front", "back"].map(|name| {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || assert!(limiter.blocking_acquire(name, 1).is_ok()))
        });
        limiter.set(Concurrency::new(2).unwrap());
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(held.len(), 2);
    });
}

#[test]
fn a_waiter_that_times_out_wakes_the_next() {
    check(|| {
        let limiter = limiter(1);
        let held = limiter.check("key").receipt().unwrap();
        let with_timeout = {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || {
                if let Ok(grant) = limiter.blocking_acquire_timeout("key", 1, Duration::from_millis(10)) {
                    limiter.refund("key", &grant.receipt);
                }
            })
        };
        let without_timeout = [0, 1].map(|_| {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || {
                let receipt = limiter.blocking_acquire("key", 1).unwrap().receipt;
                limiter.refund("key", &receipt);
            })
        });
        limiter.refund("key", &held);
        with_timeout.join().unwrap();
        without_timeout.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(limiter.status("key").remaining, 1);
    });
}

#[test]
fn waiters_are_granted_in_fifo_order() {
    check(|| {
        let limiter = Arc::new(Limiter::with_algorithm(Concurrency::new(1).unwrap()).with_clock(TestClock::new()));
        let held = limiter.check().receipt().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters = [0, 1, 2].map(|number| {
            let waiter = {
                let (limiter, order) = (Arc::clone(&limiter), Arc::clone(&order));
                thread::spawn(move || {
                    let receipt = limiter.blocking_acquire(1).unwrap().receipt;
                    order.lock().unwrap().push(number);
                    limiter.refund(&receipt);
                })
            };
            // The next one starts when this one is queued.
            while limiter.waiting() <= number {
                thread::yield_now();
            }
            waiter
        });
        let without_wait = {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || limiter.check().receipt().map(|receipt| limiter.refund(&receipt)).is_some())
        };
        limiter.refund(&held);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        without_wait.join().unwrap();
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
        assert_eq!((limiter.waiting(), limiter.status().remaining), (0, 1));
    });
}

#[test]
fn the_queue_stays_within_its_bound() {
    check(|| {
        let limiter =
            Limiter::with_algorithm(Concurrency::new(1).unwrap()).with_clock(TestClock::new()).with_max_waiting(1);
        let limiter = Arc::new(limiter);
        let held = limiter.check().receipt().unwrap();
        let waiters = [0, 1, 2].map(|_| {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || {
                let acquired = limiter.blocking_acquire(1);
                assert!(limiter.waiting() <= 1);
                acquired
                    .inspect(|grant| {
                        limiter.refund(&grant.receipt);
                    })
                    .is_ok()
            })
        });
        // The first one is queued; the others arrive after it and are denied, or arrive when it has left the queue.
        while limiter.waiting() == 0 {
            thread::yield_now();
        }
        limiter.refund(&held);
        let served = waiters.into_iter().map(|waiter| waiter.join().unwrap()).filter(|served| *served).count();
        assert!((1..=3).contains(&served));
        assert_eq!((limiter.waiting(), limiter.status().remaining), (0, 1));
    });
}

#[test]
fn waiters_for_the_next_window_are_spread_over_windows() {
    check(|| {
        let clock = TestClock::new();
        let window = FixedWindow::new(Quota::per_second(1).unwrap());
        let limiter = Arc::new(KeyedLimiter::<str>::with_algorithm(window).with_clock(clock.clone()));
        let seconds = Arc::new(Mutex::new(Vec::new()));
        let waiters = [0, 1, 2].map(|_| {
            let (limiter, seconds) = (Arc::clone(&limiter), Arc::clone(&seconds));
            thread::spawn(move || {
                let receipt = limiter.blocking_acquire("alice", 1).unwrap().receipt;
                seconds.lock().unwrap().push(receipt.at().as_nanos() / 1_000_000_000);
            })
        });
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        let mut seconds = seconds.lock().unwrap().clone();
        seconds.sort_unstable();
        seconds.dedup();
        assert_eq!(seconds.len(), 3, "two were granted in one window");
        assert!(clock.now() >= Timestamp::from_secs(seconds[0] + 2));
    });
}
