//! The minimum interval, as transcripts; its laws are in tests/it/laws.rs.

use crate::support::{Trial, ms, secs};
use diana_core::{Algorithm, Clock, Cost, ManualClock, MaxWait, MinInterval, Refund, Retry, Timestamp};
use std::time::Duration;

fn every(interval: Duration) -> Trial<MinInterval> {
    Trial::new(MinInterval::new(interval).unwrap())
}

#[test]
fn two_grants_are_an_interval_apart() {
    let mut key = every(ms(200));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    key.clock.advance(ms(150));
    assert_eq!(key.ask(1), "denied, retry after 50ms");
    key.clock.advance(ms(50));
    assert_eq!(key.ask(1), "granted, 0 remaining");
}

#[test]
fn idle_time_stores_no_permits() {
    let mut key = every(ms(200));
    key.clock.advance(secs(3_600));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 200ms");
}

#[test]
fn the_cost_does_not_matter() {
    let mut key = every(ms(200));
    assert_eq!(key.ask(1_000_000), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 200ms");
}

#[test]
fn with_a_max_wait_it_reserves_in_fifo_order() {
    let mut key = every(ms(200));
    assert_eq!(key.wait_for(1), "granted, 0 remaining");
    assert_eq!(key.wait_for(1), "granted after 200ms, 0 remaining");
    assert_eq!(key.ask_within(1, MaxWait::up_to(ms(300))), "denied, retry after 100ms");
    assert_eq!(key.ask_within(1, MaxWait::up_to(ms(400))), "granted after 400ms, 0 remaining");
}

#[test]
fn only_the_last_grant_can_be_refunded_and_only_before_it_expires() {
    let mut key = every(ms(200));
    key.wait_for(1);
    key.wait_for(1);
    assert_eq!(key.refund_grant(0), Refund::Void);
    assert_eq!(key.refund_grant(1), Refund::Returned);
    assert_eq!(key.wait_for(1), "granted after 200ms, 0 remaining");
    key.clock.advance(ms(400));
    assert_eq!(key.refund_grant(2), Refund::Void);
}

#[test]
fn a_changed_interval_counts_from_the_last_grant() {
    let mut key = every(ms(200));
    key.ask(1);
    key.clock.advance(ms(50));
    key.rescale(MinInterval::new(ms(500)).unwrap());
    assert_eq!(key.ask(1), "denied, retry after 450ms");
    key.rescale(MinInterval::new(ms(10)).unwrap());
    assert_eq!(key.ask(1), "granted, 0 remaining");
}

#[test]
fn at_the_last_timestamp_the_denial_is_permanent() {
    let mut key = every(secs(1));
    key.clock = ManualClock::at(Timestamp::from_nanos(u64::MAX - 1_500_000_000));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.wait_for(1), "denied permanently");
    key.clock.advance(secs(1));
    assert_eq!(key.ask(1), "denied permanently");
    assert!(key.clock.now() < Timestamp::MAX);
}

#[test]
fn rejects_invalid_intervals() {
    let zero = MinInterval::new(Duration::ZERO).unwrap_err();
    assert_eq!(zero.to_string(), "interval 0: must be at least 1ns, as in `every 200ms`");
    let long = MinInterval::new(Duration::MAX).unwrap_err();
    assert!(long.to_string().ends_with("must be at most 584 years"), "{long}");
}

#[test]
fn nothing_is_denied_only_after_a_second_charge() {
    let (every, now) = (MinInterval::new(secs(2)).unwrap(), Timestamp::from_secs(9));
    let mut state = every.fresh(now);
    every.charge(&mut state, now, Cost::ONE);
    assert!(every.peek(&state, now, Cost::ZERO, MaxWait::NONE).is_granted());
    every.charge(&mut state, now, Cost::ONE);
    assert_eq!(every.peek(&state, now, Cost::ZERO, MaxWait::NONE).retry(), Some(Retry::After(secs(2))));
}
