//! The token bucket, as transcripts; its laws are in tests/it/laws.rs.

use crate::support::{T0, Trial, ms, secs};
use diana_core::{
    Algorithm, Clock, Cost, Limiter, ManualClock, MaxWait, Outcome, Quota, Refund, Retry, Timestamp, TokenBucket,
};
use std::time::Duration;

fn bucket(quota: &str) -> Trial<TokenBucket> {
    Trial::new(TokenBucket::new(quota.parse().unwrap()))
}

#[test]
fn spends_the_burst_then_waits_one_interval() {
    let mut key = bucket("2/s");
    assert_eq!(key.ask(1), "granted, 1 remaining");
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 500ms");
    key.clock.advance(ms(500));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 500ms");
}

#[test]
fn one_nanosecond_early_is_too_early() {
    let mut key = bucket("1/s");
    assert_eq!(key.ask(1), "granted, 0 remaining");
    key.clock.advance(secs(1) - Duration::from_nanos(1));
    assert_eq!(key.ask(1), "denied, retry after 1ns");
    key.clock.advance(Duration::from_nanos(1));
    assert_eq!(key.ask(1), "granted, 0 remaining");
}

#[test]
fn idle_time_stores_at_most_the_burst() {
    let mut key = bucket("10/s burst 3");
    key.clock.advance(secs(3_600));
    assert_eq!(key.ask(3), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 100ms");
}

#[test]
fn the_same_rate_with_another_burst() {
    let mut second = bucket("1/s");
    let mut minute = bucket("60/min");
    assert_eq!(second.ask(2), "denied permanently");
    assert_eq!(minute.ask(60), "granted, 0 remaining");
    second.ask(1);
    assert_eq!(second.ask(1), "denied, retry after 1s");
    assert_eq!(minute.ask(1), "denied, retry after 1s");
}

#[test]
fn a_cost_above_the_burst_is_denied_permanently_and_not_charged() {
    let mut key = bucket("5/s");
    assert_eq!(key.ask(6), "denied permanently");
    assert_eq!(key.wait_for(6), "denied permanently");
    assert_eq!(key.ask(5), "granted, 0 remaining");
}

#[test]
fn a_third_of_a_second_is_rounded_up_in_the_retry_but_not_in_the_state() {
    let mut key = bucket("3/s");
    assert_eq!(key.ask(3), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 333.333334ms");
    key.clock.advance(Duration::from_nanos(333_333_334));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 333.333333ms");
}

#[test]
fn with_a_max_wait_it_reserves_in_fifo_order() {
    let mut key = bucket("2/s");
    assert_eq!(key.wait_for(2), "granted, 0 remaining");
    assert_eq!(key.wait_for(1), "granted after 500ms, 0 remaining");
    assert_eq!(key.wait_for(1), "granted after 1s, 0 remaining");
    assert_eq!(key.ask_within(1, MaxWait::up_to(secs(1))), "denied, retry after 500ms");
    key.clock.advance(ms(500));
    assert_eq!(key.ask_within(1, MaxWait::up_to(secs(1))), "granted after 1s, 0 remaining");
}

#[test]
fn a_refund_restores_permits_that_are_not_refilled_yet() {
    let mut key = bucket("1/s burst 2");
    assert_eq!(key.ask(2), "granted, 0 remaining");
    key.clock.advance(ms(1_500));
    assert_eq!(key.status().remaining, 1);
    // One and a half were refilled; the other half is refunded.
    assert_eq!(key.refund_grant(0), Refund::Returned);
    assert!(key.is_fresh());
}

#[test]
fn a_refund_is_void_once_refilled() {
    let mut key = bucket("1/s burst 2");
    key.ask(1);
    key.clock.advance(secs(1));
    key.ask(1);
    assert_eq!(key.refund_grant(0), Refund::Void);
    assert_eq!(key.status().remaining, 1);
}

/// A busy key is in debt for a second; its permits can be refunded for that long.
#[test]
fn a_busy_key_can_be_refunded_long_after_its_request_proceeded() {
    let mut key = bucket("100/s");
    for _ in 0..100 {
        key.ask(1);
    }
    key.clock.advance(ms(500));
    assert_eq!(key.status().remaining, 50);
    assert_eq!(key.refund_grant(0), Refund::Void); // its own 10 ms were refilled first, long ago
    assert_eq!(key.refund_grant(99), Refund::Returned);
    assert_eq!(key.status().remaining, 51);
}

#[test]
fn a_reservation_is_refunded_only_while_it_is_the_last() {
    let mut key = bucket("1/s");
    key.wait_for(1);
    assert_eq!(key.wait_for(1), "granted after 1s, 0 remaining");
    assert_eq!(key.wait_for(1), "granted after 2s, 0 remaining");
    assert_eq!(key.refund_grant(1), Refund::Void);
    assert_eq!(key.refund_grant(2), Refund::Returned);
    assert_eq!(key.refund_grant(1), Refund::Returned);
    assert_eq!(key.wait_for(1), "granted after 1s, 0 remaining");
}

#[test]
fn a_charge_creates_a_debt() {
    let mut key = bucket("1/s burst 2");
    key.charge(5);
    assert_eq!(key.ask(1), "denied, retry after 4s");
    key.clock.advance(secs(4));
    assert_eq!(key.ask(1), "granted, 0 remaining");
}

#[test]
fn a_changed_limit_keeps_the_usage() {
    let mut key = bucket("10/s");
    key.ask(4);
    key.rescale(TokenBucket::new("20/s".parse().unwrap()));
    assert_eq!(key.status().remaining, 16);
    key.rescale(TokenBucket::new("3/min".parse().unwrap()));
    assert_eq!(key.ask(1), "denied, retry after 20s");
}

/// A client that takes all it can get and then waits exactly the retry time.
fn greedy(quota: Quota, cost: u64, span: Duration) -> u64 {
    let mut key = Trial::new(TokenBucket::new(quota));
    // Starts with an empty bucket, so that the burst is not counted.
    key.charge(quota.burst());
    let mut granted = 0;
    loop {
        match key.take_within(cost, MaxWait::NONE) {
            Outcome::Granted { .. } => granted += cost,
            Outcome::Denied { retry: Retry::After(wait) } => key.clock.advance(wait),
            Outcome::Denied { .. } => return granted,
        }
        if key.clock.now().since(Timestamp::EPOCH) > span {
            return granted;
        }
    }
}

#[test]
fn three_a_second_is_three_million_in_a_million_seconds() {
    // A burst of 2: a client that asks at whole nanoseconds is up to ⅔ ns late, and with a burst of 1 the bucket would
    // be full by then and correctly overflow.
    let three = Quota::per_second(3).unwrap();
    assert_eq!(greedy(three.with_burst(2).unwrap(), 1, secs(1_000_000)), 3_000_000);
    assert_eq!(greedy(three, 3, secs(1_000_000)), 3_000_000);
}

#[test]
fn rates_near_and_above_one_per_nanosecond_are_exact() {
    let odd = Quota::per_second(600_000_001).unwrap();
    assert_eq!(greedy(odd.with_burst(1_000_000).unwrap(), 7, ms(10)), 6_000_000 / 7 * 7);
    assert_eq!(greedy(odd, 600_000_001, secs(1)), 600_000_001);
    assert_eq!(greedy(odd.with_burst(600).unwrap(), 599, secs(1)), 600_000_001 / 599 * 599);
    assert_eq!(greedy(Quota::per_second(7_000_000_003).unwrap(), 7_000_000_003, secs(1)), 7_000_000_003);
}

/// Found by fuzzing: a debt past the last timestamp is not reported as 584 years, in either of the two forms.
#[test]
fn a_debt_past_the_last_timestamp_is_denied_permanently() {
    // Two a day, whose state is one word in a limiter, and three, whose state is two; and one whose burst alone exceeds
    // the range of time.
    for quota in ["2/day", "3/day", "1/day burst 4294967295"] {
        let bucket = TokenBucket::new(quota.parse().unwrap());
        for now in [Timestamp::EPOCH, T0] {
            let mut state = bucket.fresh(now);
            bucket.charge(&mut state, now, Cost::MAX);
            assert_eq!(bucket.peek(&state, now, Cost::ONE, MaxWait::NONE), Outcome::never(), "{quota}");
            let limiter = Limiter::with_algorithm(bucket.clone()).with_clock(ManualClock::at(now));
            limiter.charge(Cost::MAX.get()).unwrap();
            assert_eq!(limiter.check().outcome, Outcome::never(), "{quota}");
        }
    }
}

#[test]
fn a_large_burst_at_a_slow_rate_grants_exactly_the_burst() {
    let quota: Quota = "1/day burst 4294967295".parse().unwrap();
    let mut key = Trial::new(TokenBucket::new(quota));
    let mut granted = 0;
    let mut cost = 1 << 31;
    while cost > 0 {
        while key.take_within(cost, MaxWait::NONE).is_granted() {
            granted += cost;
        }
        cost /= 2;
    }
    assert_eq!(granted, 4_294_967_295);
    assert_eq!(key.ask(1), "denied, retry after 86400s");
}

#[test]
fn a_receipt_from_before_a_change_restores_nothing_that_was_refilled() {
    let mut key = bucket("7/s");
    assert_eq!(key.ask(7), "granted, 0 remaining");
    key.rescale(TokenBucket::new("3/s burst 7".parse().unwrap()));
    key.clock.advance(secs(100));
    assert_eq!(key.refund_grant(0), Refund::Void);
}
