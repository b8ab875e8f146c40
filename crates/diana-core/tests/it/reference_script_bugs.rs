//! The bugs of the reference scripts, each with the times and costs of its trace, and Diana's answer instead.
//!
//! B01 to B30 are the numbers under which each was found and reproduced on a real Redis.

use crate::support::{T0, Trial, ms, quota, secs};
use diana_core::{
    Algorithm, Ask, Cost, FixedWindow, InvalidQuota, InvalidWindow, Limit, LocalStore, MaxWait, MemoryStore, Quota,
    RefillingBucket, SlidingLog, SlidingWindow, Timestamp, TokenBucket, WindowStart,
};
use std::time::Duration;

fn on_the_clock(written: &str) -> Trial<FixedWindow> {
    Trial::at(T0, FixedWindow::new(quota(written)))
}

fn first_request(written: &str) -> Trial<FixedWindow> {
    Trial::at(T0, FixedWindow::new(quota(written)).with_window_start(WindowStart::FirstRequest))
}

fn sliding(written: &str, precision: Duration) -> Trial<SlidingWindow> {
    Trial::at(T0, SlidingWindow::new(quota(written)).with_precision(precision).unwrap())
}

fn refilling(written: &str) -> Trial<RefillingBucket> {
    Trial::at(T0, RefillingBucket::new(quota(written)))
}

/// Asks two limits at once: takes from both or from none.
fn ask_both<A: Algorithm, B: Algorithm>(a: &mut Trial<A>, b: &mut Trial<B>) -> bool {
    let granted = [a.peek(1), b.peek(1)].iter().all(|answer| answer.starts_with("granted"));
    if granted {
        a.take(1);
        b.take(1);
    }
    granted
}

#[test]
fn b01_a_steady_client_below_the_rate_is_never_denied() {
    let mut key = first_request("3/3s");
    for second in [0, 2, 4, 6, 8, 10, 12, 14] {
        assert!(key.ask_after(secs(second), 1).starts_with("granted"), "at {second}");
    }
}

#[test]
fn b02_a_request_at_exactly_the_window_end_starts_the_next() {
    let mut key = first_request("1/3s");
    assert_eq!(key.ask_after(secs(0), 1), "granted, 0 remaining");
    assert_eq!(key.ask_after(ms(2_999), 1), "denied, retry after 1ms");
    assert_eq!(key.ask_after(secs(3), 1), "granted, 0 remaining");
    assert_eq!(key.ask_after(ms(3_001), 1), "denied, retry after 2.999s");
}

#[test]
fn b03_a_denial_has_limit_remaining_and_reset_by_name() {
    let mut key = on_the_clock("1/min");
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 40s");
    assert_eq!(key.describe_status(), "0 of 1, reset in 40s");
}

#[test]
fn b04_the_reset_is_the_time_to_the_window_end() {
    let mut key = on_the_clock("1/min");
    assert_eq!(key.ask_after(secs(39), 1), "granted, 0 remaining");
    assert_eq!(key.describe_status(), "0 of 1, reset in 1s");
    assert_eq!(key.ask(1), "denied, retry after 1s");
    assert_eq!(key.ask_after(secs(40), 1), "granted, 0 remaining");
}

#[test]
fn b05_a_limit_left_unused_by_another_denial_still_has_its_window_end() {
    let (mut hour, mut minute) = (on_the_clock("1/h"), on_the_clock("5/min"));
    assert!(ask_both(&mut hour, &mut minute));
    hour.clock.advance(secs(60));
    minute.clock.advance(secs(60));
    assert!(!ask_both(&mut hour, &mut minute));
    assert_eq!(minute.describe_status(), "5 of 5, reset in 0ns");
    assert_eq!(minute.algorithm.restored_at(T0 + secs(60)), T0 + secs(100));
    assert_eq!(hour.describe_status(), "0 of 1, reset in 2740s");
}

#[test]
fn b06_a_limit_of_four_grants_four_however_often_it_is_peeked() {
    // Equal rules are one limit with one state, so listing a rule twice peeks twice and takes once. The replay in
    // golden/src/lua collapses them.
    let mut key = on_the_clock("4/min");
    for remaining in [3, 2, 1, 0] {
        assert!(key.peek(1).starts_with("granted"));
        assert!(key.peek(1).starts_with("granted"));
        assert_eq!(key.ask(1), format!("granted, {remaining} remaining"));
    }
    assert_eq!(key.ask(1), "denied, retry after 40s");
}

#[test]
fn b06_the_same_limit_twice_in_one_request_is_charged_once() {
    let store = MemoryStore::default();
    let limit = Limit::new("u", FixedWindow::new(quota("4/min")));
    let granted = (0..6).filter(|_| {
        let twice = [Ask::one(&limit, "u"), Ask::one(&limit, "u")];
        store.decide(&twice, T0, MaxWait::NONE).is_granted()
    });
    assert_eq!(granted.count(), 4);
}

#[test]
fn b07_windows_of_sixteen_digit_times_are_distinct() {
    let mut key = Trial::at(Timestamp::from_nanos(1_700_000_000_000_001), FixedWindow::new(quota("1/1ns")));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 1ns");
    key.clock.set(Timestamp::from_nanos(1_700_000_000_000_049));
    assert_eq!(key.ask(1), "granted, 0 remaining");
}

#[test]
fn b08_an_interval_of_zero_is_rejected() {
    assert_eq!(Quota::new(1, Duration::ZERO).unwrap_err(), InvalidQuota::NoPeriod);
    assert!("1/0s".parse::<Quota>().is_err());
}

#[test]
fn b09_a_limit_of_zero_is_rejected() {
    assert_eq!(Quota::per_minute(0).unwrap_err(), InvalidQuota::Count { what: "permits", value: 0 });
    assert!("0/min".parse::<Quota>().is_err());
}

#[test]
fn b10_a_request_at_the_reset_time_is_granted() {
    let mut key = sliding("2/10s", secs(1));
    assert_eq!(key.ask(1), "granted, 1 remaining");
    assert_eq!(key.ask(1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 10s");
    assert_eq!(key.ask_after(secs(9), 1), "denied, retry after 1s");
    assert_eq!(key.ask_after(secs(10), 1), "granted, 1 remaining");
    assert_eq!(key.describe_status(), "1 of 2, reset in 10s");

    let mut key = sliding("1/2s", secs(1));
    assert_eq!(key.ask_after(ms(675), 1), "granted, 0 remaining");
    assert_eq!(key.ask_after(ms(3_194), 1), "granted, 0 remaining");
}

#[test]
fn b11_a_precision_below_a_second_slides() {
    let mut key = sliding("2/10s", ms(500));
    assert_eq!(key.ask(1), "granted, 1 remaining");

    let mut key = sliding("3/1500ms", ms(500));
    assert_eq!(key.ask_after(secs(0), 1), "granted, 2 remaining");
    assert_eq!(key.ask_after(secs(1), 1), "granted, 1 remaining");
    assert_eq!(key.ask_after(secs(2), 1), "granted, 1 remaining");
    assert_eq!(key.ask_after(secs(3), 1), "granted, 1 remaining");
    assert_eq!(key.describe_status(), "1 of 3, reset in 500ms");
    assert_eq!(key.ask_after(secs(4), 1), "granted, 1 remaining");
    assert_eq!(key.ask_after(secs(5), 1), "granted, 1 remaining");
}

#[test]
fn b12_the_first_and_second_request_of_a_bucket_have_the_same_reset() {
    let mut key = sliding("5/10s", secs(10));
    assert_eq!(key.ask_after(secs(9), 1), "granted, 4 remaining");
    assert_eq!(key.describe_status(), "4 of 5, reset in 1s");
    assert_eq!(key.ask(1), "granted, 3 remaining");
    assert_eq!(key.describe_status(), "3 of 5, reset in 1s");
}

#[test]
fn b13_a_precision_that_does_not_divide_the_window_has_an_exact_reset() {
    // 60 s in buckets of 7 s is 63 s; the bucket of t = 1 started at 1,699,999,994 + 7 and leaves 63 s later.
    let mut key = sliding("1/60s", secs(7));
    assert_eq!(key.ask_after(secs(1), 1), "granted, 0 remaining");
    assert_eq!(key.ask(1), "denied, retry after 63s");
    assert_eq!(key.ask_after(secs(61), 1), "denied, retry after 3s");
    assert_eq!(key.ask_after(ms(63_999), 1), "denied, retry after 1ms");
    assert_eq!(key.ask_after(secs(64), 1), "granted, 0 remaining");
}

#[test]
fn b14_a_denial_by_one_limit_changes_no_state_of_another() {
    let (mut a, mut b) = (sliding("1/10s", secs(1)), sliding("5/60s", secs(10)));
    a.take(1);
    assert!(!ask_both(&mut a, &mut b));
    assert!(b.is_fresh());
    assert_eq!(b.algorithm.heap_bytes(&b.state), 0);
}

#[test]
fn b15_a_sliding_window_is_as_exact_as_its_buckets_and_the_log_is_exact() {
    let edge = |key: &mut Trial<SlidingWindow>, second| key.ask_after(secs(second), 2).starts_with("granted");
    let mut coarse = sliding("2/10s", secs(10));
    assert!(edge(&mut coarse, 9) && edge(&mut coarse, 10)); // one bucket: four within two seconds
    let mut fine = sliding("2/10s", secs(2));
    assert!(edge(&mut fine, 9) && !edge(&mut fine, 17) && edge(&mut fine, 18)); // four within 10 s, none sooner
    let mut exact = Trial::at(T0, SlidingLog::new(quota("2/10s")));
    assert_eq!(exact.ask_after(secs(9), 2), "granted, 0 remaining");
    assert_eq!(exact.ask_after(secs(18), 2), "denied, retry after 1s");
}

#[test]
fn b16_tokens_are_charged_once() {
    let mut key = refilling("1/s burst 10");
    assert_eq!(key.ask(10), "granted, 0 remaining");
    assert_eq!(key.ask_after(secs(1), 1), "granted, 0 remaining");
    assert_eq!(key.ask_after(secs(2), 1), "granted, 0 remaining");
    assert_eq!(key.ask_after(secs(5), 1), "granted, 2 remaining");
    assert_eq!(key.ask_after(ms(9_900), 1), "granted, 5 remaining");
    assert_eq!(key.ask_after(secs(10), 1), "granted, 5 remaining");
    assert_eq!(key.ask_after(ms(10_001), 1), "granted, 4 remaining"); // expiry of a key changes nothing
}

#[test]
fn b17_the_same_time_is_credited_once() {
    let mut key = refilling("1/s burst 5");
    assert_eq!(key.ask(1), "granted, 4 remaining");
    for remaining in [4, 3, 2, 1, 0] {
        assert_eq!(key.ask_after(ms(4_900), 1), format!("granted, {remaining} remaining"));
    }
    assert_eq!(key.ask(1), "denied, retry after 100ms");
}

#[test]
fn b18_the_retry_time_shrinks_and_is_never_for_too_large_a_cost() {
    let mut key = refilling("1/s burst 10");
    assert_eq!(key.ask(2), "granted, 8 remaining");
    assert_eq!(key.ask_after(ms(1_900), 10), "denied, retry after 100ms");
    assert_eq!(key.ask_after(ms(1_999), 10), "denied, retry after 1ms");
    assert_eq!(key.ask(11), "denied permanently");

    // With the trace's own first cost, 1, the bucket is full again at t = 1.
    let mut key = refilling("1/s burst 10");
    assert_eq!(key.ask(1), "granted, 9 remaining");
    assert_eq!(key.ask_after(ms(1_900), 11), "denied permanently");
    assert_eq!(key.ask(10), "granted, 0 remaining");
    assert_eq!(key.ask_after(ms(1_999), 1), "denied, retry after 1ms");
}

#[test]
fn b19_a_bucket_is_not_dropped_before_it_is_full() {
    let mut key = refilling("3/s burst 10");
    assert_eq!(key.ask(10), "granted, 0 remaining");
    assert_eq!(key.ask_after(ms(3_334), 10), "denied, retry after 666ms");
    assert_eq!(key.ask_after(ms(3_335), 10), "denied, retry after 665ms");
    assert!(!key.is_fresh());
    assert_eq!(key.ask(9), "granted, 0 remaining");
}

#[test]
fn b20_a_cost_of_zero_is_rejected() {
    assert!(Cost::new(0).is_err());
    assert!(Cost::try_from(0).is_err()); // a `u64` cannot be negative
    let mut key = refilling("1/s burst 10");
    assert_eq!(key.ask(8), "granted, 2 remaining");
    assert_eq!(key.ask(7), "denied, retry after 5s");
}

#[test]
fn b21_a_missing_or_invalid_refill_is_an_error() {
    assert_eq!(Quota::new(0, secs(1)).unwrap_err(), InvalidQuota::Count { what: "permits", value: 0 });
    assert!("10/".parse::<Quota>().is_err());
    assert!("0.0/s".parse::<Quota>().is_err());
    assert_eq!("0.5/s".parse(), Quota::new(1, secs(2)));
}

#[test]
fn b22_a_clock_that_is_behind_removes_no_tokens() {
    let mut key = refilling("1/s burst 10");
    for remaining in [9, 8, 7] {
        assert_eq!(key.ask(1), format!("granted, {remaining} remaining"));
    }
    assert_eq!(key.ask_at(Timestamp::from_secs(1_699_999_995), 1), "granted, 6 remaining");
    assert_eq!(key.ask_at(Timestamp::from_secs(1_699_999_993), 1), "granted, 5 remaining");
    assert_eq!(key.ask(1), "granted, 4 remaining");
}

/// The even bucket stores one time, which is not that of the last ask; the store has that.
#[test]
fn b22_a_clock_that_is_behind_removes_no_tokens_in_a_store() {
    let store = MemoryStore::default();
    let limit = Limit::new("u", TokenBucket::new(quota("1/s burst 10")));
    let remaining = |at| {
        let decision = store.decide(&[Ask::one(&limit, "u")], Timestamp::from_secs(at), MaxWait::NONE);
        decision.answers()[0].status().remaining
    };
    assert_eq!([1_700_000_000, 1_700_000_000, 1_699_999_995, 1_699_999_993].map(remaining), [9, 8, 7, 6]);
}

#[test]
fn b23_the_state_is_one_value_and_a_lost_state_is_a_full_bucket() {
    let mut key = refilling("1/s burst 10");
    assert_eq!(key.ask(1), "granted, 9 remaining");
    key.state = key.algorithm.fresh(T0);
    assert_eq!(key.ask(1), "granted, 9 remaining");
}

#[test]
fn b24_a_capacity_of_zero_is_rejected() {
    let error = quota("1/s").with_burst(0).unwrap_err();
    assert_eq!(error, InvalidQuota::Count { what: "burst", value: 0 });
}

#[test]
fn b25_a_limit_of_ten_grants_ten_of_fifteen() {
    for mut key in [on_the_clock("10/s"), first_request("10/s")] {
        let granted = (0..15).filter(|_| key.ask(1).starts_with("granted")).count();
        assert_eq!(granted, 10);
    }
}

#[test]
fn b26_denied_requests_are_not_recorded_and_equal_times_count_separately() {
    let mut key = Trial::at(T0, SlidingLog::new(quota("5/60s")));
    for second in [0, 10, 20, 30, 40] {
        assert!(key.ask_after(secs(second), 1).starts_with("granted"));
    }
    assert_eq!(key.ask_after(secs(50), 1), "denied, retry after 10s");
    for second in [60, 70, 80, 90] {
        assert_eq!(key.ask_after(secs(second), 1), "granted, 0 remaining");
    }
    let mut key = Trial::at(T0, SlidingLog::new(quota("5/60s")));
    assert_eq!((0..20).filter(|_| key.ask(1).starts_with("granted")).count(), 5);
}

#[test]
fn b27_equal_times_count_separately() {
    let mut key = Trial::at(T0, SlidingLog::new(quota("5/min")));
    for remaining in [4, 3, 2, 1, 0] {
        assert_eq!(key.ask(1), format!("granted, {remaining} remaining"));
    }
    assert_eq!(key.ask(1), "denied, retry after 60s");
}

#[test]
fn b28_a_clock_that_jumps_ahead_and_back_keeps_the_log() {
    let log = SlidingLog::several([quota("1/s"), quota("5/min")]).unwrap();
    let mut key = Trial::at(T0, log);
    for second in 0..5 {
        assert_eq!(key.ask_after(secs(second), 1), "granted, 0 remaining");
    }
    assert_eq!(key.ask_after(secs(5), 1), "denied, retry after 55s");
    // One gateway's clock is 65 s fast. The others, which are behind it now, get no refill from that.
    let at = |second: u64| Timestamp::from_secs(1_700_000_000 + second);
    assert_eq!(key.ask_at(at(70), 1), "granted, 0 remaining");
    assert_eq!(key.ask_at(at(6), 1), "denied, retry after 65s");
    assert_eq!(key.ask_at(at(71), 1), "granted, 0 remaining");
    let recent: Vec<_> = key.algorithm.recent(&key.state, at(6)).map(|(time, _)| time).collect();
    assert_eq!(recent, [at(71), at(70)]);
}

/// The reference Java code made each of five concurrent requests wait for its own permit only: 0, 1, 1, 1, 1 s.
#[test]
fn b29_concurrent_requests_wait_for_each_other() {
    let mut bucket = Trial::new(TokenBucket::new(quota("1/s")));
    let mut waits = || bucket.take_within(1, MaxWait::FOREVER).wait().unwrap().as_secs();
    assert_eq!([(); 5].map(|()| waits()), [0, 1, 2, 3, 4]);
    // Three fresh permits at 2000/s cost 1.5 ms; the reference code's milliseconds made it 1.
    let mut fast = Trial::new(TokenBucket::new(quota("2000/s burst 3")));
    assert_eq!(fast.ask(3), "granted, 0 remaining");
    assert_eq!(fast.ask(3), "denied, retry after 1.5ms");
}

#[test]
fn b30_only_grants_are_counted() {
    let mut key = first_request("2/min");
    for _ in 0..5 {
        let _ = key.ask(1);
    }
    key.rescale(FixedWindow::new(quota("5/min")).with_window_start(WindowStart::FirstRequest));
    assert_eq!(key.describe_status(), "3 of 5, reset in 60s"); // two granted, three denied
}

#[test]
fn b30_twice_the_limit_passes_around_a_window_edge() {
    let mut key = on_the_clock("100/s");
    assert_eq!(key.ask_after(ms(900), 100), "granted, 0 remaining");
    assert_eq!(key.ask_after(ms(1_000), 100), "granted, 0 remaining");
    let mut key = Trial::at(T0, SlidingLog::new(quota("100/s")));
    assert_eq!(key.ask_after(ms(900), 100), "granted, 0 remaining");
    assert_eq!(key.ask_after(ms(1_000), 100), "denied, retry after 900ms");
}

#[test]
fn an_invalid_window_is_rejected_with_a_fix() {
    let error = SlidingWindow::new(quota("5/min")).with_precision(Duration::ZERO).unwrap_err();
    assert_eq!(error, InvalidWindow::NoPrecision);
    assert_eq!(error.to_string(), "precision 0: must be at least 1ns, as in `1s`");
    let max_wait = MaxWait::FOREVER; // no maximum wait helps a cost above the limit
    let log = SlidingLog::new(quota("5/min"));
    assert!(!log.take(&mut log.fresh(T0), T0, Cost::MAX, max_wait).is_granted());
}
