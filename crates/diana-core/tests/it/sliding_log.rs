//! Every window keeps the limit, wherever it starts.

use crate::support::{T0, Trial, ms, quota, secs};
use diana_core::{Algorithm, Cost, InvalidWindow, MAX_PERMITS, MaxWait, Outcome, Quota, Refund, SlidingLog, Timestamp};
use std::time::Duration;

fn log(written: &str) -> SlidingLog {
    SlidingLog::new(quota(written))
}

fn several(written: &[&str]) -> SlidingLog {
    SlidingLog::several(written.iter().map(|written| quota(written))).unwrap()
}

#[test]
fn an_entry_counts_while_less_than_a_window_has_passed() {
    let mut key = Trial::new(log("2/10s"));
    assert_eq!(key.ask_after(ms(1_500), 1), "granted, 1 remaining");
    assert_eq!(key.ask_after(ms(4_000), 1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 7.5s");
    assert_eq!(key.ask(2), "denied, retry after 10s");
    assert_eq!(key.ask_after(Duration::from_nanos(11_499_999_999), 1), "denied, retry after 1ns");
    assert_eq!(key.ask_after(ms(11_500), 1), "granted, 0 remaining");
    assert_eq!(key.ask(3), "denied permanently");
}

#[test]
fn several_windows_share_one_log() {
    let mut key = Trial::at(T0, several(&["2/s", "3/min"]));
    assert_eq!(key.ask(2), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 1s"); // two a second
    assert_eq!(key.ask(2), "denied, retry after 60s"); // three a minute
    assert_eq!(key.ask(3), "denied permanently");
    assert_eq!(key.ask_after(secs(1), 1), "granted, 0 remaining");
    assert_eq!(key.describe_status(), "0 of 2, reset in 59s");
    assert_eq!(key.ask(1), "denied, retry after 59s");
    let used: Vec<u64> = key.algorithm.used(&key.state, T0 + secs(1)).map(|(_, used)| used).collect();
    assert_eq!(used, [1, 3]);
}

#[test]
fn simultaneous_requests_share_an_entry_and_count_separately() {
    let mut key = Trial::at(T0, log("1000/min"));
    for remaining in (0..1_000).rev() {
        assert_eq!(key.ask(1), format!("granted, {remaining} remaining"));
    }
    assert_eq!(key.ask(1), "denied, retry after 60s");
    assert_eq!(key.algorithm.recent(&key.state, T0).collect::<Vec<_>>(), [(T0, 1_000)]);
    assert!(key.algorithm.heap_bytes(&key.state) <= 4 * 16);
}

#[test]
fn the_log_is_bounded_by_the_limit_even_after_charges() {
    let mut key = Trial::new(log("5/min"));
    for second in 0..1_000 {
        key.clock.set(Timestamp::from_secs(second));
        key.charge(1);
        assert!(key.algorithm.recent(&key.state, at_second(second)).count() <= 5);
    }
    assert!(key.algorithm.heap_bytes(&key.state) <= 8 * 16);
    assert_eq!(key.ask(1), "denied, retry after 60s");
}

fn at_second(second: u64) -> Timestamp {
    Timestamp::from_secs(second)
}

#[test]
fn denied_retries_do_not_delay_the_next_grant() {
    let mut key = Trial::new(log("1/10s"));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    for second in 1..10 {
        assert_eq!(key.ask_after(secs(second), 1), format!("denied, retry after {:?}", secs(10 - second)));
    }
    assert_eq!(key.ask_after(secs(10), 1), "granted, 0 remaining");
}

#[test]
fn a_refund_removes_its_entry() {
    let mut key = Trial::new(log("3/10s"));
    let first = key.take(1);
    key.clock.advance(secs(4));
    let second = key.take(2);
    assert_eq!(key.ask(1), "denied, retry after 6s");
    assert_eq!(key.refund(&first), Refund::Returned);
    assert_eq!(key.refund(&first), Refund::Void);
    assert_eq!(key.describe_status(), "1 of 3, reset in 10s");
    key.clock.advance(Duration::from_nanos(9_999_999_999));
    assert_eq!(key.refund(&second), Refund::Returned);
    assert!(key.is_fresh());
    let third = key.take(1);
    key.clock.advance(secs(10));
    assert_eq!(key.refund(&third), Refund::Void);
}

#[test]
fn a_part_of_an_entry_can_be_refunded() {
    let mut key = Trial::new(log("5/10s"));
    let one = key.take(1);
    let _three = key.take(3);
    key.clock.advance(secs(1));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.refund(&one), Refund::Returned);
    let recent: Vec<_> = key.algorithm.recent(&key.state, at_second(1)).collect();
    assert_eq!(recent, [(at_second(1), 1), (at_second(0), 3)]);
}

#[test]
fn a_clock_that_goes_back_restores_nothing() {
    let mut key = Trial::at(T0, log("2/10s"));
    assert_eq!(key.ask(1), "granted, 1 remaining");
    assert_eq!(key.ask_at(Timestamp::from_secs(1_699_999_950), 1), "granted, 0 remaining"); // counts as T0
    assert_eq!(key.ask_at(Timestamp::from_secs(1_699_999_950), 1), "denied, retry after 60s");
    assert_eq!(key.ask_after(secs(10), 2), "granted, 0 remaining");
}

#[test]
fn a_denial_leaves_the_state_unchanged() {
    let mut key = Trial::new(several(&["2/10s", "3/min"]));
    assert_eq!(key.ask(1), "granted, 1 remaining");
    assert_eq!(key.ask_after(secs(50), 2), "granted, 0 remaining");
    let before = key.state.clone();
    assert_eq!(key.ask_after(secs(61), 3), "denied permanently");
    assert_eq!(key.state, before);
    assert_eq!(key.ask_after(secs(61), 2), "denied, retry after 49s"); // the entry of 0 has expired, and stays unpruned
    assert_eq!(key.state, before);
}

#[test]
fn a_change_of_windows_keeps_the_times() {
    let mut key = Trial::new(log("9/min"));
    key.charge(3);
    key.clock.advance(secs(20));
    key.charge(3);
    key.rescale(log("9/30s"));
    assert_eq!(key.describe_status(), "3 of 9, reset in 10s");
    key.rescale(log("4/30s")); // the two oldest are dropped
    assert_eq!(key.describe_status(), "0 of 4, reset in 10s");
    assert_eq!(key.ask(2), "denied, retry after 30s");
    key.rescale(log("8/h"));
    assert_eq!(key.describe_status(), "4 of 8, reset in 3580s");
    key.rescale(several(&["2/min", "8/h"])); // the hour still counts the excess of the minute
    assert_eq!(key.describe_status(), "0 of 2, reset in 40s");
    key.clock.advance(secs(60));
    assert_eq!(key.ask(2), "granted, 0 remaining");
}

#[test]
fn rejects_a_log_without_windows() {
    assert_eq!(SlidingLog::several([]).unwrap_err(), InvalidWindow::NoWindows);
}

#[test]
fn extreme_times_and_costs_are_safe() {
    // Running totals wrap around long before the end of this test.
    let all = SlidingLog::new(Quota::new(MAX_PERMITS, Duration::from_nanos(2)).unwrap());
    let mut state = all.fresh(Timestamp::EPOCH);
    for nanos in 0..5_000 {
        let cost = Cost::new(MAX_PERMITS / 2).unwrap();
        assert!(all.take(&mut state, Timestamp::from_nanos(nanos), cost, MaxWait::NONE).is_granted(), "at {nanos}");
    }
    assert_eq!(all.status(&state, Timestamp::from_nanos(4_999)).remaining, 0);
    for _ in 0..5_000 {
        all.charge(&mut state, Timestamp::from_nanos(4_999), Cost::MAX);
    }
    assert_eq!(all.status(&state, Timestamp::from_nanos(4_999)).remaining, 0);
    assert_eq!(all.status(&state, Timestamp::from_nanos(5_001)).remaining, MAX_PERMITS);

    let ever = SlidingLog::new(Quota::new(1, Duration::from_nanos(u64::MAX)).unwrap());
    let mut state = ever.fresh(Timestamp::EPOCH);
    assert!(ever.take(&mut state, Timestamp::MAX, Cost::ONE, MaxWait::NONE).is_granted());
    assert_eq!(ever.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::NONE), Outcome::never());
}
