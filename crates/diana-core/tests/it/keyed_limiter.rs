//! One limit for each key: separate counts, shared parameters.

use diana_core::{Concurrency, FixedWindow, KeyedLimiter, ManualClock, Quota, Retry, SlidingWindow, TokenBucket};
use std::net::IpAddr;
use std::time::Duration;

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn each_key_is_counted_separately() {
    let limiter = KeyedLimiter::<IpAddr>::new(quota("1/s")).with_clock(ManualClock::new());
    let (one, two) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    assert!(limiter.check(&one).is_granted());
    assert!(!limiter.check(&one).is_granted());
    assert!(limiter.check(&two).is_granted());
    assert_eq!(limiter.len(), 2);
}

#[test]
fn a_denied_new_key_is_not_stored() {
    let limiter = KeyedLimiter::new(quota("5/s")).with_clock(ManualClock::new());
    assert_eq!(limiter.check_n("alice", 6).unwrap().retry(), Some(Retry::Never));
    assert!(limiter.is_empty());
    assert_eq!(limiter.memory_used(), 0);
}

#[test]
fn acquire_waits_for_its_own_key_only() {
    let limiter = KeyedLimiter::new(quota("1/s")).with_clock(ManualClock::new());
    assert_eq!(limiter.blocking_acquire("alice", 1).unwrap().waited, ms(0));
    assert_eq!(limiter.blocking_acquire("bob", 1).unwrap().waited, ms(0));
    assert_eq!(limiter.blocking_acquire("alice", 1).unwrap().waited, ms(1_000));
}

#[test]
fn waits_for_a_window_in_a_queue() {
    let limiter = KeyedLimiter::with_algorithm(FixedWindow::new(quota("1/s"))).with_clock(ManualClock::new());
    assert_eq!(limiter.blocking_acquire("alice", 1).unwrap().waited, ms(0));
    assert_eq!(
        limiter.blocking_acquire_timeout("alice", 1, ms(999)).unwrap_err().retry(),
        Some(Retry::After(ms(1_000)))
    );
    assert_eq!(limiter.blocking_acquire_timeout("alice", 1, ms(1_000)).unwrap().waited, ms(1_000));
}

#[test]
fn dropping_a_keyed_permit_releases_it() {
    let limiter = KeyedLimiter::with_algorithm(Concurrency::new(1).unwrap());
    let first = limiter.try_hold("alice").unwrap();
    assert_eq!(limiter.try_hold("alice").unwrap_err().retry(), Some(Retry::WhenReleased));
    let other = limiter.try_hold("bob").unwrap();
    drop(first);
    assert!(limiter.try_hold("alice").is_ok());
    drop(other);
    limiter.reclaim();
    assert!(limiter.is_empty());
}

#[test]
fn a_changed_limit_keeps_each_keys_usage() {
    let clock = ManualClock::new();
    let limiter = KeyedLimiter::<u32>::new(quota("10/s")).with_clock(clock);
    for key in 0..1_000 {
        assert!(limiter.check_n(&key, u64::from(key % 10) + 1).unwrap().is_granted());
    }
    let used = |key: u32| limiter.status(&key).limit - limiter.status(&key).remaining;
    for changed in ["100/s", "7/s burst 200", "20/min"] {
        limiter.set(TokenBucket::new(quota(changed)));
        assert!((0..1_000).all(|key| used(key) == u64::from(key % 10) + 1), "{changed}");
        assert_eq!(limiter.quota(), Some(quota(changed)));
    }
    limiter.set(SlidingWindow::new(quota("4/s")));
    assert!((0..1_000).all(|key| used(key) == u64::from(key % 10 + 1).min(4)));
    assert_eq!((limiter.quota(), limiter.rate()), (Some(quota("4/s")), Some(4.0)));
}

#[test]
fn refund_charge_peek_and_reset_apply_to_their_key() {
    let limiter = KeyedLimiter::new(quota("3/s")).with_clock(ManualClock::new());
    let receipt = limiter.check_n("alice", 3).unwrap().receipt().unwrap();
    limiter.charge("bob", 2).unwrap();
    limiter.refund("alice", &receipt);
    assert_eq!(limiter.status("alice").remaining, 3);
    assert_eq!(limiter.peek("bob", 2).unwrap().retry(), Some(Retry::After(Duration::from_nanos(333_333_334))));
    limiter.reset("bob");
    assert_eq!(limiter.status("bob").remaining, 3);
}
