//! Every algorithm through the same API, `KeyedLimiter::with_algorithm`, with a thousand keys.

use super::setup::UNREACHED;
use diana_bench::keys::user;
use diana_bench::report::{Report, ns};
use diana_bench::rounds::{Contender, Effort, Expect, measure};
use diana_core::{
    Algorithm, Calendar, Concurrency, FixedWindow, KeyedLimiter, LeakyBucket, MinInterval, Quota, RefillingBucket,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, TokenBucket, Total,
};
use std::time::Duration;

const KEYS: usize = 1_000;
/// More permits than a run uses.
const PLENTY: u64 = u32::MAX as u64;

/// Calls `then` with all algorithms.
pub(crate) fn with_contenders<T>(then: impl FnOnce(Vec<Contender<'_>>) -> T) -> T {
    let keys: Vec<String> = (0..KEYS).map(user).collect();
    let second = Quota::per_second(PLENTY).unwrap();
    let fraction = Quota::new(7, Duration::from_micros(10)).unwrap().with_burst(PLENTY).unwrap();
    then(vec![
        contender(&keys, "token bucket, one word", TokenBucket::new(UNREACHED.diana())),
        contender(&keys, "token bucket, wide", TokenBucket::new(fraction)),
        contender(&keys, "leaky bucket, nodelay", LeakyBucket::new(UNREACHED.diana()).without_delay()),
        contender(&keys, "refilling bucket", RefillingBucket::new(second)),
        contender(&keys, "fixed window", FixedWindow::new(second)),
        contender(&keys, "fixed window, calendar day", {
            FixedWindow::calendar(PLENTY, Calendar::Day, "Europe/Berlin").unwrap()
        }),
        contender(&keys, "sliding window, 10 buckets", SlidingWindow::new(second)),
        contender(&keys, "sliding log, 100/s", SlidingLog::new(Quota::per_second(100).unwrap())),
        contender(&keys, "sliding log, 10/min", SlidingLog::new(Quota::per_minute(10).unwrap())),
        contender(&keys, "smooth bursty", SmoothBursty::new(1e6).unwrap()),
        contender(&keys, "smooth warming up", SmoothWarmingUp::new(1e6, Duration::from_secs(1)).unwrap()),
        contender(&keys, "minimum interval, 1 µs", MinInterval::new(Duration::from_micros(1)).unwrap()),
        contender(&keys, "concurrency, never released", Concurrency::new(PLENTY).unwrap()),
        contender(&keys, "total", Total::new(PLENTY).unwrap()),
    ])
}

pub(crate) fn run(report: &mut Report, effort: Effort) {
    report.section("every algorithm, 1,000 keys (with the granted share)");
    let (names, times) = with_contenders(|contenders| {
        let names: Vec<_> = contenders.iter().map(Contender::name).collect();
        (names, measure(effort, Expect::Anything, contenders))
    });
    for (index, name) in names.iter().enumerate() {
        let share = format!("{:.0} % granted", 100.0 * times.granted(index));
        report.figure(&format!("  {name}"), ns(times.ns(index)), share);
    }
}

/// Returns `algorithm` as a contender that checks one key after the other.
fn contender<'a>(keys: &'a [String], name: &'static str, algorithm: impl Algorithm) -> Contender<'a> {
    let limiter = KeyedLimiter::<str>::with_algorithm(algorithm);
    let mut index = 0;
    let check = move || {
        index = (index + 1) % KEYS;
        limiter.check(&keys[index]).is_granted()
    };
    Contender::new(name, check)
}
