//! Which requests are answered without a round trip to Redis, and that this can be switched off.

use crate::support::{ask, ask_for, bucket, granted, store, until, warm};
use diana_core::{
    Ask, Clock, FixedWindow, Limit, MaxWait, Quota, ResetListener, Retry, Store, SystemClock, TokenBucket, Total,
};
use diana_redis::{Batching, DenyCache, Leases, Options, RedisStore};
use diana_testing::RedisServer;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

fn options() -> Options {
    Options::default().timeout(Duration::from_secs(2))
}

/// Returns how many commands `asked` took.
async fn commands(store: &RedisStore, asked: impl Future) -> u64 {
    let before = store.link().commands;
    asked.await;
    store.link().commands - before
}

#[tokio::test]
async fn a_flood_costs_one_command_per_grant() {
    let redis = RedisServer::start().unwrap();
    let store = warm(&redis, options().timeout(Duration::from_secs(5))).await;
    let before = store.link();
    assert_eq!(granted(&store, &bucket("three", "3/h"), "alice", 200).await, 3);
    let after = store.link();
    assert_eq!(after.commands - before.commands, 3);
    assert_eq!(after.saved_by_deny_cache - before.saved_by_deny_cache, 197);
}

#[tokio::test]
async fn a_refunded_permit_can_be_taken_again() {
    let redis = RedisServer::start().unwrap();
    let (store, limit) = (warm(&redis, options().timeout(Duration::from_secs(5))).await, bucket("one", "1/h"));
    let now = SystemClock.now();
    let asks = [Ask::one(&limit, "alice")];
    let decision = store.decide(&asks, now, MaxWait::NONE).await.unwrap();
    assert!(decision.is_granted());
    assert!(!ask(&store, &limit, "alice").await.is_granted());
    store.refund(&asks, &decision, now).await.unwrap();
    assert!(ask(&store, &limit, "alice").await.is_granted());
}

#[tokio::test]
async fn a_limit_that_was_not_charged_still_grants() {
    let redis = RedisServer::start().unwrap();
    let store = warm(&redis, options().timeout(Duration::from_secs(5))).await;
    let (free, used_up) = (bucket("free", "1/h"), bucket("used-up", "1/h"));
    assert!(ask(&store, &used_up, "alice").await.is_granted());
    let both = [Ask::one(&free, "alice"), Ask::one(&used_up, "alice")];
    assert!(!store.decide(&both, SystemClock.now(), MaxWait::NONE).await.unwrap().is_granted());
    assert!(ask(&store, &free, "alice").await.is_granted());
}

#[tokio::test]
async fn a_denial_is_cached_for_equal_and_higher_costs() {
    let redis = RedisServer::start().unwrap();
    let store = warm(&redis, options()).await;
    let saved = store.link().saved_by_deny_cache;
    let limit = bucket("hourly", "5/h");
    assert!(ask_for(&store, &limit, "x", 3).await.is_granted());
    // Not even the first denial needs a round trip: a grant also shows that the same cost is not available again.
    let asked = async {
        for cost in [3, 4, 100] {
            let denied = ask_for(&store, &limit, "x", cost).await;
            match (cost, denied.retry().unwrap()) {
                // One permit, or two, have to be refilled; a cost above the capacity is never available.
                (3, Retry::After(after)) => assert!(after > Duration::from_secs(600), "{after:?}"),
                (4, Retry::After(after)) => assert!(after > Duration::from_secs(1_300), "{after:?}"),
                (100, retry) => assert_eq!(retry, Retry::Never),
                (_, other) => panic!("{other:?}"),
            }
            assert_eq!(denied.answers()[0].status().remaining, 2);
        }
    };
    assert_eq!(commands(&store, asked).await, 0);
    assert_eq!(store.link().saved_by_deny_cache - saved, 3);
    // A lower cost may still be available, and other keys are not affected.
    assert!(ask_for(&store, &limit, "x", 2).await.is_granted());
    assert!(ask_for(&store, &limit, "y", 3).await.is_granted());
    assert!(ask_for(&store, &bucket("other", "5/h"), "x", 3).await.is_granted());
}

#[tokio::test]
async fn a_cached_denial_ends_when_permits_are_refilled() {
    let redis = RedisServer::start().unwrap();
    let store = store(&redis.url(), options()).await;
    let limit = bucket("quick", "20/s burst 1");
    assert!(ask(&store, &limit, "x").await.is_granted());
    assert!(!ask(&store, &limit, "x").await.is_granted());
    let mut asks = 0;
    let began = SystemClock.now();
    while !ask(&store, &limit, "x").await.is_granted() {
        asks += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let waited = SystemClock.now().since(began);
    assert!(
        waited < Duration::from_millis(500),
        "{waited:?} and {asks} asks for a permit that is refilled after 50 ms"
    );
}

#[tokio::test]
async fn without_the_deny_cache_every_request_is_sent() {
    let redis = RedisServer::start().unwrap();
    let store = store(&redis.url(), options().deny_cache(DenyCache::Off)).await;
    let limit = bucket("hourly", "1/h");
    assert_eq!(commands(&store, granted(&store, &limit, "x", 10)).await, 11, "one of them to load the script");
    assert_eq!(store.link().saved_by_deny_cache, 0);
}

#[tokio::test]
async fn a_refund_a_reset_and_a_change_invalidate_cached_denials() {
    let redis = RedisServer::start().unwrap();
    let store = store(&redis.url(), options()).await;
    let limit = bucket("hourly", "1/h");
    let asks = [Ask::one(&limit, "x")];
    let first = store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
    assert!(!ask(&store, &limit, "x").await.is_granted());
    store.refund(&asks, &first, SystemClock.now()).await.unwrap();
    assert!(ask(&store, &limit, "x").await.is_granted());
    assert!(!ask(&store, &limit, "x").await.is_granted());
    store.reset(&limit, b"x", SystemClock.now()).await.unwrap();
    assert!(ask(&store, &limit, "x").await.is_granted());
    assert!(!ask(&store, &limit, "x").await.is_granted());
    let larger = limit.changed_to(TokenBucket::new("2/h".parse::<Quota>().unwrap()));
    assert!(ask(&store, &larger, "x").await.is_granted());
}

#[tokio::test]
async fn refunds_and_resets_of_other_instances_invalidate_cached_denials() {
    let redis = RedisServer::start().unwrap();
    let (store_a, store_b) = (store(&redis.url(), options()).await, store(&redis.url(), options()).await);
    // Both listen once Redis has two subscribers.
    let listening = || redis.cli(&["pubsub", "numsub", "diana:returned"]).is_ok_and(|reply| reply.contains('2'));
    until(Duration::from_secs(10), "both are subscribed", listening).await;
    let limit = bucket("hourly", "1/h");
    let asks = [Ask::one(&limit, "x")];
    for operation in ["refund", "reset"] {
        let first = store_a.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
        assert!(first.is_granted(), "{operation}");
        assert!(!ask(&store_b, &limit, "x").await.is_granted());
        let asked = SystemClock.now();
        match operation {
            "refund" => store_a.refund(&asks, &first, SystemClock.now()).await.unwrap(),
            _ => store_a.reset(&limit, b"x", SystemClock.now()).await.unwrap(),
        }
        while !ask(&store_b, &limit, "x").await.is_granted() {
            let passed = SystemClock.now().since(asked);
            assert!(passed < Duration::from_millis(900), "not before the cached denial expired");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store_a.reset(&limit, b"x", SystemClock.now()).await.unwrap();
    }
}

/// Regression: other instances continued to deny after a returned lease had freed permits.
#[tokio::test]
async fn released_leases_of_other_instances_invalidate_cached_denials() {
    let redis = RedisServer::start().unwrap();
    let store_b = store(&redis.url(), options()).await;
    let limits = [bucket("bucket", "1/h burst 100"), Limit::new("total", Total::new(100).unwrap())];
    for limit in &limits {
        let store_a = store(&redis.url(), options().leases(Leases::Of(40))).await;
        let listening = || redis.cli(&["pubsub", "numsub", "diana:returned"]).is_ok_and(|reply| reply.contains('2'));
        until(Duration::from_secs(10), "both are subscribed", listening).await;
        use_leases(&store_a, limit, 5).await;
        while ask(&store_b, limit, "x").await.is_granted() {}
        let denied = SystemClock.now();
        assert!(store_a.link().leased > 0);
        store_a.close().await;
        while !ask(&store_b, limit, "x").await.is_granted() {
            let passed = SystemClock.now().since(denied);
            assert!(passed < Duration::from_millis(900), "{}: not before the cached denial expired", limit.name());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let unsubscribed = || redis.cli(&["pubsub", "numsub", "diana:returned"]).is_ok_and(|reply| reply.contains('1'));
        until(Duration::from_secs(10), "one is subscribed", unsubscribed).await;
    }
}

/// Counts the notifications of resets.
#[derive(Default)]
struct ResetCounter(AtomicU64);

impl ResetListener for ResetCounter {
    fn key_reset(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn reset_listeners_are_notified_without_a_deny_cache() {
    let redis = RedisServer::start().unwrap();
    let options = || options().deny_cache(DenyCache::Off);
    let (store_a, store_b) = (store(&redis.url(), options()).await, store(&redis.url(), options()).await);
    let counter = Arc::new(ResetCounter::default());
    let listener: Weak<ResetCounter> = Arc::downgrade(&counter);
    store_a.on_reset(listener);
    // Once when the subscription starts: resets may have been missed before.
    let notified = || counter.0.load(Ordering::Relaxed);
    until(Duration::from_secs(10), "the store is subscribed", || notified() == 1).await;
    let limit = bucket("hourly", "1/h");
    let first = ask(&store_b, &limit, "x").await;
    store_b.refund(&[Ask::one(&limit, "x")], &first, SystemClock.now()).await.unwrap();
    store_b.reset(&limit, b"x", SystemClock.now()).await.unwrap();
    until(Duration::from_secs(10), "the listener is notified", || notified() > 1).await;
    assert_eq!(notified(), 2, "a refund does not notify");
}

#[tokio::test]
async fn concurrent_requests_are_batched_unless_batching_is_off() {
    let redis = RedisServer::start().unwrap();
    let limit = bucket("many", "1000000/s");
    for batching in [Batching::On, Batching::Off] {
        let store = store(&redis.url(), options().batching(batching)).await;
        assert!(ask(&store, &limit, "x").await.is_granted());
        let before = store.link().commands;
        let asks = (0..200).map(|index| {
            let (store, limit) = (store.clone(), limit.clone());
            tokio::spawn(async move { ask(&store, &limit, &format!("key {index}")).await.is_granted() })
        });
        for asked in asks.collect::<Vec<_>>() {
            assert!(asked.await.unwrap());
        }
        let (sent, saved) = (store.link().commands - before, store.link().saved_by_batching);
        if batching == Batching::On {
            // A script that Redis has not cached yet is sent twice.
            assert!(sent < 50 && sent + saved >= 200, "{sent} commands, {saved} saved");
        } else {
            assert_eq!((sent, saved), (200, 0));
        }
    }
}

/// Repeats requests until `asks` were granted from leases.
async fn use_leases(store: &RedisStore, limit: &Limit, asks: u64) -> u64 {
    let mut granted = 0;
    while store.link().saved_by_leases < asks {
        granted += u64::from(ask(store, limit, "x").await.is_granted());
        assert!(granted < 100_000, "no leases: {:?}", store.link());
    }
    granted
}

#[tokio::test]
async fn windows_and_totals_never_lease_over_the_limit() {
    let redis = RedisServer::start().unwrap();
    let limits = [
        Limit::new("window", FixedWindow::new("1000/day".parse::<Quota>().unwrap())),
        Limit::new("total", Total::new(1_000).unwrap()),
    ];
    for limit in limits {
        let leasing = store(&redis.url(), options().leases(Leases::Of(100))).await;
        let plain = store(&redis.url(), options()).await;
        let used = use_leases(&leasing, &limit, 150).await;
        assert!(leasing.link().commands < used / 2, "{:?}", leasing.link());
        // Leased permits are returned, and the total does not exceed the limit.
        leasing.close().await;
        let rest = granted(&plain, &limit, "x", 1_100).await as u64;
        assert_eq!(used + rest, 1_000, "{}", limit.name());
    }
}

#[tokio::test]
async fn permits_of_a_lease_can_be_refunded() {
    let redis = RedisServer::start().unwrap();
    let leasing = store(&redis.url(), options().leases(Leases::Of(100))).await;
    let limit = Limit::new("total", Total::new(1_000).unwrap());
    let used = use_leases(&leasing, &limit, 10).await;
    let asks = [Ask::one(&limit, "x")];
    let held = leasing.link().leased;
    let decision = leasing.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
    assert_eq!(leasing.link().leased, held - 1);
    leasing.refund(&asks, &decision, SystemClock.now()).await.unwrap();
    assert_eq!(leasing.link().leased, held);
    leasing.close().await;
    let plain = store(&redis.url(), options()).await;
    assert_eq!(used + granted(&plain, &limit, "x", 1_100).await as u64, 1_000);
}

#[tokio::test]
async fn an_idle_key_releases_its_leases() {
    let redis = RedisServer::start().unwrap();
    let leasing = store(&redis.url(), options().leases(Leases::Of(40))).await;
    let plain = store(&redis.url(), options().deny_cache(DenyCache::Off)).await;
    let limit = bucket("idle", "1/h burst 100");
    let used = use_leases(&leasing, &limit, 5).await;
    assert!(leasing.link().leased > 0);
    // Unspent permits are available to others again; all of them would be lost if the lease had only expired.
    let (mut rest, began) = (0, SystemClock.now());
    while used + rest < 100 {
        rest += u64::from(ask(&plain, &limit, "x").await.is_granted());
        let passed = SystemClock.now().since(began);
        assert!(passed < Duration::from_secs(5), "{used} used, {rest} remaining of 100: {:?}", leasing.link());
    }
    assert_eq!(leasing.link().leased, 0);
    assert!(!ask(&plain, &limit, "x").await.is_granted());
}
