//! A ring of counts that advances bucket by bucket.

use crate::support::{T0, Trial, ms, quota, secs};
use diana_core::{Algorithm, Cost, Edge, InvalidWindow, MaxWait, Outcome, Quota, Refund, SlidingWindow, Timestamp};
use std::time::Duration;

/// A window in buckets of a second.
fn window(written: &str) -> SlidingWindow {
    SlidingWindow::new(quota(written)).with_precision(secs(1)).unwrap()
}

#[test]
fn usage_expires_bucket_by_bucket() {
    let mut key = Trial::new(window("3/10s"));
    assert_eq!(key.ask_after(ms(500), 1), "granted, 2 remaining");
    assert_eq!(key.ask_after(ms(4_200), 2), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 5.8s"); // the bucket of second 0 expires at 10
    assert_eq!(key.ask(2), "denied, retry after 9.8s"); // the bucket of second 4 expires at 14
    assert_eq!(key.describe_status(), "0 of 3, reset in 5.8s");
    assert_eq!(key.ask_after(Duration::from_nanos(9_999_999_999), 1), "denied, retry after 1ns");
    assert_eq!(key.ask_after(secs(10), 1), "granted, 0 remaining");
    assert_eq!(key.ask(4), "denied permanently");
}

#[test]
fn a_denial_leaves_the_state_unchanged() {
    let mut key = Trial::new(window("2/10s"));
    assert_eq!(key.ask(2), "granted, 0 remaining");
    let before = key.state.clone();
    key.clock.advance(secs(9));
    assert_eq!(key.ask(1), "denied, retry after 1s");
    assert_eq!(key.state, before);
}

#[test]
fn a_long_pause_clears_the_ring_and_a_short_one_only_the_passed_buckets() {
    let mut key = Trial::new(window("9/3s"));
    for second in 0..3 {
        key.clock.set(Timestamp::from_secs(second));
        key.charge(second + 1);
    }
    assert_eq!(key.describe_status(), "3 of 9, reset in 1s");
    key.clock.set(Timestamp::from_secs(4)); // 1 and 2 have expired, and their slots are reused
    assert_eq!(key.ask(1), "granted, 5 remaining");
    key.clock.set(Timestamp::from_secs(1_000));
    assert!(key.is_fresh());
    assert_eq!(key.ask(1), "granted, 8 remaining");
}

#[test]
fn one_bucket_is_the_fixed_window() {
    let single = SlidingWindow::new(quota("3/10s")).with_buckets(1).unwrap();
    let fixed = diana_core::FixedWindow::new(quota("3/10s"));
    let (mut a, mut b) = (Trial::at(T0, single), Trial::at(T0, fixed));
    for (step, cost) in [(0, 1), (3, 1), (3, 2), (3, 1), (9, 1), (10, 3), (11, 1), (25, 2), (29, 2), (30, 2), (60, 4)] {
        assert_eq!(a.ask_after(secs(step), cost), b.ask_after(secs(step), cost), "at {step}");
        assert_eq!(a.describe_status(), b.describe_status(), "at {step}");
    }
}

#[test]
fn buckets_are_rounded_so_that_the_window_is_never_too_short() {
    let minute = SlidingWindow::new(quota("5/min"));
    assert_eq!((minute.buckets(), minute.precision()), (10, secs(6)));
    let sevens = minute.clone().with_precision(secs(7)).unwrap();
    assert_eq!((sevens.buckets(), sevens.precision()), (9, secs(7))); // 63 s
    let long = minute.clone().with_precision(secs(90)).unwrap();
    assert_eq!((long.buckets(), long.precision()), (1, secs(60)));
    let thirds = SlidingWindow::new(quota("5/s")).with_buckets(3).unwrap();
    assert_eq!((thirds.buckets(), thirds.precision()), (3, Duration::from_nanos(333_333_334)));
    let tiny = SlidingWindow::new(Quota::new(1, Duration::from_nanos(10)).unwrap()).with_buckets(7).unwrap();
    assert_eq!((tiny.buckets(), tiny.precision()), (5, Duration::from_nanos(2)));
}

#[test]
fn invalid_parameters_are_rejected_with_a_fix() {
    let minute = SlidingWindow::new(quota("5/min"));
    assert_eq!(minute.clone().with_buckets(0).unwrap_err(), InvalidWindow::Buckets(0));
    assert_eq!(minute.clone().with_precision(Duration::ZERO).unwrap_err(), InvalidWindow::NoPrecision);
    assert_eq!(
        minute.with_precision(Duration::from_nanos(1)).unwrap_err().to_string(),
        "precision 1ns is too fine: a window of 60s would have 60000000000 buckets, more than 131072; \
         use 457.764µs or more",
    );
}

#[test]
fn a_refund_is_void_once_its_bucket_has_expired() {
    let mut key = Trial::new(window("2/10s"));
    let receipt = key.take(2);
    key.clock.advance(secs(9));
    assert_eq!(key.refund(&receipt), Refund::Returned);
    assert!(key.is_fresh());
    let receipt = key.take(1);
    key.clock.advance(secs(10));
    assert_eq!(key.ask(2), "granted, 0 remaining"); // in the same slot of the ring as the first one
    assert_eq!(key.refund(&receipt), Refund::Void);
    assert_eq!(key.ask(1), "denied, retry after 10s");
}

#[test]
fn a_clock_that_goes_back_restores_nothing() {
    let mut key = Trial::at(T0, window("2/10s"));
    assert_eq!(key.ask(1), "granted, 1 remaining");
    assert_eq!(key.ask_at(Timestamp::from_secs(1_699_999_900), 1), "granted, 0 remaining");
    assert_eq!(key.ask_at(Timestamp::from_secs(1_699_999_900), 1), "denied, retry after 110s");
    assert_eq!(key.ask_after(secs(10), 2), "granted, 0 remaining");
}

#[test]
fn changed_buckets_keep_the_usage_and_expire_no_earlier() {
    let mut key = Trial::new(window("9/10s"));
    key.charge(1);
    key.clock.set(Timestamp::from_secs(5));
    let receipt = key.take(4);
    key.clock.set(Timestamp::from_millis(7_500));
    key.rescale(SlidingWindow::new(quota("9/10s")).with_precision(ms(2_500)).unwrap());
    assert_eq!(key.describe_status(), "4 of 9, reset in 2.5s"); // second 0 is in [0, 2.5), which expires at 10
    assert_eq!(key.refund(&receipt), Refund::Returned);
    assert_eq!(key.describe_status(), "8 of 9, reset in 2.5s");
    key.rescale(SlidingWindow::new(quota("9/3s")).with_precision(secs(1)).unwrap());
    assert!(key.is_fresh()); // it lies before the shorter window
}

#[test]
fn a_lower_limit_drops_the_oldest_usage_first() {
    let mut key = Trial::new(window("9/10s"));
    key.charge(3);
    key.clock.advance(secs(4));
    key.charge(3);
    key.rescale(window("4/10s"));
    assert_eq!(key.describe_status(), "0 of 4, reset in 6s");
    assert_eq!(key.ask(2), "denied, retry after 10s");
    key.rescale(window("40/10s"));
    assert_eq!(key.describe_status(), "36 of 40, reset in 6s");
}

#[test]
fn the_ring_is_allocated_by_the_first_grant() {
    let mut key = Trial::new(window("1/10s"));
    assert_eq!(key.peek(1), "granted, 1 remaining");
    assert_eq!(key.ask(2), "denied permanently");
    assert_eq!(key.algorithm.heap_bytes(&key.state), 0);
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.algorithm.heap_bytes(&key.state), 80);
}

#[test]
fn extreme_times_and_costs_are_safe() {
    for period in [1, 3, 1_000_000_007, u64::MAX] {
        let quota = Quota::new(1, Duration::from_nanos(period)).unwrap();
        let window = SlidingWindow::new(quota);
        let mut state = window.fresh(Timestamp::EPOCH);
        assert!(window.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::NONE).is_granted());
        let _ = window.take(&mut state, Timestamp::MAX, Cost::ONE, MaxWait::NONE);
        assert_eq!(window.take(&mut state, Timestamp::MAX, Cost::ONE, MaxWait::NONE), Outcome::never());
        for _ in 0..3_000 {
            window.charge(&mut state, Timestamp::MAX, Cost::MAX);
        }
        assert_eq!(window.status(&state, Timestamp::MAX).remaining, 0);
        window.rescale(&mut state, &window.clone().with_buckets(2).unwrap(), Timestamp::MAX);
    }
}

mod edge {
    use super::*;

    /// Asks for all remaining permits at each of these times; returns how many were granted.
    fn take_all(edge: Edge, millis: &[u64]) -> Vec<u64> {
        let window = SlidingWindow::new(quota("150/2s")).with_edge(edge);
        let mut state = window.fresh(Timestamp::EPOCH);
        let each = millis.iter().map(|millis| {
            let now = Timestamp::from_millis(*millis);
            let remaining = window.status(&state, now).remaining;
            if let Ok(cost) = Cost::new(remaining) {
                assert!(window.take(&mut state, now, cost, MaxWait::NONE).is_granted());
            }
            remaining
        });
        each.collect()
    }

    /// Reported externally: 300 in 2.0 s at 150/2s, over the edges of buckets of 200 ms.
    #[test]
    fn grants_in_one_window_across_bucket_edges() {
        let span = [199, 2_000, 2_050, 2_100, 2_150, 2_198, 2_199];
        assert_eq!(take_all(Edge::Loose, &span), [150, 150, 0, 0, 0, 0, 0]);
        // The count of the oldest bucket expires over 200 ms, as if it had come evenly.
        assert_eq!(take_all(Edge::Weighted, &span), [150, 0, 37, 38, 37, 36, 1]);
        assert_eq!(take_all(Edge::Strict, &span), [150, 0, 0, 0, 0, 0, 0]);
        assert_eq!(take_all(Edge::Strict, &[199, 2_199, 2_200]), [150, 0, 150]);
    }

    #[test]
    fn a_weighted_bucket_expires_gradually_with_exact_retry_times() {
        let mut key = Trial::new(window("10/10s").with_edge(Edge::Weighted));
        assert_eq!(key.ask_after(ms(500), 8), "granted, 2 remaining"); // in the bucket of second 0
        assert_eq!(key.ask_after(ms(9_900), 2), "granted, 0 remaining");
        assert_eq!(key.ask(1), "denied, retry after 225ms"); // of 8 permits the first expires at 10.125
        assert_eq!(key.ask(4), "denied, retry after 600ms");
        assert_eq!(key.ask(8), "denied, retry after 1.1s");
        assert_eq!(key.ask(9), "denied, retry after 9.6s"); // the first of the two of second 9 at 19.5
        assert_eq!(key.describe_status(), "0 of 10, reset in 1.1s");
        assert_eq!(key.ask_after(ms(10_125), 1), "granted, 0 remaining");
        assert_eq!(key.ask_after(ms(10_500), 3), "granted, 0 remaining");
    }

    #[test]
    fn a_strict_bucket_counts_until_all_of_it_has_expired() {
        let mut key = Trial::new(window("3/10s").with_edge(Edge::Strict));
        assert_eq!(key.ask_after(ms(500), 1), "granted, 2 remaining");
        assert_eq!(key.ask_after(ms(4_200), 2), "granted, 0 remaining");
        assert_eq!(key.ask(1), "denied, retry after 6.8s"); // the bucket of second 0 expires at 11
        assert_eq!(key.ask(2), "denied, retry after 10.8s");
        assert_eq!(key.describe_status(), "0 of 3, reset in 6.8s");
        assert_eq!(key.algorithm.heap_bytes(&key.state), 88, "one bucket more");
    }

    #[test]
    fn a_change_of_edge_keeps_the_usage() {
        let mut key = Trial::new(window("10/10s"));
        key.charge(8);
        key.clock.set(Timestamp::from_millis(9_500));
        key.rescale(window("10/10s").with_edge(Edge::Weighted));
        assert_eq!(key.describe_status(), "2 of 10, reset in 1.5s");
        key.clock.set(Timestamp::from_millis(10_500));
        assert_eq!(key.describe_status(), "6 of 10, reset in 500ms");
        // Four are in use, so one is dropped; the count whose share is three is kept: six, of which half has expired.
        key.rescale(window("3/10s").with_edge(Edge::Weighted));
        assert_eq!(key.describe_status(), "0 of 3, reset in 500ms");
        key.rescale(window("10/10s").with_edge(Edge::Strict));
        assert_eq!(key.describe_status(), "4 of 10, reset in 500ms");
        key.rescale(window("10/10s"));
        assert!(key.is_fresh());
    }
}
