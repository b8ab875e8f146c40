//! A count that restarts with each window.

use crate::support::{T0, Trial, ms, quota, secs};
use diana_core::{Algorithm, Cost, FixedWindow, MaxWait, Outcome, Quota, Refund, Timestamp, WindowStart};
use std::time::Duration;

fn on_the_clock(written: &str) -> FixedWindow {
    FixedWindow::new(quota(written))
}

fn first_request(written: &str) -> FixedWindow {
    on_the_clock(written).with_window_start(WindowStart::FirstRequest)
}

#[test]
fn a_window_on_the_clock_restarts_at_each_full_period() {
    let mut key = Trial::new(on_the_clock("3/10s"));
    assert_eq!(key.ask_after(ms(9_000), 2), "granted, 1 remaining");
    assert_eq!(key.ask(2), "denied, retry after 1s");
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask_after(Duration::from_nanos(9_999_999_999), 1), "denied, retry after 1ns");
    assert_eq!(key.ask_after(secs(10), 3), "granted, 0 remaining");
    assert_eq!(key.ask(4), "denied permanently");
}

#[test]
fn a_window_started_by_the_first_request_lasts_from_then() {
    let mut key = Trial::new(first_request("2/10s"));
    assert_eq!(key.ask_after(secs(9), 1), "granted, 1 remaining");
    assert_eq!(key.ask_after(secs(12), 1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 7s");
    assert_eq!(key.ask_after(secs(19), 1), "granted, 1 remaining");
    assert_eq!(key.describe_status(), "1 of 2, reset in 10s");
    assert_eq!(key.ask_after(secs(60), 1), "granted, 1 remaining");
    assert_eq!(key.describe_status(), "1 of 2, reset in 10s");
}

#[test]
fn a_permanent_denial_starts_no_window() {
    let mut key = Trial::new(first_request("2/10s"));
    assert_eq!(key.ask(3), "denied permanently");
    assert!(key.is_fresh());
    assert_eq!(key.describe_status(), "2 of 2, reset in 0ns");
}

#[test]
fn a_peek_changes_nothing() {
    let mut key = Trial::new(first_request("1/10s"));
    assert_eq!(key.peek(1), "granted, 1 remaining");
    assert!(key.is_fresh());
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.peek(1), "denied, retry after 10s");
}

#[test]
fn a_refund_counts_in_its_own_window_only() {
    let mut key = Trial::new(on_the_clock("2/10s"));
    let (early, late) = (key.take(1), key.take(1));
    assert_eq!(key.refund(&early), Refund::Returned);
    assert_eq!(key.ask(1), "granted, 0 remaining");
    key.clock.advance(secs(10));
    assert_eq!(key.ask(1), "granted, 1 remaining");
    assert_eq!(key.refund(&late), Refund::Void);
    assert_eq!(key.describe_status(), "1 of 2, reset in 10s");
}

#[test]
fn refunding_the_only_grant_removes_the_window() {
    let mut key = Trial::new(first_request("1/10s"));
    let receipt = key.take(1);
    key.clock.advance(secs(5));
    assert_eq!(key.refund(&receipt), Refund::Returned);
    assert!(key.is_fresh());
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 10s");
}

#[test]
fn a_charge_may_exceed_the_limit_and_ends_with_its_window() {
    let mut key = Trial::new(on_the_clock("2/10s"));
    key.charge(7);
    assert_eq!(key.ask(1), "denied, retry after 10s");
    key.clock.advance(secs(10));
    assert_eq!(key.ask(2), "granted, 0 remaining");
}

#[test]
fn a_clock_that_goes_back_stays_in_the_window() {
    let mut key = Trial::at(T0, on_the_clock("1/10s"));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask_at(Timestamp::from_secs(1_699_999_995), 1), "denied, retry after 15s");
}

#[test]
fn a_change_of_limit_or_window_keeps_the_count() {
    let mut key = Trial::new(on_the_clock("10/min"));
    assert_eq!(key.ask_after(secs(50), 6), "granted, 4 remaining");
    key.rescale(on_the_clock("20/min"));
    assert_eq!(key.describe_status(), "14 of 20, reset in 10s");
    key.rescale(on_the_clock("3/min"));
    assert_eq!(key.describe_status(), "0 of 3, reset in 10s");
    key.rescale(on_the_clock("4/h"));
    assert_eq!(key.describe_status(), "1 of 4, reset in 3550s");
    key.clock.advance(secs(3_550));
    key.rescale(on_the_clock("5/h"));
    assert!(key.is_fresh());
}

#[test]
fn the_first_and_last_timestamps_are_safe() {
    let window = FixedWindow::new(Quota::new(1, Duration::from_nanos(u64::MAX - 1)).unwrap());
    for window in [window.clone(), window.with_window_start(WindowStart::FirstRequest)] {
        let mut state = window.fresh(Timestamp::EPOCH);
        assert!(window.take(&mut state, Timestamp::MAX, Cost::ONE, MaxWait::NONE).is_granted());
        // The last window never ends, so there is no second permit at the last timestamp.
        assert_eq!(window.take(&mut state, Timestamp::MAX, Cost::ONE, MaxWait::NONE), Outcome::never());
        assert_eq!(window.take(&mut state, Timestamp::EPOCH, Cost::MAX, MaxWait::NONE), Outcome::never());
        for _ in 0..3_000 {
            window.charge(&mut state, Timestamp::MAX, Cost::MAX);
        }
        assert_eq!(window.status(&state, Timestamp::MAX).remaining, 0);
    }
}
