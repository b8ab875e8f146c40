//! One limit without keys: checks, waits, refunds, and a change at runtime.

use diana_core::{
    Clock, Concurrency, FixedWindow, Limiter, ManualClock, MinInterval, Quota, Refund, Retry, SlidingLog, SmoothBursty,
    Timestamp, Total,
};
use std::time::Duration;

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A limiter on a clock at the epoch.
fn limiter(text: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::new(quota(text)).with_clock(clock.clone()), clock)
}

#[test]
fn spends_the_burst_then_waits_one_interval() {
    let (limiter, clock) = limiter("2/s");
    assert!(limiter.check().is_granted());
    assert!(limiter.check().is_granted());
    assert_eq!(limiter.check().retry(), Some(Retry::After(ms(500))));
    clock.advance(ms(500));
    assert_eq!(limiter.check().status().remaining, 0);
}

#[test]
fn an_interval_with_a_fractional_nanosecond_is_exact() {
    let (limiter, clock) = limiter("3/s");
    for _ in 0..3 {
        assert!(limiter.check().is_granted());
    }
    assert_eq!(limiter.check().retry(), Some(Retry::After(Duration::from_nanos(333_333_334))));
    clock.advance(Duration::from_nanos(333_333_333));
    assert!(!limiter.check().is_granted());
    clock.advance(Duration::from_nanos(1));
    assert!(limiter.check().is_granted());
}

#[test]
fn acquire_waits_and_returns_the_wait() {
    let (limiter, clock) = limiter("2/s burst 1");
    let waits: Vec<_> = (0..4).map(|_| limiter.blocking_acquire(1).unwrap().waited).collect();
    assert_eq!(waits, [ms(0), ms(500), ms(500), ms(500)]);
    assert_eq!(clock.now(), Timestamp::from_millis(1_500));
}

#[test]
fn a_timeout_that_is_too_short_is_denied_immediately() {
    let (limiter, clock) = limiter("1/s");
    assert!(limiter.check().is_granted());
    assert_eq!(limiter.blocking_acquire_timeout(1, ms(999)).unwrap_err().retry(), Some(Retry::After(ms(1))));
    assert_eq!(clock.now(), Timestamp::EPOCH);
    assert_eq!(limiter.blocking_acquire_timeout(1, ms(1_000)).unwrap().waited, ms(1_000));
}

#[test]
fn rejects_a_cost_of_zero_and_denies_one_above_the_capacity() {
    let (limiter, _) = limiter("5/s");
    assert!(limiter.check_n(0).is_err());
    assert!(limiter.blocking_acquire(u64::MAX).is_err());
    assert_eq!(limiter.blocking_acquire(6).unwrap_err().retry(), Some(Retry::Never));
    assert_eq!(limiter.status().remaining, 5);
}

#[test]
fn peek_charge_refund_and_reset() {
    let (limiter, _) = limiter("5/s");
    assert!(limiter.peek(5).unwrap().is_granted());
    assert_eq!(limiter.status().remaining, 5);
    let receipt = limiter.check_n(2).unwrap().receipt().unwrap();
    limiter.charge(9).unwrap();
    assert_eq!(limiter.status().remaining, 0);
    assert_eq!(limiter.refund(&receipt), Refund::Void); // charged over the limit; there is a later charge
    limiter.reset();
    assert_eq!(limiter.status().remaining, 5);
}

#[test]
fn a_wait_for_a_window_ends_with_it() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_algorithm(FixedWindow::new(quota("2/s"))).with_clock(clock.clone());
    clock.advance(ms(300));
    let waits: Vec<_> = (0..5).map(|_| limiter.blocking_acquire(1).unwrap().waited).collect();
    assert_eq!(waits, [ms(0), ms(0), ms(700), ms(0), ms(1_000)]);
}

#[test]
fn a_wait_for_a_log_ends_when_its_oldest_entry_expires() {
    let clock = ManualClock::new();
    let log = SlidingLog::several([quota("1/s"), quota("3/min")]).unwrap();
    let limiter = Limiter::with_algorithm(log).with_clock(clock);
    let waits: Vec<_> = (0..4).map(|_| limiter.blocking_acquire(1).unwrap().waited).collect();
    assert_eq!(waits, [ms(0), ms(1_000), ms(1_000), ms(58_000)]);
}

#[test]
fn guava_waits_are_the_limiters_waits() {
    let limiter = Limiter::with_algorithm(SmoothBursty::new(5.0).unwrap()).with_clock(ManualClock::new());
    let waits: Vec<_> = (0..3).map(|_| limiter.blocking_acquire(1).unwrap().waited).collect();
    assert_eq!(waits, [ms(0), ms(200), ms(200)]);
}

#[test]
fn a_wait_for_a_release_ends_at_the_timeout() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_algorithm(Concurrency::new(1).unwrap()).with_clock(clock.clone());
    assert!(limiter.check().is_granted());
    assert_eq!(limiter.blocking_acquire_timeout(1, ms(250)).unwrap_err().retry(), Some(Retry::WhenReleased));
    assert_eq!(clock.now(), Timestamp::from_millis(250));
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn waits_for_the_delay_of_lua_resty() {
    let pool = Concurrency::new(1).unwrap().with_burst(1).with_delay(ms(40));
    let limiter = Limiter::with_algorithm(pool).with_clock(ManualClock::new());
    assert_eq!(limiter.blocking_acquire(1).unwrap().waited, ms(0));
    assert_eq!(limiter.blocking_acquire(1).unwrap().waited, ms(40));
}

#[test]
fn a_total_is_denied_without_a_wait() {
    let limiter = Limiter::with_algorithm(Total::new(1).unwrap()).with_clock(ManualClock::new());
    assert!(limiter.blocking_acquire(1).is_ok());
    assert_eq!(limiter.blocking_acquire(1).unwrap_err().retry(), Some(Retry::Never));
}

mod changing_the_limit {
    use super::*;
    use diana_core::TokenBucket;

    fn used(limiter: &Limiter) -> u64 {
        let status = limiter.status();
        status.limit - status.remaining
    }

    #[test]
    fn keeps_the_usage() {
        let (limiter, _) = limiter("10/s");
        assert!(limiter.check_n(4).unwrap().is_granted());
        limiter.set(TokenBucket::new(quota("100/s")));
        assert_eq!((limiter.status().limit, used(&limiter)), (100, 4));
    }

    #[test]
    fn updates_quota_and_rate() {
        let (limiter, _) = limiter("100/min burst 5"); // an atomic word
        assert_eq!((limiter.quota(), limiter.rate()), (Some(quota("100/min burst 5")), Some(100.0 / 60.0)));
        for text in ["7/s", "100/min burst 5", "5/10s"] {
            limiter.set(TokenBucket::new(quota(text)));
            assert_eq!(limiter.quota(), Some(quota(text)));
        }
        limiter.set(FixedWindow::new(quota("3/h")));
        assert_eq!((limiter.quota(), limiter.rate()), (Some(quota("3/h")), Some(3.0 / 3600.0)));
        limiter.set(SmoothBursty::new(0.3).unwrap());
        assert_eq!((limiter.quota(), limiter.rate()), (None, Some(0.3)));
        limiter.set(MinInterval::new(ms(250)).unwrap());
        assert_eq!((limiter.quota(), limiter.rate()), (Some(quota("1/250ms")), Some(4.0)));
        limiter.set(SlidingLog::several([quota("1/s"), quota("3/min")]).unwrap());
        assert_eq!((limiter.quota(), limiter.rate()), (None, None));
        limiter.set(Total::new(3).unwrap());
        assert_eq!((limiter.quota(), limiter.rate()), (None, None));
    }

    #[test]
    fn clamps_the_usage_to_the_new_limit() {
        let (limiter, clock) = limiter("10/s");
        assert!(limiter.check_n(9).unwrap().is_granted());
        limiter.set(TokenBucket::new(quota("2/s")));
        assert_eq!(limiter.status().remaining, 0);
        clock.advance(ms(1_000));
        assert_eq!(limiter.status().remaining, 2);
    }

    #[test]
    fn migrates_between_any_two_algorithms() {
        let (limiter, _) = limiter("10/s"); // an atomic word
        assert!(limiter.check_n(3).unwrap().is_granted());
        limiter.set(TokenBucket::new(quota("7/s"))); // two words behind a lock
        assert_eq!(used(&limiter), 3);
        limiter.set(FixedWindow::new(quota("10/min")));
        assert_eq!(used(&limiter), 3);
        limiter.set(Total::new(50).unwrap());
        assert_eq!(used(&limiter), 3);
        limiter.set(TokenBucket::new(quota("10/s")));
        assert_eq!(used(&limiter), 3);
        assert!(limiter.check_n(7).unwrap().is_granted());
        assert!(!limiter.check().is_granted());
    }
}
