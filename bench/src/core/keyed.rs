//! One limit for each key: Diana's `KeyedLimiter` compared with governor's on a DashMap, with one key and a million.

use super::setup::{NEVER_REFILLED, Rate, UNREACHED, USED_UP};
use diana_bench::keys::{Random, mix, user};
use diana_bench::report::{Goal, Report, ns};
use diana_bench::rounds::{Contender, Effort, Expect, Times, measure};
use diana_core::KeyedLimiter;
use governor::RateLimiter;
use std::hint::black_box;

const MILLION: usize = 1_000_000;

pub(crate) fn run(report: &mut Report, effort: Effort) {
    report.section("one key");
    one_key(report, "  String, granted", effort, UNREACHED, Expect::Granted);
    one_key(report, "  String, denied", effort, USED_UP, Expect::Denied);
    report.section("1,000,000 keys at random");
    // A slice must be long compared to the time to refill the caches after another contender.
    million_texts(report, effort.longer(3));
    million_numbers(report, effort.longer(3));
}

/// Calls `then` with the limiters of `rate`, which have used one permit of the checked key: the only one of
/// [`USED_UP`].
pub(crate) fn with_one_key<T>(rate: Rate, then: impl FnOnce(Vec<Contender<'_>>) -> T) -> T {
    let key = user(123_456);
    let (diana, governor) = (KeyedLimiter::<str>::new(rate.diana()), RateLimiter::keyed(rate.governor()));
    assert!(diana.check(&key).is_granted() && governor.check_key(&key).is_ok());
    then(vec![
        Contender::new("Diana", || diana.check(black_box(key.as_str())).is_granted()),
        Contender::new("governor", || governor.check_key(black_box(&key)).is_ok()),
        Contender::new("Diana, whole answer", || black_box(diana.check(black_box(key.as_str()))).is_granted()),
        Contender::new("governor, whole answer", || black_box(governor.check_key(black_box(&key))).is_ok()),
    ])
}

fn one_key(report: &mut Report, what: &str, effort: Effort, rate: Rate, expect: Expect) {
    let times = with_one_key(rate, |contenders| measure(effort, expect, contenders));
    line(report, what, &times, 0, 1, Goal::AtMost(0.75));
    line(report, &format!("{what}, whole answer"), &times, 2, 3, Goal::Information);
}

/// The keys are in memory in the order in which they are checked, so that reading them costs little: in a program a key
/// was just parsed from a request. For information, the report also has keys that are not in the cache themselves.
fn million_texts(report: &mut Report, effort: Effort) {
    let (diana, governor) =
        (KeyedLimiter::<str>::new(NEVER_REFILLED.diana()), RateLimiter::keyed(NEVER_REFILLED.governor()));
    for key in (0..MILLION).map(user) {
        assert!(diana.check(&key).is_granted() && governor.check_key(&key).is_ok());
    }
    let mut order: Vec<usize> = (0..MILLION).collect();
    let mut random = Random::new(1);
    for last in (1..MILLION).rev() {
        order.swap(last, random.below(last + 1));
    }
    let keys: Vec<String> = order.into_iter().map(user).collect();
    // Each contender checks other keys than the one before it: otherwise the first would warm the cache for the second.
    let (mut ours, mut theirs) = (keys.iter().cycle(), keys.iter().cycle().skip(MILLION / 2));
    let (mut ours_cold, mut theirs_cold) = (Random::new(2), Random::new(3));
    let times = measure(
        effort,
        Expect::MostlyGranted,
        vec![
            Contender::new("Diana", || ours.next().is_some_and(|key| diana.check(key).is_granted())),
            Contender::new("governor", || theirs.next().is_some_and(|key| governor.check_key(key).is_ok())),
            Contender::new("Diana, cold keys", || diana.check(&keys[ours_cold.below(MILLION)]).is_granted()),
            Contender::new("governor, cold keys", || governor.check_key(&keys[theirs_cold.below(MILLION)]).is_ok()),
        ],
    );
    assert_eq!((diana.len(), governor.len()), (MILLION, MILLION), "no key may be dropped");
    line(report, "  String", &times, 0, 1, Goal::AtMost(0.5));
    line(report, "  String, the key itself not in cache", &times, 2, 3, Goal::Information);
}

fn million_numbers(report: &mut Report, effort: Effort) {
    let (diana, governor) =
        (KeyedLimiter::<u64>::new(NEVER_REFILLED.diana()), RateLimiter::keyed(NEVER_REFILLED.governor()));
    for index in 0..MILLION as u64 {
        assert!(diana.check(&mix(index)).is_granted() && governor.check_key(&mix(index)).is_ok());
    }
    let (mut ours, mut theirs) = (Random::new(4), Random::new(5));
    let times = measure(
        effort,
        Expect::MostlyGranted,
        vec![
            Contender::new("Diana", || diana.check(&mix(ours.below(MILLION) as u64)).is_granted()),
            Contender::new("governor", || governor.check_key(&mix(theirs.below(MILLION) as u64)).is_ok()),
        ],
    );
    assert_eq!((diana.len(), governor.len()), (MILLION, MILLION), "no key may be dropped");
    line(report, "  u64", &times, 0, 1, Goal::Information);
}

fn line(report: &mut Report, what: &str, times: &Times, ours: usize, theirs: usize, goal: Goal) {
    let peer = format!("governor {}", ns(times.ns(theirs)));
    report.compare(what, ns(times.ns(ours)), peer, times.ratio(ours, theirs), goal);
}
