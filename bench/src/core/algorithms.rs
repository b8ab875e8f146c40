//! Every algorithm through the same API, `KeyedLimiter::with_algorithm`, with a thousand keys.

use super::setup::{ROOMY, user};
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
        of(&keys, "token bucket, one word", TokenBucket::new(ROOMY.diana())),
        of(&keys, "token bucket, wide", TokenBucket::new(fraction)),
        of(&keys, "leaky bucket, nodelay", LeakyBucket::new(ROOMY.diana()).without_delay()),
        of(&keys, "refilling bucket", RefillingBucket::new(second)),
        of(&keys, "fixed window", FixedWindow::new(second)),
        of(&keys, "fixed window, calendar day", {
            FixedWindow::calendar(PLENTY, Calendar::Day, "Europe/Berlin").unwrap()
        }),
        of(&keys, "sliding window, 10 buckets", SlidingWindow::new(second)),
        of(&keys, "sliding log, 100/s", SlidingLog::new(Quota::per_second(100).unwrap())),
        of(&keys, "sliding log, 10/min", SlidingLog::new(Quota::per_minute(10).unwrap())),
        of(&keys, "smooth bursty", SmoothBursty::new(1e6).unwrap()),
        of(&keys, "smooth warming up", SmoothWarmingUp::new(1e6, Duration::from_secs(1)).unwrap()),
        of(&keys, "minimum interval, 1 µs", MinInterval::new(Duration::from_micros(1)).unwrap()),
        of(&keys, "concurrency, never returned", Concurrency::new(PLENTY).unwrap()),
        of(&keys, "total", Total::new(PLENTY).unwrap()),
    ])
}

pub(crate) fn run(report: &mut Report, effort: Effort) {
    report.section("every algorithm, 1,000 keys (the share that was granted beside it)");
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
fn of<'a>(keys: &'a [String], name: &'static str, algorithm: impl Algorithm) -> Contender<'a> {
    let limiter = KeyedLimiter::<str>::with_algorithm(algorithm);
    let mut place = 0;
    let check = move || {
        place = (place + 1) % KEYS;
        limiter.check(&keys[place]).is_granted()
    };
    Contender::new(name, check)
}
