//! One limit without keys: Diana's `Limiter` compared with governor's, `ratelimit`'s, `leaky-bucket`'s, and the floor.

use super::setup::{Rate, UNREACHED, USED_UP};
use diana_bench::report::{Goal, Report, ns};
use diana_bench::rounds::{Contender, Effort, Expect, measure};
use diana_core::Limiter;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub(crate) fn run(report: &mut Report, effort: Effort) {
    report.section("one limit, granted");
    compare(report, effort, UNREACHED, Expect::Granted);
    report.section("one limit, denied");
    compare(report, effort, USED_UP, Expect::Denied);
}

/// Calls `then` with the limiters of `rate`, which have used one permit each: the only one of [`USED_UP`].
pub(crate) fn with_contenders<T>(rate: Rate, then: impl FnOnce(Vec<Contender<'_>>) -> T) -> T {
    let (diana, governor) = (Limiter::new(rate.diana()), governor::RateLimiter::direct(rate.governor()));
    let (bare, slot) = (rate.bare(), AtomicU64::new(0));
    let ratelimit = ratelimit::Ratelimiter::builder(1)
        .period(rate.interval)
        .max_tokens(u64::from(rate.burst))
        .initial_available(u64::from(rate.burst))
        .build()
        .unwrap();
    // It counts in milliseconds, so a faster rate is set as several permits per tick.
    let tick = rate.interval.max(Duration::from_millis(1));
    let refill = (tick.as_nanos() / rate.interval.as_nanos()) as usize;
    let leaky = leaky_bucket::RateLimiter::builder()
        .max(rate.burst as usize)
        .initial(rate.burst as usize)
        .refill(refill)
        .interval(tick)
        .build();
    let granted = [
        diana.check().is_granted(),
        governor.check().is_ok(),
        bare.check(&slot),
        ratelimit.try_wait().is_ok(),
        leaky.try_acquire(1),
    ];
    assert_eq!(granted, [true; 5]);
    then(vec![
        Contender::new("Diana", || black_box(&diana).check().is_granted()),
        Contender::new("governor", || black_box(&governor).check().is_ok()),
        Contender::new("ratelimit", || black_box(&ratelimit).try_wait().is_ok()),
        Contender::new("leaky-bucket", || black_box(&leaky).try_acquire(1)),
        Contender::new("bare CAS", || black_box(&bare).check(&slot)),
        Contender::new("Diana, whole answer", || black_box(black_box(&diana).check()).is_granted()),
        Contender::new("governor, whole answer", || black_box(black_box(&governor).check()).is_ok()),
    ])
}

fn compare(report: &mut Report, effort: Effort, rate: Rate, expect: Expect) {
    let times = with_contenders(rate, |contenders| measure(effort, expect, contenders));
    let line = |report: &mut Report, what: &str, ours: usize, name: &str, peer: usize, goal: Goal| {
        let theirs = format!("{name} {}", ns(times.ns(peer)));
        report.compare(what, ns(times.ns(ours)), theirs, times.ratio(ours, peer), goal);
    };
    line(report, "  check", 0, "governor", 1, Goal::AtMost(1.0));
    line(report, "  check", 0, "ratelimit", 2, Goal::Information);
    line(report, "  check", 0, "leaky-bucket", 3, Goal::Information);
    line(report, "  check", 0, "bare CAS", 4, Goal::Information);
    line(report, "  check, whole answer written out", 5, "governor", 6, Goal::Information);
}
