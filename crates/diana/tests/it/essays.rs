//! The print-outs and worked examples of the essays that Diana started from, through rules of a file.
//!
//! Each test has the essay's own numbers. Printed waits were measured, so they are compared to 3 ms; the exact ones are
//! those of Guava on a clock that stands still between calls. `diana-core` has the same for its types:
//! `reference_examples.rs` and `guava.rs`.

use crate::support::{decide, engine};
use diana::rules::attributes::SyntheticRequest;
use diana::ruleset::{KeyOutcome, Window};
use diana::{Clock, Engine, ManualClock, Timestamp};
use std::time::Duration;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A rule that is Guava's `RateLimiter`: each call waits until it is granted.
fn guava(limit: &str) -> (Engine, ManualClock) {
    engine(&format!("rules: [{{name: guava, limit: {{{limit}}}, cost: 'int(request.query.permits)', wait: 1h}}]"))
}

/// Calls `acquire` with each of these permits, one call after the other. Returns the waits.
fn acquire_each((engine, clock): &(Engine, ManualClock), permits: &[u64]) -> Vec<Duration> {
    let acquire = |permits| {
        let verdict = decide(engine, &SyntheticRequest::new("GET", &format!("/?permits={permits}")));
        let wait = verdict.wait().unwrap_or_else(|| panic!("{verdict}"));
        clock.advance(wait);
        wait
    };
    permits.iter().map(|&permits| acquire(permits)).collect()
}

#[track_caller]
fn assert_waits(waits: &[Duration], ideal: &[u64], printed: &[f64]) {
    assert_eq!(waits, ideal.iter().map(|&millis| ms(millis)).collect::<Vec<_>>());
    assert_eq!(waits.len(), printed.len());
    for (wait, printed) in waits.iter().zip(printed) {
        assert!((wait.as_secs_f64() - printed).abs() <= 0.003, "printed {printed} s, waited {wait:?}");
    }
}

const BURSTY_5: &str = "rate: 5/s, algorithm: smooth_bursty, starts: empty";

#[test]
fn bursty_example_1_waits_200_ms_for_each_call() {
    let waits = acquire_each(&guava(BURSTY_5), &[1; 7]);
    let printed = [0.0, 0.19948, 0.198_852, 0.199_784, 0.199_809, 0.199_774, 0.199_799];
    assert_waits(&waits, &[0, 200, 200, 200, 200, 200, 200], &printed);
}

#[test]
fn bursty_example_2_the_next_call_pays_for_five() {
    let waits = acquire_each(&guava(BURSTY_5), &[5, 1, 1]);
    assert_waits(&waits, &[0, 1_000, 200], &[0.0, 0.999_481, 0.197_737]);
}

#[test]
fn bursty_example_3_stores_one_second_and_prepays_one_call() {
    let limiter = guava("rate: 2/s, algorithm: smooth_bursty, starts: empty");
    let mut waits = acquire_each(&limiter, &[1]);
    limiter.1.advance(ms(5_000));
    waits.extend(acquire_each(&limiter, &[1; 4]));
    assert_waits(&waits, &[0, 0, 0, 0, 500], &[0.0, 0.0, 0.0, 0.0, 0.49965]);
}

#[test]
fn warming_up_is_cold_then_warm_then_half_cold() {
    let limiter = guava("rate: 5/s, algorithm: smooth_warming_up, warm_up: 1s");
    let waits = acquire_each(&limiter, &[1; 6]);
    let printed = [0.0, 0.519_855, 0.359_091, 0.219_833, 0.199_852, 0.199_837];
    assert_waits(&waits, &[0, 520, 360, 220, 200, 200], &printed);

    limiter.1.advance(ms(1_000));
    let waits = acquire_each(&limiter, &[1; 10]);
    let printed =
        [0.0, 0.360_015, 0.220_133, 0.200_117, 0.200_096, 0.200_064, 0.200_112, 0.20012, 0.200_085, 0.199_973];
    assert_waits(&waits, &[0, 360, 220, 200, 200, 200, 200, 200, 200, 200], &printed);
}

#[test]
fn acquire_of_1_to_5_waits_0_to_4_seconds() {
    let waits = acquire_each(&guava("rate: 1/s, algorithm: smooth_bursty, starts: empty"), &[1, 2, 3, 4, 5]);
    let printed = [0.0, 0.997_729, 1.998_076, 3.000_303, 4.000_223];
    assert_waits(&waits, &[0, 1_000, 2_000, 3_000, 4_000], &printed);
}

/// The default of a rule, which is not Guava's.
#[test]
fn a_limiter_that_starts_full_grants_one_second_of_permits_more() {
    let page = include_str!("../../../../docs/reference/algorithms.md");
    let in_ms = |waits: Vec<Duration>| waits.iter().map(Duration::as_millis).collect::<Vec<_>>();
    for (rate, permits, empty, full, row) in [
        (
            5,
            [1; 8].as_slice(),
            [0, 200, 200, 200, 200, 200, 200, 200].as_slice(),
            [0, 0, 0, 0, 0, 0, 200, 200].as_slice(),
            "| `create(5)`, `acquire()` eight times | 0, then 0.2 s each | 0 six times, then 0.2 s each |",
        ),
        (
            5,
            &[5, 1, 1],
            &[0, 1_000, 200],
            &[0, 0, 200],
            "| `create(5)`, `acquire(5)`, `acquire()` twice | 0, 1 s, 0.2 s | 0, 0, 0.2 s |",
        ),
        (
            1,
            &[1, 2, 3, 4, 5],
            &[0, 1_000, 2_000, 3_000, 4_000],
            &[0, 0, 2_000, 3_000, 4_000],
            "| `create(1)`, `acquire(i)` of 1 to 5 | 0, 1, 2, 3, 4 s | 0, 0, 2, 3, 4 s |",
        ),
    ] {
        let limit = format!("rate: {rate}/s, algorithm: smooth_bursty");
        for (starts, waits) in [(", starts: empty", empty), (", starts: full", full), ("", full)] {
            assert_eq!(in_ms(acquire_each(&guava(&format!("{limit}{starts}")), permits)), waits, "{limit}{starts}");
        }
        assert!(page.contains(row), "not on the page: {row}");
    }
}

/// A time of a day, in UTC.
fn at(hours: u64, minutes: u64, seconds: u64, millis: u64) -> Timestamp {
    const DAY: u64 = 1_700_006_400; // 2023-11-15
    Timestamp::from_secs(DAY + hours * 3_600 + minutes * 60 + seconds) + ms(millis)
}

/// Returns how many of these requests are granted, `count` from each time on, one each `gap`.
fn granted(limit: &str, gap: Duration, requests: [(Timestamp, usize); 2]) -> usize {
    let (engine, clock) = engine(&format!("rules: [{{name: calls, by: ip, limit: {{{limit}}}}}]"));
    let request = crate::support::request();
    let mut granted = 0;
    for (start, count) in requests {
        clock.set(start);
        for _ in 0..count {
            granted += usize::from(decide(&engine, &request).is_granted());
            clock.advance(gap);
        }
    }
    granted
}

/// The windows that never grant twice the limit around one edge.
const SLIDING: [&str; 4] = [
    "algorithm: sliding_log",
    "algorithm: sliding_window",
    "algorithm: sliding_window, edge: weighted",
    "algorithm: sliding_window, edge: strict",
];

#[test]
fn of_240_an_hour_a_fixed_window_grants_440_from_18_59_to_19_00_and_the_others_240() {
    let requests = [(at(18, 59, 0, 0), 200), (at(19, 0, 0, 0), 240)];
    let granted = |algorithm: &str| granted(&format!("rate: 240/h, {algorithm}"), Duration::ZERO, requests);
    assert_eq!(granted("algorithm: fixed_window"), 440);
    for algorithm in SLIDING {
        assert_eq!(granted(algorithm), 240, "{algorithm}");
    }
    // A window that opens with the first request ends an hour after it.
    assert_eq!(granted("algorithm: fixed_window, opens: first_request"), 240);
    // A bucket gains four tokens in that minute.
    assert_eq!(granted("algorithm: token_bucket"), 244);
}

#[test]
fn of_100_a_second_a_fixed_window_grants_200_around_the_edge_and_the_others_100() {
    // One each millisecond: in the last tenth of a second, and in the first tenth of the next one.
    let requests = [(at(12, 0, 0, 900), 100), (at(12, 0, 1, 0), 100)];
    let granted = |algorithm: &str| granted(&format!("rate: 100/s, {algorithm}"), ms(1), requests);
    assert_eq!(granted("algorithm: fixed_window"), 200);
    for algorithm in SLIDING {
        assert_eq!(granted(algorithm), 100, "{algorithm}");
    }
}

#[test]
fn of_100_a_minute_a_fixed_window_grants_200_around_the_edge_and_the_others_100() {
    let requests = [(at(12, 0, 59, 0), 100), (at(12, 1, 1, 0), 100)];
    let granted = |algorithm: &str| granted(&format!("rate: 100/min, {algorithm}"), Duration::ZERO, requests);
    assert_eq!(granted("algorithm: fixed_window"), 200);
    for algorithm in SLIDING {
        assert_eq!(granted(algorithm), 100, "{algorithm}");
    }
}

/// Of the essay's counters for each address, the one that is a list remembers who called.
#[test]
fn the_callers_of_an_api_are_remembered() {
    let (engine, _) = engine("rules: [{name: api, match: {path: /api}, by: ip, limit: 10/s}]");
    for (last, calls) in [(100, 12), (101, 4)] {
        let request = SyntheticRequest::new("GET", "/api").ip([192, 168, 1, last]);
        for _ in 0..calls {
            let _ = decide(&engine, &request);
        }
    }
    let callers = |outcome| {
        let rules = engine.rules();
        let top = rules.named("api").unwrap().top_keys(outcome, Window::Minute, 10, engine.now());
        top.keys.iter().map(|top| format!("{}: {}", String::from_utf8_lossy(&top.key), top.count)).collect::<Vec<_>>()
    };
    assert_eq!(callers(KeyOutcome::Allowed), ["192.168.1.100: 10", "192.168.1.101: 4"]);
    assert_eq!(callers(KeyOutcome::Denied), ["192.168.1.100: 2"]);
}

/// The leaky bucket as a meter, in thousandths of a call at 1/s: water drains at the rate, and a call that finds less than
/// `burst` in it adds 1.
struct Meter {
    burst: u64,
    water: u64,
    refreshed_ms: u64,
}

impl Meter {
    fn is_granted(&mut self, now_ms: u64) -> bool {
        self.water = self.water.saturating_sub(now_ms - self.refreshed_ms);
        self.refreshed_ms = now_ms;
        let is_granted = self.water < self.burst;
        self.water += if is_granted { 1_000 } else { 0 };
        is_granted
    }
}

#[test]
fn a_leaky_bucket_with_nodelay_is_the_meter() {
    // The calls that are granted, of those at these times in milliseconds.
    let bucket = |burst: u64, times: &[u64]| {
        let limit = format!("limit: {{rate: 1/s, algorithm: leaky_bucket, burst: {burst}, nodelay: true}}");
        let (engine, clock) = engine(&format!("rules: [{{name: meter, {limit}}}]"));
        let start = clock.now();
        let is_granted = |millis: u64| {
            clock.set(start + ms(millis));
            decide(&engine, &crate::support::request()).is_granted()
        };
        times.iter().copied().filter(|&millis| is_granted(millis)).collect::<Vec<_>>()
    };
    let meter = |burst: u64, times: &[u64]| {
        let mut meter = Meter { burst: burst * 1_000, water: 0, refreshed_ms: 0 };
        times.iter().copied().filter(|&millis| meter.is_granted(millis)).collect::<Vec<_>>()
    };
    // At 5, both let the water rise to nearly 6: six calls pass, and then one a second.
    let times = (0..980).map(|call| call * 7).collect::<Vec<_>>();
    assert_eq!(meter(5, &times), [0, 7, 14, 21, 28, 35, 1_001, 2_002, 3_003, 4_004, 5_005, 6_006]);
    assert_eq!(bucket(5, &times), meter(5, &times));
    // They differ only if a call finds exactly 5, as in one instant: nginx grants it, the meter from a moment later on.
    assert_eq!(bucket(5, &[0; 7]), [0; 6]);
    assert_eq!(meter(5, &[0, 0, 0, 0, 0, 0, 1]), [0, 0, 0, 0, 0, 1]);
    // Five in one instant are one and a queue of four.
    assert_eq!((bucket(4, &[0; 7]), meter(5, &[0; 7])), (vec![0; 5], vec![0; 5]));
}

/// `create(2.0)` for tasks; 15 permits at 5 a second; 5 kB a second by `acquire(packet.length)`.
#[test]
fn tasks_packets_and_fifteen_permits_wait_as_in_the_text() {
    let waits = |limit: &str, permits: &[u64]| {
        let limit = format!("{limit}, algorithm: smooth_bursty, starts: empty");
        acquire_each(&guava(&limit), permits).into_iter().map(|wait| wait.as_millis()).collect::<Vec<_>>()
    };
    assert_eq!(waits("rate: 2/s", &[1; 4]), [0, 500, 500, 500]);
    assert_eq!(waits("rate: 5/s, burst_seconds: 0", &[15, 1]), [0, 3_000]);
    assert_eq!(waits("rate: 5000/s", &[5_000, 2_500, 10_000, 1]), [0, 1_000, 500, 2_000]);
}

#[test]
fn five_a_second_pass_one_each_200_ms() {
    for limit in ["{rate: 5/s, algorithm: leaky_bucket, burst: 4}", "{rate: 5/s, burst: 1}"] {
        let (engine, _) = engine(&format!("rules: [{{name: even, limit: {limit}, wait: 1h}}]"));
        let waits = [(); 5].map(|()| decide(&engine, &crate::support::request()).wait().unwrap());
        assert_eq!(waits, [0, 200, 400, 600, 800].map(ms), "{limit}");
    }
}

/// 100 in one millisecond, and the counter of 1000 a second that a `LoadingCache` has.
#[test]
fn a_fixed_window_grants_its_whole_limit_in_one_instant() {
    for limit in [100, 1_000] {
        let requests = [(at(12, 0, 0, 0), limit + 1), (at(12, 0, 1, 0), 1)];
        assert_eq!(granted(&format!("rate: {limit}/s, algorithm: fixed_window"), Duration::ZERO, requests), limit + 1);
    }
}

#[test]
fn of_10_a_minute_a_fixed_window_grants_20_around_the_edge_and_the_others_10() {
    let requests = [(at(12, 0, 59, 0), 10), (at(12, 1, 1, 0), 10)];
    assert_eq!(granted("rate: 10/min, algorithm: fixed_window", Duration::ZERO, requests), 20);
    for algorithm in SLIDING {
        assert_eq!(granted(&format!("rate: 10/min, {algorithm}"), Duration::ZERO, requests), 10, "{algorithm}");
    }
}

#[test]
fn a_leaky_and_a_token_bucket_hold_together() {
    let (engine, _) = engine(
        "rules: [{name: both, wait: 1s, limit: [{rate: 5/s, algorithm: leaky_bucket, burst: 5}, {rate: 2/s, burst: 3}]}]",
    );
    let waits = [(); 5].map(|()| decide(&engine, &crate::support::request()).wait());
    // The token bucket has three tokens, and one more each half second; within a second it has two.
    assert_eq!(waits, [Some(ms(0)), Some(ms(200)), Some(ms(400)), Some(ms(600)), Some(ms(1_000))]);
    assert_eq!(decide(&engine, &crate::support::request()).wait(), None);
}

/// For all, and by account, device and resource.
#[test]
fn the_four_ways_count_separately() {
    let (engine, _) = engine(
        "rules:
  - {name: everyone, limit: 4/h}
  - {name: each-account, by: account, limit: 2/h}
  - {name: each-device, by: device, limit: 2/h}
  - {name: each-resource, by: resource, limit: 2/h}",
    );
    let is_granted = |account: &str, device: &str, path: &str| {
        let request = SyntheticRequest::new("GET", path).named("account", account).named("device", device);
        decide(&engine, &request).is_granted()
    };
    assert_eq!([(); 3].map(|()| is_granted("ann", "d1", "/a")), [true, true, false]);
    for (account, device, path) in [("ann", "d2", "/b"), ("bob", "d1", "/b"), ("bob", "d2", "/a")] {
        assert!(!is_granted(account, device, path), "{account} {device} {path}");
    }
    assert_eq!([(); 2].map(|()| is_granted("bob", "d2", "/b")), [true, true]);
    assert!(!is_granted("cid", "d3", "/c"), "four have passed");
}
