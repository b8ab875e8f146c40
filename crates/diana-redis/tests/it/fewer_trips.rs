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
async fn a_refusal_is_remembered_for_as_much_and_more() {
    let redis = RedisServer::start().unwrap();
    let store = warm(&redis, options()).await;
    let remembered = store.link().saved_by_deny_cache;
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
            assert_eq!(denied.answers()[0].status.remaining, 2);
        }
    };
    assert_eq!(commands(&store, asked).await, 0);
    assert_eq!(store.link().saved_by_deny_cache - remembered, 3);
    // A lower cost may still be available, and other keys are not affected.
    assert!(ask_for(&store, &limit, "x", 2).await.is_granted());
    assert!(ask_for(&store, &limit, "y", 3).await.is_granted());
    assert!(ask_for(&store, &bucket("other", "5/h"), "x", 3).await.is_granted());
}

#[tokio::test]
async fn a_refusal_is_forgotten_when_it_no_longer_holds() {
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
    assert!(waited < Duration::from_millis(500), "{waited:?} and {asks} asks for what is there after 50 ms");
}

#[tokio::test]
async fn refusals_can_be_asked_again() {
    let redis = RedisServer::start().unwrap();
    let store = store(&redis.url(), options().deny_cache(DenyCache::Off)).await;
    let limit = bucket("hourly", "1/h");
    assert_eq!(commands(&store, granted(&store, &limit, "x", 10)).await, 11, "one of them to load the script");
    assert_eq!(store.link().saved_by_deny_cache, 0);
}

#[tokio::test]
async fn a_refund_a_reset_and_a_change_reach_what_is_remembered() {
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
async fn what_another_instance_gives_back_is_heard_of() {
    let redis = RedisServer::start().unwrap();
    let (here, there) = (store(&redis.url(), options()).await, store(&redis.url(), options()).await);
    // Both listen once Redis has two subscribers.
    let listening = || redis.cli(&["pubsub", "numsub", "diana:returned"]).is_ok_and(|reply| reply.contains('2'));
    until(Duration::from_secs(10), "both listen", listening).await;
    let limit = bucket("hourly", "1/h");
    let asks = [Ask::one(&limit, "x")];
    for gives_back in ["refund", "reset"] {
        let first = here.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
        assert!(first.is_granted(), "{gives_back}");
        assert!(!ask(&there, &limit, "x").await.is_granted());
        let asked = SystemClock.now();
        match gives_back {
            "refund" => here.refund(&asks, &first, SystemClock.now()).await.unwrap(),
            _ => here.reset(&limit, b"x", SystemClock.now()).await.unwrap(),
        }
        while !ask(&there, &limit, "x").await.is_granted() {
            let passed = SystemClock.now().since(asked);
            assert!(passed < Duration::from_millis(900), "not before it would have been forgotten anyway");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        here.reset(&limit, b"x", SystemClock.now()).await.unwrap();
    }
}

/// Regression: other instances continued to deny after a returned lease had freed permits.
#[tokio::test]
async fn a_lease_that_is_given_back_is_heard_of() {
    let redis = RedisServer::start().unwrap();
    let there = store(&redis.url(), options()).await;
    let limits = [bucket("bucket", "1/h burst 100"), Limit::new("total", Total::new(100).unwrap())];
    for limit in &limits {
        let here = store(&redis.url(), options().leases(Leases::Of(40))).await;
        let listening = || redis.cli(&["pubsub", "numsub", "diana:returned"]).is_ok_and(|reply| reply.contains('2'));
        until(Duration::from_secs(10), "both listen", listening).await;
        use_leases(&here, limit, 5).await;
        while ask(&there, limit, "x").await.is_granted() {}
        let denied = SystemClock.now();
        assert!(here.link().leased > 0);
        here.close().await;
        while !ask(&there, limit, "x").await.is_granted() {
            let passed = SystemClock.now().since(denied);
            assert!(passed < Duration::from_millis(900), "{}: not before it is forgotten anyway", limit.name());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let gone = || redis.cli(&["pubsub", "numsub", "diana:returned"]).is_ok_and(|reply| reply.contains('1'));
        until(Duration::from_secs(10), "one listens", gone).await;
    }
}

/// Counts the notifications of resets.
#[derive(Default)]
struct Told(AtomicU64);

impl ResetListener for Told {
    fn key_reset(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn who_wants_to_hear_of_resets_does_also_if_nothing_is_remembered() {
    let redis = RedisServer::start().unwrap();
    let options = || options().deny_cache(DenyCache::Off);
    let (here, there) = (store(&redis.url(), options()).await, store(&redis.url(), options()).await);
    let told = Arc::new(Told::default());
    let listener: Weak<Told> = Arc::downgrade(&told);
    here.on_reset(listener);
    // Once when the subscription starts: resets may have been missed before.
    let heard = || told.0.load(Ordering::Relaxed);
    until(Duration::from_secs(10), "it listens", || heard() == 1).await;
    let limit = bucket("hourly", "1/h");
    let first = ask(&there, &limit, "x").await;
    there.refund(&[Ask::one(&limit, "x")], &first, SystemClock.now()).await.unwrap();
    there.reset(&limit, b"x", SystemClock.now()).await.unwrap();
    until(Duration::from_secs(10), "it hears", || heard() > 1).await;
    assert_eq!(heard(), 2, "a refund is no reset");
}

#[tokio::test]
async fn requests_of_one_moment_travel_together_unless_that_is_off() {
    let redis = RedisServer::start().unwrap();
    let limit = bucket("many", "1000000/s");
    for batching in [Batching::On, Batching::Off] {
        let store = store(&redis.url(), options().batching(batching)).await;
        assert!(ask(&store, &limit, "x").await.is_granted());
        let before = store.link().commands;
        let asks = (0..200).map(|nth| {
            let (store, limit) = (store.clone(), limit.clone());
            tokio::spawn(async move { ask(&store, &limit, &format!("key {nth}")).await.is_granted() })
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
async fn windows_and_totals_lease_what_is_left_and_never_more() {
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
async fn what_a_lease_granted_can_be_given_back() {
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
async fn a_key_that_nobody_asks_for_gives_its_leases_back() {
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
        assert!(passed < Duration::from_secs(5), "{used} used, {rest} left of 100: {:?}", leasing.link());
    }
    assert_eq!(leasing.link().leased, 0);
    assert!(!ask(&plain, &limit, "x").await.is_granted());
}
