//! The overhead of the in-process store over a limit: one query, and three that are allowed together or not at all.

use super::setup::UNREACHED;
use diana_bench::keys::user;
use diana_bench::report::{Report, ns};
use diana_bench::rounds::{Contender, Effort, Expect, measure};
use diana_core::{Ask, Clock, KeyedLimiter, Limit, LocalStore, MaxWait, MemoryStore, SystemClock, TokenBucket};

const KEYS: usize = 1_000;

/// Calls `then` with a limiter and with the store, asked for one limit and for three.
pub(crate) fn with_contenders<T>(then: impl FnOnce(Vec<Contender<'_>>) -> T) -> T {
    let limits: Vec<Limit> =
        ["address", "account", "path"].map(|name| Limit::new(name, TokenBucket::new(UNREACHED.diana()))).into();
    let keys: Vec<String> = (0..3 * KEYS).map(user).collect();
    let (store, keyed) = (MemoryStore::default(), KeyedLimiter::<str>::new(UNREACHED.diana()));
    let (mut a, mut b, mut c, mut d) = (0, 0, 0, 0);
    then(vec![
        Contender::new("KeyedLimiter", || keyed.check(next(&keys, &mut a)).is_granted()),
        Contender::new("1 ask", || {
            let asks = [Ask::one(&limits[0], next(&keys, &mut b))];
            LocalStore::decide(&store, &asks, SystemClock.now(), MaxWait::NONE).is_granted()
        }),
        Contender::new("3 asks", || {
            let asks = [0, 1, 2].map(|limit| Ask::one(&limits[limit], next(&keys[limit * KEYS..], &mut c)));
            LocalStore::decide(&store, &asks, SystemClock.now(), MaxWait::NONE).is_granted()
        }),
        Contender::new("3 asks of one key", || {
            let key = next(&keys, &mut d);
            let asks = [0, 1, 2].map(|limit| Ask::one(&limits[limit], key));
            LocalStore::decide(&store, &asks, SystemClock.now(), MaxWait::NONE).is_granted()
        }),
    ])
}

pub(crate) fn run(report: &mut Report, effort: Effort) {
    report.section("the in-process store, 1,000 keys, granted, with a clock reading");
    let times = with_contenders(|contenders| measure(effort, Expect::Granted, contenders));
    report.figure("  KeyedLimiter::check, to compare", ns(times.ns(0)), String::new());
    for (index, what) in
        ["  decide, 1 ask", "  decide, 3 limits, 3 keys", "  decide, 3 limits, 1 key"].iter().enumerate()
    {
        let remark = format!("{:.1} times a KeyedLimiter's check", times.ratio(index + 1, 0));
        report.figure(what, ns(times.ns(index + 1)), remark);
    }
}

/// Returns a thousand keys one after the other, in a cycle.
fn next<'a>(keys: &'a [String], index: &mut usize) -> &'a str {
    *index = (*index + 1) % KEYS;
    &keys[*index]
}
