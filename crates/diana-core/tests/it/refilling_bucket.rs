//! A bucket that refills in steps.

use crate::support::{T0, Trial, ms, quota, secs};
use diana_core::{Algorithm, Cost, MAX_PERMITS, MaxWait, Quota, RefillingBucket, Refund, Retry, Timestamp};
use proptest::prelude::*;
use std::time::Duration;

fn bucket(written: &str) -> RefillingBucket {
    RefillingBucket::new(quota(written))
}

#[test]
fn starts_full_and_refills_in_steps() {
    let mut key = Trial::new(bucket("2/10s burst 4"));
    key.clock.advance(secs(3));
    assert_eq!(key.ask(4), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 10s");
    key.clock.advance(ms(9_999));
    assert_eq!(key.ask(1), "denied, retry after 1ms");
    key.clock.advance(ms(1));
    assert_eq!(key.describe_status(), "2 of 4, reset in 10s");
    assert_eq!(key.ask(1), "granted, 1 remaining");
    assert_eq!(key.ask(5), "denied permanently");
}

#[test]
fn the_retry_counts_the_refills_that_this_cost_needs() {
    let mut key = Trial::new(bucket("3/s burst 10"));
    assert_eq!(key.ask(10), "granted, 0 remaining");
    key.clock.advance(ms(400));
    assert_eq!(key.ask(3), "denied, retry after 600ms");
    assert_eq!(key.ask(4), "denied, retry after 1.6s");
    assert_eq!(key.ask(10), "denied, retry after 3.6s");
}

#[test]
fn frequent_asks_lose_no_part_of_a_period() {
    let mut key = Trial::new(bucket("1/10s burst 3"));
    assert_eq!(key.ask_after(secs(0), 3), "granted, 0 remaining");
    assert_eq!(key.ask_after(secs(9), 1), "denied, retry after 1s");
    assert_eq!(key.ask_after(secs(18), 1), "granted, 0 remaining");
    assert_eq!(key.ask_after(secs(20), 1), "granted, 0 remaining"); // the step of t = 20, not 10 s after the grant
}

#[test]
fn keeps_its_phase_exactly_as_long_as_refilling_takes() {
    // Four refills of 3 fill 10, so the phase is kept for 4 s after the last grant.
    for (later, next_refill) in [(0, "denied, retry after 600ms"), (1, "denied, retry after 1s")] {
        let mut key = Trial::new(bucket("3/s burst 10"));
        assert_eq!(key.ask(1), "granted, 9 remaining");
        key.clock.advance(ms(400));
        assert_eq!(key.ask(1), "granted, 8 remaining");
        key.clock.advance(secs(4));
        key.clock.advance(Duration::from_nanos(later));
        assert_eq!(key.is_fresh(), later > 0);
        assert_eq!(key.ask(10), "granted, 0 remaining");
        assert_eq!(key.ask(1), next_refill);
    }
}

#[test]
fn a_clock_that_is_behind_neither_refills_nor_removes_tokens() {
    let mut key = Trial::at(T0, bucket("1/s burst 10"));
    assert_eq!(key.ask(3), "granted, 7 remaining");
    assert_eq!(key.ask_at(Timestamp::from_secs(1_699_999_995), 1), "granted, 6 remaining");
    assert_eq!(key.ask_at(Timestamp::EPOCH, 7), "denied, retry after 1700000001s");
    key.clock.advance(secs(1));
    assert_eq!(key.ask(7), "granted, 0 remaining");
}

#[test]
fn a_refund_restores_tokens_that_are_not_refilled_yet() {
    let mut key = Trial::new(bucket("2/10s burst 10"));
    let first = key.take(3);
    let second = key.take(3);
    key.clock.advance(secs(20)); // four are refilled: all of the first, one of the second
    assert_eq!(key.describe_status(), "8 of 10, reset in 10s");
    assert_eq!(key.refund(&first), Refund::Void);
    assert_eq!(key.refund(&second), Refund::Returned);
    assert_eq!(key.describe_status(), "10 of 10, reset in 0ns");
    assert_eq!(key.refund(&second), Refund::Void);
}

#[test]
fn a_refund_of_everything_makes_the_key_fresh() {
    let mut key = Trial::new(bucket("1/10s burst 5"));
    let receipt = key.take(5);
    assert_eq!(key.refund(&receipt), Refund::Returned);
    assert!(key.is_fresh());
    key.clock.advance(secs(7));
    assert_eq!(key.ask(5), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 10s");
}

#[test]
fn a_charge_over_the_capacity_is_a_debt_paid_by_refills() {
    let mut key = Trial::new(bucket("1/s burst 2"));
    key.charge(5);
    assert_eq!(key.describe_status(), "0 of 2, reset in 5s");
    assert_eq!(key.ask(1), "denied, retry after 4s");
    key.clock.advance(secs(4));
    assert!(!key.is_fresh()); // longer than filling takes, but there was a debt
    assert_eq!(key.ask(1), "granted, 0 remaining");
}

#[test]
fn a_change_keeps_the_usage_clamped_to_the_new_capacity() {
    let mut key = Trial::new(bucket("1/10s burst 10"));
    assert_eq!(key.ask(6), "granted, 4 remaining");
    key.clock.advance(secs(4));
    key.rescale(bucket("1/10s burst 20"));
    assert_eq!(key.describe_status(), "14 of 20, reset in 56s"); // the same phase
    key.rescale(bucket("1/10s burst 3"));
    assert_eq!(key.describe_status(), "0 of 3, reset in 26s");
    key.rescale(bucket("1/2s burst 3"));
    assert_eq!(key.describe_status(), "0 of 3, reset in 6s"); // a new phase: the old remainder gives no refill
}

#[test]
fn extreme_times_and_costs_are_safe() {
    let bucket =
        RefillingBucket::new(Quota::new(1, Duration::from_nanos(u64::MAX)).unwrap().with_burst(MAX_PERMITS).unwrap());
    let mut state = bucket.fresh(Timestamp::EPOCH);
    assert!(bucket.take(&mut state, Timestamp::MAX, Cost::MAX, MaxWait::NONE).is_granted());
    let before = state;
    let denied = bucket.take(&mut state, Timestamp::EPOCH, Cost::MAX, MaxWait::FOREVER);
    assert_eq!(denied, diana_core::Outcome::never()); // the refill is past the last timestamp
    assert_eq!(state, before);
    for _ in 0..3_000 {
        bucket.charge(&mut state, Timestamp::MAX, Cost::MAX);
    }
    assert_eq!(bucket.status(&state, Timestamp::MAX).remaining, 0);
}

/// The simplest bucket: it refills tick by tick, and is discarded when its phase expires.
struct Model {
    capacity: u64,
    tokens: u64,
    every: u64,
    /// The remaining tokens, the last step, the last grant.
    bucket: Option<(u64, u64, u64)>,
}

impl Model {
    fn at(&self, now: u64) -> (u64, u64) {
        let phase_ttl = self.capacity.div_ceil(self.tokens) * self.every;
        let Some((mut remaining, mut step, granted)) = self.bucket.filter(|(.., granted)| now - granted <= phase_ttl)
        else {
            return (self.capacity, now);
        };
        while step + self.every <= now {
            step += self.every;
            remaining = self.capacity.min(remaining + self.tokens);
        }
        assert!(granted <= now);
        (remaining, step)
    }

    fn take(&mut self, now: u64, cost: u64) -> bool {
        let (remaining, step) = self.at(now);
        if remaining >= cost {
            self.bucket = Some((remaining - cost, step, now));
        }
        remaining >= cost
    }
}

proptest! {
    #[test]
    fn equals_a_bucket_that_is_refilled_tick_by_tick(
        (tokens, every, capacity) in (1..6_u64, 1..9_u64, 1..14_u64),
        asks in prop::collection::vec((prop_oneof![6 => 0..5_u64, 1 => 5..60_u64], 1..6_u64), 1..60),
    ) {
        let quota = Quota::new(tokens, Duration::from_nanos(every)).unwrap().with_burst(capacity).unwrap();
        let bucket = RefillingBucket::new(quota);
        let mut state = bucket.fresh(Timestamp::EPOCH);
        let mut model = Model { capacity, tokens, every, bucket: None };
        let mut now = 0;
        for (later, cost) in asks {
            now += later;
            let time = Timestamp::from_nanos(now);
            let outcome = bucket.take(&mut state, time, Cost::new(cost).unwrap(), MaxWait::NONE);
            if let Some(Retry::After(wait)) = outcome.retry() {
                let wait = u64::try_from(wait.as_nanos()).unwrap();
                prop_assert!(model.at(now + wait).0 >= cost && model.at(now + wait - 1).0 < cost);
            }
            prop_assert_eq!(outcome.is_granted(), model.take(now, cost));
            prop_assert_eq!(bucket.status(&state, time).remaining, model.at(now).0);
        }
    }
}
