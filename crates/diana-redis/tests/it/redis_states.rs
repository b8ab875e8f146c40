//! The states on Redis: their names, their expiry, and what happens if clocks or configurations differ.

use crate::support::{ask, ask_for, bucket, granted, store};
use diana_core::{
    Ask, Calendar, Clock, Concurrency, Cost, FixedWindow, LeakyBucket, Limit, MaxWait, MinInterval, WindowStart,
};
use diana_core::{
    InitialPermits, Quota, RefillingBucket, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmingUp, Store,
};
use diana_core::{StoreError, SystemClock, TokenBucket, Total};
use diana_redis::{DenyCache, Options, RedisStore, WhenDown};
use diana_testing::RedisServer;
use std::time::Duration;

/// Returns a store that always queries Redis, and denies if it can't.
async fn plain(redis: &RedisServer) -> RedisStore {
    let options = Options::default().timeout(Duration::from_secs(2)).when_down(WhenDown::Deny);
    store(&redis.url(), options.deny_cache(DenyCache::Off)).await
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// Returns a limit of every kind, and the minimum and maximum time to live of its key after one grant.
fn every_kind() -> Vec<(Limit, Duration, Duration)> {
    let ms = Duration::from_millis;
    let log = SlidingLog::several([quota("9/2s"), quota("9/5s")]).unwrap();
    let calendar = FixedWindow::calendar(9, Calendar::Day, "Europe/Berlin").unwrap();
    vec![
        (Limit::new("token", TokenBucket::new(quota("3/s burst 9"))), ms(332), ms(334)),
        (Limit::new("leaky", LeakyBucket::new(quota("1/4s")).with_queue(9)), ms(3_999), ms(4_000)),
        (Limit::new("interval", MinInterval::new(ms(1_500)).unwrap()), ms(1_499), ms(1_500)),
        (Limit::new("refills", RefillingBucket::new(quota("2/2s burst 9"))), ms(9_999), ms(10_001)),
        (Limit::new("clock", FixedWindow::new(quota("9/30s"))), ms(0), ms(30_000)),
        (
            Limit::new("first", FixedWindow::new(quota("9/2s")).with_window_start(WindowStart::FirstRequest)),
            ms(1_999),
            ms(2_000),
        ),
        (Limit::new("dates", calendar), ms(0), ms(25 * 3_600_000)),
        (Limit::new("sliding", SlidingWindow::new(quota("9/10s"))), ms(9_000), ms(10_000)),
        (Limit::new("log", log), ms(4_999), ms(5_000)),
        (
            Limit::new("bursty", SmoothBursty::new(2.0).unwrap().with_initial_permits(InitialPermits::Full)),
            ms(499),
            ms(501),
        ),
        (Limit::new("warming", SmoothWarmingUp::new(10.0, ms(2_000)).unwrap()), ms(1), ms(2_500)),
        (Limit::new("pool", Concurrency::new(9).unwrap()), ms(59_999), ms(60_000)),
    ]
}

#[tokio::test]
async fn every_key_except_totals_expires_when_it_equals_a_new_one() {
    let redis = RedisServer::start().unwrap();
    let store = plain(&redis).await;
    let expiry =
        |name: &str| redis.cli(&["pttl", &format!("diana:{name}:{{x}}")]).unwrap().trim().parse::<i64>().unwrap();
    for (limit, min, max) in every_kind() {
        let before = SystemClock.now();
        assert!(ask(&store, &limit, "x").await.is_granted());
        let remaining = expiry(limit.name());
        // `redis-cli` is slow, so a key may have a little less by now.
        let passed = i64::try_from(SystemClock.now().since(before).as_millis()).unwrap() + 1;
        let (min, max) = (i64::try_from(min.as_millis()).unwrap(), i64::try_from(max.as_millis()).unwrap());
        assert!((min - passed..=max).contains(&remaining), "{}: {remaining} ms, not {min} to {max}", limit.name());
        // Neither a denial nor a refund nor a charge removes the expiry.
        let asks = [Ask::one(&limit, "x")];
        let second = store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
        let _ = ask_for(&store, &limit, "x", 1_000).await;
        store.refund(&asks, &second, SystemClock.now()).await.unwrap();
        store.charge(Ask::new(&limit, "x", Cost::new(20).unwrap()), SystemClock.now()).await.unwrap();
        assert!(expiry(limit.name()) > 0, "{}", limit.name());
    }
    let total = Limit::new("total", Total::new(9).unwrap());
    assert!(ask(&store, &total, "x").await.is_granted());
    assert_eq!(expiry("total"), -1);
}

#[tokio::test]
async fn a_full_refund_removes_the_key() {
    let redis = RedisServer::start().unwrap();
    let store = plain(&redis).await;
    for (limit, ..) in every_kind().into_iter().filter(|(limit, ..)| limit.name() != "warming") {
        let asks = [Ask::one(&limit, "x")];
        let decision = store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
        store.refund(&asks, &decision, SystemClock.now()).await.unwrap();
        let remaining = redis.cli(&["exists", &format!("diana:{}:{{x}}", limit.name())]).unwrap();
        assert_eq!(remaining.trim(), "0", "{}", limit.name());
    }
}

#[tokio::test]
async fn the_limits_of_one_key_are_decided_in_one_call_all_or_nothing() {
    let redis = RedisServer::start().unwrap();
    let store = plain(&redis).await;
    let limits = every_kind().into_iter().map(|(limit, ..)| limit).collect::<Vec<_>>();
    let asks = limits.iter().map(|limit| Ask::one(limit, "x")).collect::<Vec<_>>();
    assert!(store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap().is_granted());
    let before = store.link().commands;
    // The interval has not passed, and two requests would have to wait, so none of them is charged.
    let denied = store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
    assert!(!denied.is_granted());
    assert_eq!(denied.answers().len(), limits.len());
    assert_eq!(store.link().commands - before, 1);
    let denying = limits.iter().zip(denied.answers()).filter(|(_, answer)| !answer.is_granted());
    assert_eq!(denying.map(|(limit, _)| limit.name()).collect::<Vec<_>>(), ["leaky", "interval", "warming"]);
    let pool = limits.iter().position(|limit| limit.name() == "pool").unwrap();
    assert_eq!(denied.answers()[pool].status().remaining, 8);
}

/// The states of keys that were used up when the clock was an hour ahead, before it was set back.
#[tokio::test]
async fn a_clock_that_was_set_back_blocks_no_key() {
    let redis = RedisServer::start().unwrap();
    let store = plain(&redis).await;
    let hour = 3_600_000_000_u64;
    let limit = bucket("token", "20/s burst 2");
    assert_eq!(granted(&store, &limit, "x", 3).await, 2);
    // Moves the state ahead, as if it had been written then.
    let name = "diana:token:{x}";
    let text = redis.cli(&["get", name]).unwrap();
    let mut fields = text.trim().split(' ').map(str::to_owned).collect::<Vec<_>>();
    fields[1] = (fields[1].parse::<u64>().unwrap() + hour).to_string();
    redis.cli(&["set", name, &fields.join(" "), "px", "7200000"]).unwrap();
    let denied = ask(&store, &limit, "x").await;
    let status = denied.answers()[0].status();
    assert!(!denied.is_granted());
    // No further ahead than when it was written, to a second.
    assert!(status.reset <= Duration::from_secs(1), "{status:?}");
    crate::support::until(Duration::from_secs(5), "the bucket is refilled", || {
        redis
            .cli(&["get", name])
            .unwrap()
            .trim()
            .split(' ')
            .nth(1)
            .is_none_or(|micros| micros.parse::<u64>().unwrap() < SystemClock.now().as_micros())
    })
    .await;
    assert!(ask(&store, &limit, "x").await.is_granted());
}

#[tokio::test]
async fn the_newer_of_two_numbered_configurations_applies_to_both() {
    let redis = RedisServer::start().unwrap();
    // The old one starts later, like one that is restarted during a roll-out.
    let (new, old) = (plain(&redis).await, plain(&redis).await);
    new.configure(8);
    old.configure(7);
    let generous = bucket("same", "1/h burst 100");
    assert_eq!(granted(&old, &generous, "x", 50).await, 50);
    // One gateway gets a new configuration first.
    let strict = bucket("same", "1/h burst 10");
    assert!(!ask(&new, &strict, "x").await.is_granted());
    // If each migrated the key to its own parameters, back and forth, the old one would have 90 again each time.
    assert_eq!(granted(&old, &generous, "x", 50).await, 0);
    assert!(!ask(&new, &strict, "x").await.is_granted());
    let status = ask(&old, &generous, "y").await.answers()[0].status();
    assert_eq!((status.limit, status.remaining), (10, 9), "the newer configuration applies to other keys too");
    assert_eq!((old.link().adopted, new.link().adopted), (1, 0));
}

#[tokio::test]
async fn without_numbers_each_process_applies_its_own_configuration() {
    let redis = RedisServer::start().unwrap();
    let (strict_one, restarted) = (plain(&redis).await, plain(&redis).await);
    let (strict, generous) = (bucket("same", "5/h"), bucket("same", "1000/h"));
    assert_eq!(granted(&strict_one, &strict, "alice", 3).await, 3);
    assert!(ask(&restarted, &generous, "alice").await.is_granted());
    // However late an old gateway starts, the new one stays as strict as configured.
    assert!(granted(&strict_one, &strict, "alice", 50).await <= 2);
    assert_eq!(granted(&strict_one, &strict, "bob", 50).await, 5);
}

#[tokio::test]
async fn an_unsupported_limit_is_an_error_with_a_reason() {
    let redis = RedisServer::start().unwrap();
    let store = plain(&redis).await;
    let reason =
        async |limit: Limit| match store.decide(&[Ask::one(&limit, "x")], SystemClock.now(), MaxWait::NONE).await {
            Err(StoreError::Unsupported { limit, reason, .. }) => format!("{limit}: {reason}"),
            other => panic!("{other:?}"),
        };
    let empty = Limit::new("bursty", SmoothBursty::new(2.0).unwrap());
    assert!(reason(empty).await.contains("starts: full"));
    let fine = SlidingWindow::new(quota("9/h")).with_buckets(2_000).unwrap();
    assert!(reason(Limit::new("fine", fine)).await.contains("precision"));
    let slow = TokenBucket::new(quota("1/day").with_burst(1_000_000).unwrap());
    assert!(reason(Limit::new("slow", slow)).await.contains("years"));
}

#[tokio::test]
async fn long_and_unusual_keys_are_distinct() {
    let redis = RedisServer::start().unwrap();
    let store = plain(&redis).await;
    let limit = bucket("once", "1/h");
    let long = "k".repeat(100_000);
    for key in ["", "{", "}", "{}", "}{", "a b", "a\nb", "é", &long, &long[1..]] {
        assert!(ask(&store, &limit, key).await.is_granted(), "{key:.20}");
        assert!(!ask(&store, &limit, key).await.is_granted(), "{key:.20}");
    }
    assert!(redis.info("memory", "used_memory").unwrap().trim().parse::<u64>().unwrap() < 10_000_000);
}
