//! The listings and worked examples of the reference documents, with their inputs.

use crate::support::{T0, Trial, ms, quota, secs};
use diana_core::{Algorithm, FixedWindow, RefillingBucket, SlidingLog, SlidingWindow, Timestamp, WindowStart};

/// Whether each of the calls, at seconds after the start, was granted.
fn granted<A: Algorithm>(key: &mut Trial<A>, seconds: &[u64]) -> Vec<bool> {
    seconds.iter().map(|second| key.ask_after(secs(*second), 1).starts_with("granted")).collect()
}

#[test]
fn the_fixed_window_listing_of_000() {
    // limit 2, 3 s: three calls, sleep 3 s, two calls, sleep 2 s, one call.
    let mut key = Trial::at(T0, FixedWindow::new(quota("2/3s")).with_window_start(WindowStart::FirstRequest));
    assert_eq!(granted(&mut key, &[0, 0, 0, 3, 3, 5]), [true, true, false, true, true, false]);
    // The printed run slept a little longer than asked, which gives the same results.
    let mut key = Trial::at(T0, FixedWindow::new(quota("2/3s")).with_window_start(WindowStart::FirstRequest));
    let printed: Vec<bool> =
        [0, 0, 0, 3_001, 3_001, 5_001].map(|millis| key.ask_after(ms(millis), 1).starts_with("granted")).to_vec();
    assert_eq!(printed, [true, true, false, true, true, false]);
}

/// 1 per second and 5 per minute, as in 000.
fn log() -> SlidingLog {
    SlidingLog::several([quota("1/s"), quota("5/min")]).unwrap()
}

#[test]
fn the_sliding_log_listing_of_000() {
    // now, the earlier accepted times (newest first), passed 1/s, passed 5/min
    let listing: [(u64, &[u64], bool, bool); 8] = [
        (1_484_551_710, &[], true, true),
        (1_484_551_710, &[1_484_551_710], false, true),
        (1_484_551_711, &[1_484_551_710], true, true),
        (1_484_551_712, &[1_484_551_711, 1_484_551_710], true, true),
        (1_484_551_713, &[1_484_551_712, 1_484_551_711, 1_484_551_710], true, true),
        (1_484_551_714, &[1_484_551_713, 1_484_551_712, 1_484_551_711, 1_484_551_710], true, true),
        (1_484_551_715, &[1_484_551_714, 1_484_551_713, 1_484_551_712, 1_484_551_711, 1_484_551_710], true, false),
        (1_484_551_776, &[], true, true),
    ];
    let mut key = Trial::at(Timestamp::from_secs(1_484_551_710), log());
    for (second, earlier, per_second, per_minute) in listing {
        let now = Timestamp::from_secs(second);
        key.clock.set(now);
        let recent: Vec<_> = key.algorithm.recent(&key.state, now).map(|(time, _)| time).collect();
        assert_eq!(recent, earlier.iter().map(|second| Timestamp::from_secs(*second)).collect::<Vec<_>>(), "{second}");
        let passed: Vec<bool> =
            key.algorithm.used(&key.state, now).map(|(quota, used)| used < quota.permits()).collect();
        assert_eq!(passed, [per_second, per_minute], "{second}");
        assert_eq!(key.ask(1).starts_with("granted"), per_second && per_minute, "{second}");
    }
}

/// Seconds of the day.
fn clock(hours: u64, minutes: u64, seconds: u64) -> Timestamp {
    Timestamp::from_secs(hours * 3_600 + minutes * 60 + seconds)
}

/// The log of the table in 000: 12:33:35, 12:33:37, 12:34:14, 12:34:26, 12:34:28 were accepted.
fn table() -> Trial<SlidingLog> {
    let mut key = Trial::new(log());
    for (minutes, seconds) in [(33, 35), (33, 37), (34, 14), (34, 26), (34, 28)] {
        key.clock.set(clock(12, minutes, seconds));
        assert!(key.ask(1).starts_with("granted"));
    }
    key
}

#[test]
fn the_table_of_000_has_a_retry_after_four_seconds() {
    let mut key = table();
    key.clock.set(clock(12, 34, 31));
    assert_eq!(key.ask(1), "denied, retry after 4s");
    key.clock.advance(secs(4)); // 12:34:35
    assert_eq!(key.ask(1), "granted, 0 remaining");
}

#[test]
fn the_table_of_000_passes_at_12_34_40() {
    let mut key = table();
    key.clock.set(clock(12, 34, 31));
    assert_eq!(key.ask(1), "denied, retry after 4s");
    key.clock.set(clock(12, 34, 40));
    assert_eq!(key.ask(1), "granted, 0 remaining");
    // The table still shows 12:33:37, which is 63 s old; the log has dropped it.
    let recent: Vec<_> = key.algorithm.recent(&key.state, clock(12, 34, 40)).map(|(time, _)| time).collect();
    assert_eq!(recent, [(34, 40), (34, 28), (34, 26), (34, 14)].map(|(minutes, seconds)| clock(12, minutes, seconds)));
}

#[test]
fn a_fixed_window_grants_440_around_the_edge_of_240_an_hour() {
    let mut fixed = Trial::new(FixedWindow::new(quota("240/h")));
    let mut exact = Trial::new(SlidingLog::new(quota("240/h")));
    for (time, permits) in [(clock(18, 59, 0), 200), (clock(19, 0, 0), 240)] {
        fixed.clock.set(time);
        exact.clock.set(time);
        assert!(fixed.ask(permits).starts_with("granted"));
        assert_eq!(exact.ask(permits).starts_with("granted"), permits == 200);
    }
    assert_eq!(exact.ask(40), "granted, 0 remaining"); // 240 in the hour from 18:00:01
    assert_eq!(exact.ask(1), "denied, retry after 3540s");
}

#[test]
fn a_sliding_window_with_one_sub_window_is_the_fixed_window_of_001() {
    let mut sliding = Trial::at(T0, SlidingWindow::new(quota("3/5s")).with_buckets(1).unwrap());
    let mut fixed = Trial::at(T0, FixedWindow::new(quota("3/5s")));
    let seconds = [0, 1, 4, 4, 5, 6, 9, 9, 10, 23, 24, 25, 25, 25, 25];
    assert_eq!(granted(&mut sliding, &seconds), granted(&mut fixed, &seconds));
}

#[test]
fn five_of_the_twenty_calls_of_002_pass() {
    let mut key = Trial::at(T0, SlidingLog::new(quota("5/60s")));
    let passed = granted(&mut key, &[0; 20]);
    assert_eq!(passed, [[true; 5].as_slice(), &[false; 15]].concat());
}

#[test]
fn the_counter_of_003_starts_each_window_with_its_first_request() {
    let mut key = Trial::at(T0, FixedWindow::new(quota("10/60s")).with_window_start(WindowStart::FirstRequest));
    assert_eq!(key.ask_after(secs(5), 10), "granted, 0 remaining");
    assert_eq!(key.ask_after(secs(64), 1), "denied, retry after 1s");
    assert_eq!(key.ask_after(secs(100), 1), "granted, 9 remaining");
    assert_eq!(key.describe_status(), "9 of 10, reset in 60s");
}

#[test]
fn a_hundred_gateways_of_50_a_second_grant_5000() {
    let mut gateways: Vec<_> = (0..100).map(|_| Trial::at(T0, FixedWindow::new(quota("50/s")))).collect();
    let passed: usize =
        gateways.iter_mut().map(|key| (0..60).filter(|_| key.ask(1).starts_with("granted")).count()).sum();
    assert_eq!(passed, 5_000);
}

#[test]
fn the_counter_of_004_returns_the_count() {
    let mut key = Trial::at(T0, FixedWindow::new(quota("3/s")).with_window_start(WindowStart::FirstRequest));
    assert_eq!(key.ask(1), "granted, 2 remaining"); // 1
    assert_eq!(key.ask(1), "granted, 1 remaining"); // 2
    assert_eq!(key.ask(1), "granted, 0 remaining"); // 3
    assert_eq!(key.ask(1), "denied, retry after 1s"); // -1
}

#[test]
fn the_bucket_of_004_starts_full_and_is_not_prepaid() {
    let mut key = Trial::at(T0, RefillingBucket::new(quota("1/s burst 3")));
    assert_eq!(key.ask(4), "denied permanently");
    assert_eq!(granted(&mut key, &[0, 0, 0, 0, 1, 1]), [true, true, true, false, true, false]);
}
