//! Helpers for the tests of the shared store.

use diana_core::{Ask, Clock, Cost, Decision, Limit, MaxWait, Quota, Store, SystemClock, TokenBucket};
use diana_redis::{Health, Options, RedisStore};
use diana_testing::{Proxy, RedisServer};
use std::time::Duration;

/// Returns a token bucket with this name and quota.
pub(crate) fn bucket(name: &str, quota: &str) -> Limit {
    Limit::new(name, TokenBucket::new(quota.parse::<Quota>().unwrap()))
}

/// Takes one permit of `limit` for `key`, now.
pub(crate) async fn ask(store: &RedisStore, limit: &Limit, key: &str) -> Decision {
    store.decide(&[Ask::one(limit, key)], SystemClock.now(), MaxWait::NONE).await.unwrap()
}

/// Takes `cost` permits of `limit` for `key`, now.
pub(crate) async fn ask_for(store: &RedisStore, limit: &Limit, key: &str, cost: u64) -> Decision {
    let ask = [Ask::new(limit, key, Cost::new(cost).unwrap())];
    store.decide(&ask, SystemClock.now(), MaxWait::NONE).await.unwrap()
}

/// Returns how many of `asks` requests for one permit are granted.
pub(crate) async fn granted(store: &RedisStore, limit: &Limit, key: &str, asks: usize) -> usize {
    let mut granted = 0;
    for _ in 0..asks {
        granted += usize::from(ask(store, limit, key).await.is_granted());
    }
    granted
}

/// Creates a store on the Redis at `url`.
pub(crate) async fn store(url: &str, options: Options) -> RedisStore {
    RedisStore::connect(url, options).await.unwrap()
}

pub(crate) fn is_healthy(store: &RedisStore) -> bool {
    store.link().health == Health::Healthy
}

/// Waits until `holds` returns `true`, at most for `max`. Returns how long that took; panics on a timeout.
pub(crate) async fn until(max: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let began = SystemClock.now();
    loop {
        let passed = SystemClock.now().since(began);
        if holds() {
            return passed;
        }
        assert!(passed < max, "{what}: not within {max:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Longer than a healthy Redis takes, also on a busy machine; short enough for a test to wait for.
pub(crate) const PATIENT: Duration = Duration::from_millis(250);

/// Far longer than Diana takes to detect that Redis is unreachable, or reachable again.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Creates a store, and waits until its link is healthy.
pub(crate) async fn healthy_store(url: &str, options: Options) -> RedisStore {
    let store = store(url, options).await;
    until_healthy(&store).await;
    store
}

/// Waits until the link is healthy. Returns how long that took.
pub(crate) async fn until_healthy(store: &RedisStore) -> Duration {
    until(SOON, "healthy", || is_healthy(store)).await
}

/// Repeats requests until the link is degraded. Returns how long that took.
pub(crate) async fn until_degraded(store: &RedisStore, limit: &Limit) -> Duration {
    let began = SystemClock.now();
    while is_healthy(store) {
        let _ = ask(store, limit, "other").await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(SystemClock.now().since(began) < SOON, "still healthy: {:?}", store.link());
    }
    SystemClock.now().since(began)
}

/// Returns why the link is degraded.
pub(crate) fn reason(store: &RedisStore) -> String {
    match store.link().health {
        Health::Degraded { reason, .. } => reason,
        _ => panic!("healthy"),
    }
}

/// Returns how many of 200 requests for one permit are granted while Redis is unreachable; none of them waits.
pub(crate) async fn granted_without_waiting(store: &RedisStore, limit: &Limit, key: &str) -> usize {
    let before = store.link().waits;
    let granted = granted(store, limit, key, 200).await;
    assert!(!is_healthy(store), "Redis was reachable too soon for this test");
    assert_eq!(store.link().waits, before, "requests waited for a Redis that was known to be unreachable");
    granted
}

/// Returns the remaining permits of `key`, from Redis.
pub(crate) async fn remaining(store: &RedisStore, limit: &Limit, key: &str) -> u64 {
    let peeked = store.peek(&[Ask::one(limit, key)], SystemClock.now(), MaxWait::NONE).await.unwrap();
    peeked.answers()[0].status().remaining
}

/// Returns a store that is subscribed to invalidations, and whose script Redis has cached: from then on its cache is
/// not cleared by itself. It has the default prefix.
pub(crate) async fn warm(redis: &RedisServer, options: Options) -> RedisStore {
    let store = store(&redis.url(), options).await;
    let (limit, mut queries, mut tries) = (bucket("warm", "1/h"), 0, 0);
    let _ = ask(&store, &limit, "key").await;
    // It clears its cache once when the subscription starts, and then the keys of each message: at the second time it
    // is subscribed.
    while queries < 2 {
        assert!(tries < 1_000, "the store is not subscribed");
        tries += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
        redis.cli(&["PUBLISH", "diana:returned", "gdiana:warm:{key}"]).unwrap();
        let before = store.link().commands;
        assert!(!ask(&store, &limit, "key").await.is_granted());
        queries += store.link().commands - before;
    }
    store
}

/// Prints figures for readers of the output.
pub(crate) fn measured(what: &str, figures: impl std::fmt::Debug) {
    eprintln!("measured: {what}: {figures:?}");
}

/// Starts a cluster of one node, which clients reach through a proxy.
pub(crate) fn one_node_cluster() -> (RedisServer, Proxy) {
    let redis = RedisServer::builder().arg("cluster-enabled", "yes").start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    redis.cli(&["CONFIG", "SET", "cluster-announce-ip", "127.0.0.1"]).unwrap();
    redis.cli(&["CONFIG", "SET", "cluster-announce-port", &proxy.port().to_string()]).unwrap();
    redis.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).unwrap();
    let is_ok = || redis.cli(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:ok").then_some(());
    diana_testing::wait_until("the cluster is whole", SOON, is_ok).unwrap();
    (redis, proxy)
}
