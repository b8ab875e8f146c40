//! The in-process store under pressure: floods, full tables, changing limits, idle keys; no usage is ever lost.

use crate::support::{T0, ms, quota, secs};
use diana_core::{
    Algorithm, Ask, Clock, Concurrency, Cost, FixedWindow, KeyedLimiter, Limit, LocalStore, ManualClock, MaxWait,
    MemoryBound, MemoryStore, OnFull, Quota, SlidingLog, SlidingWindow, SmoothWarmingUp, TableOptions, Timestamp,
    TokenBucket, Total,
};
use std::collections::BTreeMap;

fn options(memory: usize, on_full: OnFull) -> TableOptions {
    TableOptions::default().memory(memory).on_full(on_full).shards(1)
}

fn granted(store: &MemoryStore, limit: &Limit, key: &str, now: Timestamp) -> bool {
    store.decide(&[Ask::one(limit, key)], now, MaxWait::NONE).is_granted()
}

fn remaining(store: &MemoryStore, limit: &Limit, key: &str, now: Timestamp) -> u64 {
    store.peek(&[Ask::one(limit, key)], now, MaxWait::NONE).answers()[0].status().remaining
}

/// Adds keys of `limit` until the store has no memory for one more.
fn fill(store: &MemoryStore, limit: &Limit, now: Timestamp) {
    let mut used = usize::MAX;
    for key in 0.. {
        let _ = store.decide(&[Ask::one(limit, &format!("filler {key}"))], now, MaxWait::NONE);
        if key % 100 == 0 && std::mem::replace(&mut used, store.memory_used()) == store.memory_used() {
            return;
        }
    }
}

/// Fills memory that is too small for a large table to grow with small tables, until a new limit gets none at all.
fn fill_up(store: &MemoryStore, algorithm: &impl Algorithm, now: Timestamp) -> Vec<Limit> {
    let mut fillers = Vec::new();
    loop {
        let before = store.memory_used();
        let filler = Limit::new(format!("filler {}", fillers.len()), algorithm.clone());
        fill(store, &filler, now);
        if store.memory_used() == before {
            return fillers;
        }
        fillers.push(filler);
    }
}

/// A small random number generator for scripts (Knuth's MMIX).
fn randoms() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(42_u64), |n| {
        Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .map(|n| n >> 33)
}

fn agrees_with_a_map<A: Algorithm>(algorithm: &A) {
    let clock = ManualClock::at(T0);
    let limiter = KeyedLimiter::<u64>::with_algorithm(algorithm.clone()).with_clock(clock.clone());
    let mut states = BTreeMap::new();
    let mut random = randoms();
    for step in 0..50_000 {
        let (key, cost) = (random.next().unwrap() % 5_000, 1 + random.next().unwrap() % 3);
        if step % 100 == 0 {
            clock.advance(ms(random.next().unwrap() % 200));
        }
        let now = clock.now();
        let state = states.entry(key).or_insert_with(|| algorithm.fresh(now));
        let expected = algorithm.answer(state, now, Cost::new(cost).unwrap(), MaxWait::NONE);
        let answer = limiter.check_n(&key, cost).unwrap();
        assert_eq!(
            (answer.wait(), answer.retry(), answer.status()),
            (expected.wait(), expected.retry(), expected.status())
        );
    }
    clock.advance(secs(100));
    limiter.reclaim();
    assert_eq!((limiter.len(), limiter.memory_used()), (0, 0));
}

#[test]
fn a_keyed_limiter_agrees_with_a_map_of_states() {
    agrees_with_a_map(&TokenBucket::new(quota("5/s")));
    agrees_with_a_map(&TokenBucket::new(quota("3/s")));
    agrees_with_a_map(&FixedWindow::new(quota("5/s")));
    agrees_with_a_map(&SlidingWindow::new(quota("5/s")));
    agrees_with_a_map(&SlidingLog::new(quota("5/s")));
}

#[test]
fn a_limited_key_survives_a_flood_of_a_million_invented_keys() {
    for on_full in [OnFull::Share, OnFull::Deny, OnFull::Allow] {
        let store = MemoryStore::new(TableOptions::default().memory(200_000).on_full(on_full));
        let limit = Limit::new("each-account", TokenBucket::new(quota("2/h")));
        assert!(granted(&store, &limit, "mallory", T0));
        assert!(granted(&store, &limit, "mallory", T0));
        for invented in 0..1_000_000_u32 {
            let _ = store.decide(&[Ask::one(&limit, &invented.to_le_bytes())], T0, MaxWait::NONE);
            if invented % 1_000 == 0 {
                assert!(store.memory_used() <= 200_000);
                assert!(!granted(&store, &limit, "mallory", T0), "{on_full:?}: usage lost after {invented} keys");
            }
        }
    }
}

/// Floods a limit, and returns the memory of its keys.
fn flooded(store: &MemoryStore, limit: &Limit, number: u32) -> usize {
    for invented in 0..number {
        let _ = store.decide(&[Ask::one(limit, &invented.to_le_bytes())], T0, MaxWait::NONE);
    }
    store.usage()[&limit.id()].bytes
}

#[test]
fn a_flood_of_a_bounded_limit_leaves_memory_to_the_others() {
    for on_full in [OnFull::Share, OnFull::Deny, OnFull::Allow] {
        let store = MemoryStore::new(options(8 << 20, on_full));
        let zone = MemoryBound::new(500_000);
        let bounded = |name: &str, rate: &str| Limit::new(name, TokenBucket::new(quota(rate))).with_memory(Some(&zone));
        let (hour, day) = (bounded("hour", "2/h"), bounded("day", "20/day"));
        let other = Limit::new("other", SlidingLog::new(quota("2/h")));
        assert!(granted(&store, &hour, "mallory", T0) && granted(&store, &hour, "mallory", T0));
        let (of_hour, of_day) = (flooded(&store, &hour, 100_000), flooded(&store, &day, 100_000));
        assert!((400_000..=500_000).contains(&(of_hour + of_day)), "{of_hour} + {of_day}");
        assert!(!granted(&store, &hour, "mallory", T0), "{on_full:?}");
        // Requests of several limits are all or nothing, when one of them has no memory.
        let both = [Ask::one(&other, "alice"), Ask::one(&hour, "new")];
        let is_granted = store.decide(&both, T0, MaxWait::NONE).is_granted();
        assert_eq!(is_granted, remaining(&store, &other, "alice", T0) == 1, "{on_full:?}");
        assert!(on_full != OnFull::Deny || !is_granted);
        // Others have the rest.
        assert!((0..5_000).all(|key| granted(&store, &other, &format!("key {key}"), T0)), "{on_full:?}");
        // A larger bound applies at the next request, and none at all means that of the store. (New keys that share a count keep
        // sharing it while it is in use.)
        let larger = hour.with_memory(Some(&MemoryBound::new(1_000_000)));
        let grown = flooded(&store, &larger, 100_000);
        assert!(on_full == OnFull::Share || (800_000..=1_000_000).contains(&grown), "{grown}");
        let free = larger.with_memory(None);
        let grown = flooded(&store, &free, 100_000);
        assert!(on_full == OnFull::Share || grown > 1_000_000, "{grown}");
        assert!(!granted(&store, &free, "mallory", T0), "{on_full:?}");
        // All of it is returned.
        store.reclaim(T0 + secs(2 * 86_400));
        assert_eq!((store.len(), store.usage()[&day.id()].keys), (0, 0));
        assert!(granted(&store, &day, "new", T0 + secs(2 * 86_400)));
    }
}

#[test]
fn keys_that_share_a_count_stay_within_the_limit_and_keep_their_usage() {
    let store = MemoryStore::new(options(20_000, OnFull::Share));
    let limit = Limit::new("each-account", FixedWindow::new(quota("5/min")));
    fill_up(&store, &FixedWindow::new(quota("5/s")), T0);
    let stored = store.len();
    // None of these gets an entry.
    let names = (0..50).map(|n| format!("late {n}")).collect::<Vec<_>>();
    let mut counts = vec![0; names.len()];
    for _ in 0..10 {
        for (name, count) in names.iter().zip(&mut counts) {
            *count += u64::from(granted(&store, &limit, name, T0));
        }
    }
    assert_eq!(store.len(), stored, "the memory was not used up");
    assert!(counts.iter().all(|count| *count <= 5), "{counts:?}");
    // Sixteen counts for all of them, each of which was granted in full or never asked for.
    assert!(counts.iter().sum::<u64>() <= 16 * 5 && counts.iter().sum::<u64>().is_multiple_of(5), "{counts:?}");
    // A second later the other entries can be dropped.
    let later = T0 + secs(1);
    store.reclaim(later);
    assert_eq!(store.len(), 0);
    for (name, count) in names.iter().zip(&mut counts) {
        *count += (0..10).filter(|_| granted(&store, &limit, name, later)).count() as u64;
    }
    assert!(counts.iter().all(|count| *count <= 5), "usage was lost: {counts:?}");
    // In the next window every key starts again with its own count.
    let next = T0 + secs(60);
    assert!(names.iter().all(|name| (0..10).filter(|_| granted(&store, &limit, name, next)).count() == 5));
}

#[test]
fn a_full_store_denies_or_allows_new_keys_as_configured() {
    for (on_full, answer) in [(OnFull::Deny, false), (OnFull::Allow, true)] {
        let store = MemoryStore::new(options(20_000, on_full));
        let limit = Limit::new("each-account", TokenBucket::new(quota("2/h")));
        assert!(granted(&store, &limit, "early", T0));
        fill(&store, &limit, T0);
        let stored = store.len();
        for _ in 0..10 {
            let late = [Ask::one(&limit, "late")];
            assert_eq!(store.peek(&late, T0, MaxWait::NONE).is_granted(), answer);
            assert_eq!(granted(&store, &limit, "late", T0), answer);
        }
        assert_eq!(store.len(), stored);
        // Keys with an entry are unaffected.
        assert!(granted(&store, &limit, "early", T0));
        assert!(!granted(&store, &limit, "early", T0));
    }
}

#[test]
fn a_request_without_memory_for_all_keys_is_charged_to_none() {
    for memory in (1_000..20_000).step_by(117) {
        let store = MemoryStore::new(options(memory, OnFull::Deny));
        let window = Limit::new("window", SlidingWindow::new(quota("5/h")));
        let log = Limit::new("log", SlidingLog::new(quota("5/h")));
        let known = Limit::new("known", Total::new(1_000).unwrap());
        if !granted(&store, &known, "everyone", T0) {
            continue;
        }
        let mut charged = 1;
        for n in 0..200 {
            let (a, b) = (format!("a{n}"), format!("b{n}"));
            let asks = [Ask::one(&known, "everyone"), Ask::one(&window, &a), Ask::one(&log, &b), Ask::one(&log, &a)];
            let decision = store.decide(&asks, T0, MaxWait::NONE);
            let remaining_before = decision.answers()[0].status().remaining;
            assert_eq!(
                remaining_before,
                1_000 - charged - u64::from(decision.is_granted()),
                "request {n} in {memory} bytes"
            );
            if decision.is_granted() {
                charged += 1;
                assert_eq!(remaining(&store, &window, &a, T0), 4);
            } else if store.peek(&asks[1..2], T0, MaxWait::NONE).is_granted() {
                assert_eq!(remaining(&store, &window, &a, T0), 5, "request {n} in {memory} bytes");
            }
            assert_eq!(1_000 - remaining(&store, &known, "everyone", T0), charged, "request {n} in {memory} bytes");
            assert!(store.memory_used() <= memory);
        }
    }
}

#[test]
fn a_change_of_algorithm_and_back_keeps_each_keys_usage() {
    let store = MemoryStore::new(TableOptions::default().shards(4));
    let mut limit = Limit::new("each-account", TokenBucket::new(quota("10/h")));
    let keys = (0..1_000).map(|n| (format!("key {n}"), n % 10)).collect::<Vec<_>>();
    for (key, used) in &keys {
        (0..*used).for_each(|_| assert!(granted(&store, &limit, key, T0)));
    }
    let assert_usage_is_kept = |limit: &Limit, of: u64| {
        for (key, used) in &keys {
            assert_eq!(remaining(&store, limit, key, T0), of.saturating_sub(*used), "{key} under {limit:?}");
        }
    };
    for _ in 0..3 {
        limit = limit.changed_to(FixedWindow::new(quota("12/h")));
        assert_usage_is_kept(&limit, 12);
        limit = limit.changed_to(SlidingLog::new(quota("20/h")));
        assert_usage_is_kept(&limit, 20);
        limit = limit.changed_to(Total::new(11).unwrap());
        assert_usage_is_kept(&limit, 11);
        limit = limit.changed_to(TokenBucket::new(quota("10/h")));
        assert_usage_is_kept(&limit, 10);
    }
    limit = limit.changed_to(TokenBucket::new(quota("3/h")));
    assert_usage_is_kept(&limit, 3);
}

#[test]
fn a_limit_may_change_more_often_than_its_keys_are_used() {
    let store = MemoryStore::new(TableOptions::default().shards(1));
    let mut limit = Limit::new("each-account", FixedWindow::new(quota("10/h")));
    (0..5_000).for_each(|key| assert!(granted(&store, &limit, &format!("key {key}"), T0)));
    for permits in 11..40 {
        limit = limit.changed_to(FixedWindow::new(Quota::per_hour(permits).unwrap()));
        // One key is used, so that the store sees the change.
        assert_eq!(remaining(&store, &limit, "key 0", T0), permits - 1);
    }
    assert!((0..5_000).all(|key| remaining(&store, &limit, &format!("key {key}"), T0) == 38));
}

#[test]
fn memory_is_released_when_a_limit_is_forgotten_or_its_keys_are_full() {
    let store = MemoryStore::default();
    let limits = [
        Limit::new("bucket", TokenBucket::new(quota("5/s"))),
        Limit::new("log", SlidingLog::new(quota("5/s"))),
        Limit::new("ring", SlidingWindow::new(quota("5/s"))),
        Limit::new("total", Total::new(5).unwrap()),
    ];
    for key in 0..1_000 {
        limits.iter().for_each(|limit| assert!(granted(&store, limit, &format!("key {key}"), T0)));
    }
    assert_eq!(store.len(), 4_000);
    store.forget(&limits[0]);
    assert_eq!(store.len(), 3_000);
    let later = T0 + secs(10);
    store.reclaim(later);
    assert_eq!(store.len(), 1_000, "a total is never dropped");
    let total = store.memory_used();
    assert!(total > 0);
    // A limit that changes its algorithm keeps its memory, and takes no more.
    let changed = limits[3].changed_to(SlidingLog::new(quota("5/s")));
    (0..1_000).for_each(|key| assert_eq!(remaining(&store, &changed, &format!("key {key}"), later), 4));
    assert!(store.memory_used() > total);
    store.forget(&changed);
    assert_eq!((store.len(), store.memory_used()), (0, 0));
}

#[test]
fn idle_keys_of_one_limit_do_not_exclude_active_keys_of_another() {
    let store = MemoryStore::new(TableOptions::default().memory(2 << 20).on_full(OnFull::Deny).shards(4));
    let idle = Limit::new("idle", TokenBucket::new(quota("5/s")));
    assert!((0..150_000).any(|key| !granted(&store, &idle, &format!("key {key}"), T0)), "the store is full");
    let active = Limit::new("active", TokenBucket::new(quota("5/s")));
    let later = T0 + secs(10);
    let denied =
        |keys: std::ops::Range<u32>| keys.filter(|key| !granted(&store, &active, &format!("key {key}"), later)).count();
    let at_first = denied(0..4_000);
    assert_eq!(denied(4_000..20_000), 0, "denied because of idle keys, after {at_first} others");
}

#[test]
fn shared_counts_of_permits_in_flight_are_released() {
    let store = MemoryStore::new(options(10_000, OnFull::Share));
    let flight = Limit::new("in flight", Concurrency::new(2).unwrap());
    let fillers = fill_up(&store, &Total::new(5).unwrap(), T0);
    let stored = store.len();
    let asks = [Ask::one(&flight, "late")];
    let first = store.decide(&asks, T0, MaxWait::NONE);
    let second = store.decide(&asks, T0, MaxWait::NONE);
    assert!(first.is_granted() && second.is_granted());
    assert!(!store.decide(&asks, T0, MaxWait::NONE).is_granted());
    assert_eq!(store.len(), stored, "the memory was not used up");
    fillers.iter().for_each(|filler| store.forget(filler));
    assert!(!store.decide(&asks, T0, MaxWait::NONE).is_granted(), "two are still in flight");
    store.refund(&asks, &first, T0);
    store.refund(&asks, &second, T0);
    assert_eq!(remaining(&store, &flight, "late", T0), 2);
}

#[test]
fn time_that_goes_back_restores_nothing() {
    let store = MemoryStore::default();
    let limit = Limit::new("each-account", FixedWindow::new(quota("2/s")));
    assert!(granted(&store, &limit, "alice", T0));
    assert!(granted(&store, &limit, "alice", T0));
    let earlier = Timestamp::from_nanos(T0.as_nanos() - 1);
    assert!(!granted(&store, &limit, "alice", earlier));
    assert!(!granted(&store, &limit, "alice", Timestamp::EPOCH));
    assert!(!granted(&store, &limit, "alice", T0));
    // A change that arrives late does not turn the time back either.
    let changed = limit.changed_to(SlidingLog::new(quota("2/s")));
    assert!(!granted(&store, &changed, "alice", Timestamp::EPOCH));
    assert!(!granted(&store, &changed, "alice", T0));
    assert!(granted(&store, &changed, "alice", T0 + secs(1)));
}

#[test]
fn any_number_of_shards_is_valid() {
    for count in [0, 1, 3, 256, 257, usize::MAX] {
        let store = MemoryStore::new(TableOptions::default().shards(count));
        let limit = Limit::new("each-account", TokenBucket::new(quota("1/s")));
        assert!(granted(&store, &limit, "alice", T0));
        assert!(!granted(&store, &limit, "alice", T0));
    }
}

#[test]
fn of_two_changes_of_a_limit_the_later_one_applies() {
    let store = MemoryStore::default();
    let limit = Limit::new("each-account", TokenBucket::new(quota("5/s")));
    let (first, second) =
        (limit.changed_to(TokenBucket::new(quota("7/s"))), limit.changed_to(TokenBucket::new(quota("9/s"))));
    assert_eq!(remaining(&store, &first, "alice", T0), 7);
    assert_eq!(remaining(&store, &second, "alice", T0), 9);
    assert_eq!(remaining(&store, &first, "alice", T0), 9, "an older version does not change it back");
}

#[test]
fn a_receipt_is_void_for_another_kind_of_algorithm() {
    let store = MemoryStore::default();
    let bucket = Limit::new("each-account", TokenBucket::new(quota("5/s")));
    let asks = [Ask::one(&bucket, "alice")];
    let decision = store.decide(&asks, T0, MaxWait::NONE);
    let flight = bucket.changed_to(Concurrency::new(1).unwrap());
    assert!(granted(&store, &flight, "alice", T0));
    store.refund(&asks, &decision, T0);
    assert!(!granted(&store, &flight, "alice", T0), "the permit is still in flight");
}

/// Guava's `setRate` scales a full store, which may differ slightly from its new maximum until the next microsecond.
#[test]
fn an_idle_key_answers_as_guava_does_at_a_change_whether_stored_or_dropped() {
    let mut differs = 0;
    for (random, next) in randoms().zip(randoms().skip(1)).take(2_000) {
        let rate = |random: u64| 0.01 + (random % 100_000) as f64 / 997.0;
        let warm_up = std::time::Duration::from_micros(random % 3_000_000 + 1);
        let old = SmoothWarmingUp::new(rate(random), warm_up).unwrap();
        let (between, new) = (old.with_rate(rate(next ^ random)).unwrap(), old.with_rate(rate(next)).unwrap());
        let [stored, dropped, other_shard] = [(); 3].map(|()| MemoryStore::default());
        let limit = Limit::new("guava", old);
        assert!(stored.decide(&[Ask::one(&limit, "key")], T0, MaxWait::NONE).is_granted());
        assert!(dropped.peek(&[Ask::one(&limit, "key")], T0, MaxWait::NONE).is_granted());
        // Only another shard sees it.
        assert!(other_shard.peek(&[Ask::one(&limit, "another key")], T0, MaxWait::NONE).is_granted());
        let now = T0 + secs(86_400);
        let once = limit.changed_to(between);
        let twice = [once.clone(), once.changed_to(new)];
        let (mut state, mut fresh) = (old.fresh(now), new.fresh(now));
        between.rescale(&mut state, &old, now);
        new.rescale(&mut state, &between, now);
        for limit in &twice {
            // A peek applies the change.
            let _ = [&stored, &dropped].map(|store| remaining(store, limit, "key", now));
            remaining(&other_shard, limit, "another key", now);
        }
        for permits in [next % 7 + 1, 1, 3] {
            let cost = Cost::new(permits).unwrap();
            let ask = [Ask::new(&twice[1], "key", cost)];
            let guava = new.take(&mut state, now, cost, MaxWait::FOREVER);
            differs += usize::from(new.take(&mut fresh, now, cost, MaxWait::FOREVER).wait() != guava.wait());
            for store in [&stored, &dropped, &other_shard] {
                assert_eq!(store.decide(&ask, now, MaxWait::FOREVER).answers()[0].outcome, guava, "{old:?} to {new:?}");
            }
        }
    }
    assert!(differs > 0, "no case in which a fresh key is charged a microsecond more or less");
}
