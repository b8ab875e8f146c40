//! `check_since`: a caller that asks as of a past time gets the permits that it missed, within the limit.

use diana_core::{
    Algorithm, Clock, Cost, LeakyBucket, Limiter, ManualClock, MaxWait, MinInterval, Quota, Refund, SmoothBursty,
    SmoothWarmingUp, Timestamp, TokenBucket,
};
use proptest::prelude::*;
use std::time::Duration;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

#[test]
fn past_permits_are_granted_one_by_one() {
    // In one word, and with fractions of a nanosecond.
    for (rate, interval) in [("1000/s burst 1", 1_000_000), ("3000/s burst 1", 333_333)] {
        let clock = ManualClock::new();
        let limiter = Limiter::new(quota(rate)).with_clock(clock.clone());
        assert!(limiter.check().is_granted());
        clock.advance(ms(2));
        let mut since = Timestamp::EPOCH;
        for count in 1..=2_000_000 / interval {
            since = since + limiter.check_since(1, since).unwrap().wait().unwrap();
            assert_eq!(since.as_nanos() / interval, count, "{rate}");
        }
        assert!(!limiter.check_since(1, since).unwrap().is_granted());
    }
}

#[test]
fn a_peek_keeps_past_permits() {
    let clock = ManualClock::new();
    let limiter = Limiter::new(quota("3000/s burst 1")).with_clock(clock.clone());
    assert!(limiter.check().is_granted());
    clock.advance(ms(2));
    assert_eq!(limiter.status().remaining, 1);
    assert!(limiter.peek(1).unwrap().is_granted());
    let since = Timestamp::EPOCH + limiter.check_since(1, Timestamp::EPOCH).unwrap().wait().unwrap();
    assert!(limiter.check_since(1, since).unwrap().is_granted());
}

#[test]
fn a_late_request_waits_after_an_earlier_grant() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_algorithm(LeakyBucket::new(quota("10/s")).with_queue(5)).with_clock(clock.clone());
    assert!(limiter.check().is_granted());
    clock.advance(ms(150));
    // Another request takes the current permit, so the late one waits for the next: 250, and not 200 ms.
    assert!(limiter.check().is_granted());
    assert!(!limiter.check_since(1, Timestamp::from_millis(100)).unwrap().is_granted());
    let grant = limiter.blocking_acquire_since(1, Timestamp::from_millis(100)).unwrap();
    assert_eq!((grant.waited, clock.now()), (ms(150), Timestamp::from_millis(250)));
}

#[test]
fn a_future_since_counts_as_now() {
    let limiter = Limiter::new(quota("10/s burst 1")).with_clock(ManualClock::new());
    let later = Timestamp::from_secs(1);
    assert_eq!(limiter.check_since(1, later).unwrap().receipt().unwrap().at(), Timestamp::EPOCH);
    assert_eq!(limiter.blocking_acquire_since(1, later).unwrap().waited, ms(100));
}

#[test]
fn a_partly_used_interval_is_not_refunded() {
    let every = MinInterval::new(ms(100)).unwrap();
    let mut state = every.fresh(Timestamp::EPOCH);
    let receipt = every.take(&mut state, Timestamp::EPOCH, Cost::new(5).unwrap(), MaxWait::NONE).receipt().unwrap();
    assert_eq!(every.refund_rest(&mut state, Timestamp::EPOCH, &receipt, 1), Refund::Void);
    assert_eq!(state.next_free(), Timestamp::from_millis(100));
    assert_eq!(every.refund_rest(&mut state, Timestamp::EPOCH, &receipt, 0), Refund::Returned);
    assert_eq!(state.next_free(), Timestamp::EPOCH);
}

/// Taking `cost` and refunding all but `used` leads to the state after taking `used`.
fn refunds_the_unused_part<A: Algorithm<State: PartialEq>>(smooth: &A, cost: u64, used: u64) {
    let (mut state, mut expected) = (smooth.fresh(Timestamp::EPOCH), smooth.fresh(Timestamp::EPOCH));
    let take = |state: &mut _, cost| smooth.take(state, Timestamp::EPOCH, Cost::new(cost).unwrap(), MaxWait::NONE);
    let receipt = take(&mut state, cost).receipt().unwrap();
    assert_eq!(smooth.refund_rest(&mut state, Timestamp::EPOCH, &receipt, cost), Refund::Void);
    assert_eq!(smooth.refund_rest(&mut state, Timestamp::EPOCH, &receipt, used), Refund::Returned);
    assert!(take(&mut expected, used).is_granted());
    assert_eq!(state, expected);
}

#[test]
fn smooth_limiters_refund_the_unused_part() {
    refunds_the_unused_part(&SmoothBursty::new(1_000.0).unwrap(), 50, 7);
    refunds_the_unused_part(&SmoothWarmingUp::new(1_000.0, ms(20)).unwrap(), 50, 7);
    refunds_the_unused_part(&TokenBucket::new(quota("1000/s")), 50, 7);
}

/// Four callers, each asking as of its own last grant, or of a bounded time before now if that is later.
fn grant_times(limiter: &Limiter, clock: &ManualClock, asks: &[(u64, usize, u64)]) -> Vec<Timestamp> {
    let (mut last, mut grants) = ([Timestamp::EPOCH; 4], Vec::new());
    for (pause, caller, late) in asks {
        clock.advance(Duration::from_micros(*pause));
        let earliest = Timestamp::from_nanos(clock.now().as_nanos().saturating_sub(late * 1_000));
        let since = last[*caller].max(earliest);
        if let Some(wait) = limiter.check_since(1, since).unwrap().wait() {
            last[*caller] = since + wait;
            assert!(last[*caller] <= clock.now());
            grants.push(last[*caller]);
        }
    }
    grants.sort_unstable();
    grants
}

proptest! {
    #[test]
    fn late_callers_stay_within_the_limit(
        asks in prop::collection::vec((0..1_500_u64, 0..4_usize, 0..20_000_u64), 1..200),
        burst in 1..5_u64,
    ) {
        let interval = 1_000_000_000 / 3_000;
        let limiters = [
            (burst, Limiter::new(quota("1000/s").with_burst(burst).unwrap()), 1_000_000),
            (burst, Limiter::new(quota("3000/s").with_burst(burst).unwrap()), interval),
            (1, Limiter::with_algorithm(LeakyBucket::new(quota("1000/s")).with_queue(burst)), 1_000_000),
            (1, Limiter::with_algorithm(MinInterval::new(ms(1)).unwrap()), 1_000_000),
        ];
        for (burst, limiter, interval) in limiters {
            let clock = ManualClock::at(Timestamp::from_secs(1));
            let grants = grant_times(&limiter.with_clock(clock.clone()), &clock, &asks);
            for (from, start) in grants.iter().enumerate() {
                for (more, end) in grants[from..].iter().enumerate() {
                    // The interval of 3000/s is a third of a nanosecond longer than this one.
                    let max = end.since(*start).as_nanos() / interval + u128::from(burst);
                    prop_assert!(u128::try_from(more).unwrap() < max, "{more} from {start:?} to {end:?}");
                }
            }
        }
    }
}
