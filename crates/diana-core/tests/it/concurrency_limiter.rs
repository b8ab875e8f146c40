//! A pool of permits: guards that release, a bounded queue, errors that name the resource.

use diana_core::{Clock, ConcurrencyLimiter, ManualClock, PermitError, Timestamp};
use std::sync::mpsc;
use std::time::Duration;

fn pool(limit: u64) -> ConcurrencyLimiter {
    ConcurrencyLimiter::new("database", limit).unwrap()
}

#[test]
fn a_dropped_permit_is_released() {
    let pool = pool(3);
    let two = pool.blocking_acquire(2).unwrap();
    assert_eq!((pool.available(), two.count()), (1, 2));
    drop(two);
    assert_eq!(pool.available(), 3);
}

#[test]
fn errors_name_the_resource() {
    let pool = pool(1).with_clock(ManualClock::new());
    let _held = pool.blocking_acquire(1).unwrap();
    let error = pool.blocking_acquire_timeout(1, Duration::from_secs(2)).unwrap_err();
    assert_eq!(error.to_string(), "no permit of `database` is free: 1 of 1 in use, 0 requests queued");
    assert_eq!(
        pool.blocking_acquire(2).unwrap_err().to_string(),
        "cannot acquire 2 permits of `database`: the limit is 1"
    );
    assert!(matches!(pool.blocking_acquire(0), Err(PermitError::Cost(_))));
    assert!(ConcurrencyLimiter::new("database", 0).is_err());
}

#[test]
fn a_full_queue_denies_the_next_request() {
    let pool = pool(1).with_max_waiting(1);
    let held = pool.blocking_acquire(1).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.blocking_acquire(1).map(|permit| permit.count()));
        while pool.waiting() == 0 {
            std::thread::yield_now();
        }
        assert!(matches!(pool.blocking_acquire(1), Err(PermitError::InUse { waiting: 1, .. })));
        drop(held);
        assert_eq!(waiter.join().unwrap(), Ok(1));
    });
}

/// Regression: the second of two settings undid the first.
#[test]
fn settings_are_kept_whatever_their_order() {
    let clock = ManualClock::new();
    let pools = [
        pool(1).with_max_waiting(0).with_clock(clock.clone()),
        pool(1).with_clock(clock.clone()).with_max_waiting(0),
        pool(1).with_clock(clock.clone()).with_max_waiting(1),
    ];
    assert_eq!(pools.each_ref().map(ConcurrencyLimiter::max_waiting), [0, 0, 1]);
    let held = pools.each_ref().map(|pool| pool.blocking_acquire(1).unwrap());
    let start = clock.now();
    for pool in &pools {
        assert!(pool.blocking_acquire_timeout(1, Duration::from_secs(5)).is_err());
    }
    // Only the last one may wait, and its wait advances the manual clock.
    assert_eq!(clock.now().since(start), Duration::from_secs(5));
    drop(held);
}

#[test]
fn a_large_request_at_the_head_is_not_overtaken() {
    let pool = pool(2);
    let held = pool.blocking_acquire(1).unwrap();
    let (served, order) = mpsc::channel();
    std::thread::scope(|scope| {
        for (index, wanted) in [2, 1].into_iter().enumerate() {
            let (pool, served) = (&pool, served.clone());
            scope.spawn(move || {
                let permit = pool.blocking_acquire(wanted).unwrap();
                served.send(wanted).unwrap();
                drop(permit);
            });
            while pool.waiting() <= index {
                std::thread::yield_now();
            }
        }
        // One is free, but the head of the queue needs two.
        assert_eq!(pool.available(), 1);
        assert!(pool.try_acquire(1).is_err());
        drop(held);
        assert_eq!(order.iter().take(2).collect::<Vec<_>>(), [2, 1]);
    });
}

#[test]
fn a_smaller_pool_waits_for_permits_in_use() {
    let pool = pool(4);
    let (first, second) = (pool.blocking_acquire(2).unwrap(), pool.blocking_acquire(2).unwrap());
    pool.resize(2).unwrap();
    drop(first);
    assert_eq!(pool.available(), 0);
    drop(second);
    assert_eq!(pool.available(), 2);
}

#[test]
fn a_larger_pool_grants_waiting_requests() {
    let pool = pool(1);
    let _held = pool.blocking_acquire(1).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.blocking_acquire(1).is_ok());
        while pool.waiting() == 0 {
            std::thread::yield_now();
        }
        pool.resize(2).unwrap();
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn a_wait_without_a_timeout_does_not_advance_a_manual_clock() {
    let clock = ManualClock::new();
    let pool = pool(1).with_clock(clock.clone());
    let held = pool.blocking_acquire(1).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.blocking_acquire(1).is_ok());
        while pool.waiting() == 0 {
            std::thread::yield_now();
        }
        drop(held);
        assert!(waiter.join().unwrap());
    });
    assert_eq!(clock.now(), Timestamp::EPOCH);
}
