//! A limit that changes while threads take from it: from the atomic word to the lock, and back.

use crate::{TestClock, check};
use diana_core::{Concurrency, FixedWindow, KeyedLimiter, Limiter, Quota, TableOptions, TokenBucket, Total};
use shuttle::sync::Arc;
use shuttle::thread;

fn per_hour(permits: u64) -> Quota {
    Quota::per_hour(permits).unwrap()
}

/// Two threads take while a third changes the limit; in every order exactly the capacity is granted.
fn grants_exactly(limiter: Limiter, change: impl Fn(&Limiter) + Send + 'static) {
    let limiter = Arc::new(limiter.with_clock(TestClock::new()));
    let takers = [0, 1].map(|_| {
        let limiter = Arc::clone(&limiter);
        thread::spawn(move || (0..3).filter(|_| limiter.check().is_granted()).count())
    });
    let changer = {
        let limiter = Arc::clone(&limiter);
        thread::spawn(move || change(&limiter))
    };
    let granted: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
    changer.join().unwrap();
    assert_eq!((granted, limiter.status().remaining), (4, 0));
}

#[test]
fn from_packed_to_packed() {
    check(|| {
        grants_exactly(Limiter::new(per_hour(4)), |limiter| {
            limiter.set(TokenBucket::new(Quota::per_minute(4).unwrap()));
        });
    });
}

#[test]
fn from_packed_to_locked_and_back() {
    check(|| {
        grants_exactly(Limiter::new(per_hour(4)), |limiter| {
            limiter.set(FixedWindow::new(per_hour(4)));
            limiter.set(TokenBucket::new(per_hour(4)));
        });
    });
}

#[test]
fn from_locked_to_locked_and_packed() {
    check(|| {
        grants_exactly(Limiter::with_algorithm(Total::new(4).unwrap()), |limiter| {
            limiter.set(FixedWindow::new(per_hour(4)));
            limiter.set(TokenBucket::new(per_hour(4)));
            limiter.set(Total::new(4).unwrap());
        });
    });
}

/// A request that waits without a timeout is granted, even if the way to wait changes meanwhile.
#[test]
fn a_change_from_reserving_to_queueing_denies_no_waiter() {
    check(|| {
        let limiter = Arc::new(Limiter::new(Quota::per_second(1).unwrap()).with_clock(TestClock::new()));
        let keyed = KeyedLimiter::<str>::new(Quota::per_second(1).unwrap()).with_clock(TestClock::new());
        let keyed = Arc::new(keyed);
        assert!(limiter.check().is_granted() && keyed.check("alice").is_granted());
        let waiter = {
            let (limiter, keyed) = (Arc::clone(&limiter), Arc::clone(&keyed));
            thread::spawn(move || {
                assert!(limiter.blocking_acquire(1).is_ok());
                assert!(keyed.blocking_acquire("alice", 1).is_ok());
            })
        };
        limiter.set(FixedWindow::new(Quota::per_second(1).unwrap()));
        keyed.set(FixedWindow::new(Quota::per_second(1).unwrap()));
        waiter.join().unwrap();
    });
}

#[test]
fn a_change_from_queueing_to_reserving_grants_every_waiter() {
    check(|| {
        let limiter = Limiter::with_algorithm(Concurrency::new(1).unwrap()).with_clock(TestClock::new());
        let limiter = Arc::new(limiter);
        assert!(limiter.check().is_granted());
        let waiters = [0, 1].map(|_| {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || assert!(limiter.blocking_acquire(1).is_ok()))
        });
        limiter.set(TokenBucket::new(Quota::per_second(1).unwrap()));
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(limiter.waiting(), 0);
    });
}

#[test]
fn concurrent_changes_leave_one_limit_for_all_keys() {
    check(|| {
        let keyed = Arc::new(KeyedLimiter::<u64>::with_options(
            TokenBucket::new(per_hour(4)),
            TableOptions::default().shards(4),
        ));
        let changers = [5, 6].map(|permits| {
            let keyed = Arc::clone(&keyed);
            thread::spawn(move || keyed.set(FixedWindow::new(per_hour(permits))))
        });
        changers.into_iter().for_each(|changer| changer.join().unwrap());
        let limits = (0..16).map(|key| keyed.status(&key).limit).collect::<Vec<_>>();
        assert!(limits.iter().all(|limit| *limit == limits[0]), "{limits:?}");
    });
}
