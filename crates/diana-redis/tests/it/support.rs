//! What the tests of the shared store have in common.

use diana_core::{Ask, Clock, Cost, Decision, Limit, MaxWait, Quota, Store, SystemClock, TokenBucket};
use diana_redis::{Health, Options, RedisStore};
use diana_testing::{Proxy, RedisServer};
use std::time::Duration;

/// A token bucket of this quota, under this name.
pub(crate) fn bucket(name: &str, quota: &str) -> Limit {
    Limit::new(name, TokenBucket::new(quota.parse::<Quota>().unwrap()))
}

/// One permit of `limit` for `key`, now.
pub(crate) async fn ask(store: &RedisStore, limit: &Limit, key: &str) -> Decision {
    store.decide(&[Ask::one(limit, key)], SystemClock.now(), MaxWait::NONE).await.unwrap()
}

/// `cost` permits of `limit` for `key`, now.
pub(crate) async fn ask_for(store: &RedisStore, limit: &Limit, key: &str, cost: u64) -> Decision {
    let ask = [Ask::new(limit, key, Cost::new(cost).unwrap())];
    store.decide(&ask, SystemClock.now(), MaxWait::NONE).await.unwrap()
}

/// How many of `asks` requests for one permit are granted.
pub(crate) async fn granted(store: &RedisStore, limit: &Limit, key: &str, asks: usize) -> usize {
    let mut granted = 0;
    for _ in 0..asks {
        granted += usize::from(ask(store, limit, key).await.is_granted());
    }
    granted
}

/// A store on the Redis at `url`.
pub(crate) async fn store(url: &str, options: Options) -> RedisStore {
    RedisStore::connect(url, options).await.unwrap()
}

pub(crate) fn is_healthy(store: &RedisStore) -> bool {
    store.link().health == Health::Healthy
}

/// Waits until `holds`, for as long as `most`; how long that took. A failure if it does not hold by then.
pub(crate) async fn until(most: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let began = SystemClock.now();
    loop {
        let passed = SystemClock.now().since(began);
        if holds() {
            return passed;
        }
        assert!(passed < most, "{what}: not within {most:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Longer than a healthy Redis takes, also on a busy machine; shorter than a test can wait for.
pub(crate) const PATIENT: Duration = Duration::from_millis(250);

/// Far longer than Diana takes to see that Redis is away, or back.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A store whose link is well.
pub(crate) async fn healthy_store(url: &str, options: Options) -> RedisStore {
    let store = store(url, options).await;
    until_healthy(&store).await;
    store
}

/// Waits until the link is well; how long that took.
pub(crate) async fn until_healthy(store: &RedisStore) -> Duration {
    until(SOON, "healthy", || is_healthy(store)).await
}

/// Asks until the link is not well; how long that took.
pub(crate) async fn until_degraded(store: &RedisStore, limit: &Limit) -> Duration {
    let began = SystemClock.now();
    while is_healthy(store) {
        let _ = ask(store, limit, "somebody else").await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(SystemClock.now().since(began) < SOON, "still healthy: {:?}", store.link());
    }
    SystemClock.now().since(began)
}

/// Why the link is not well.
pub(crate) fn reason(store: &RedisStore) -> String {
    match store.link().health {
        Health::Degraded { reason, .. } => reason,
        _ => panic!("healthy"),
    }
}

/// How many of 200 requests for one permit are granted while Redis is away, and none of them waits.
pub(crate) async fn granted_without_waiting(store: &RedisStore, limit: &Limit, key: &str) -> usize {
    let before = store.link().waits;
    let granted = granted(store, limit, key, 200).await;
    assert!(!is_healthy(store), "Redis came back too soon for this test");
    assert_eq!(store.link().waits, before, "requests waited for a Redis that was known to be away");
    granted
}

/// What is left for `key`, as Redis says.
pub(crate) async fn left(store: &RedisStore, limit: &Limit, key: &str) -> u64 {
    let seen = store.peek(&[Ask::one(limit, key)], SystemClock.now(), MaxWait::NONE).await.unwrap();
    seen.answers()[0].status.remaining
}

/// A store that listens to what others give back, and whose script Redis knows: from here on it forgets nothing by itself. It has
/// the default prefix.
pub(crate) async fn warm(redis: &RedisServer, options: Options) -> RedisStore {
    let store = store(&redis.url(), options).await;
    let (limit, mut heard, mut tries) = (bucket("warm", "1/h"), 0, 0);
    let _ = ask(&store, &limit, "anybody").await;
    // It forgets all once when it begins to listen, and then what it hears of: the second time it has heard.
    while heard < 2 {
        assert!(tries < 1_000, "nobody listens");
        tries += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
        redis.cli(&["PUBLISH", "diana:returned", "gdiana:warm:{anybody}"]).unwrap();
        let before = store.link().commands;
        assert!(!ask(&store, &limit, "anybody").await.is_granted());
        heard += store.link().commands - before;
    }
    store
}

/// Figures for people who read the output.
pub(crate) fn measured(what: &str, figures: impl std::fmt::Debug) {
    eprintln!("measured: {what}: {figures:?}");
}

/// A cluster of one node, which clients reach through a proxy.
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
