//! What the tests of the shared store have in common.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that fails says so by a panic")]

use diana_core::{Ask, Clock, Cost, Decision, Limit, Patience, Quota, Store, SystemClock, TokenBucket};
use diana_redis::{Health, Options, RedisStore};
use std::time::Duration;

/// A token bucket of this quota, under this name.
pub(crate) fn bucket(name: &str, quota: &str) -> Limit {
    Limit::new(name, TokenBucket::new(quota.parse::<Quota>().unwrap()))
}

/// One permit of `limit` for `key`, now.
pub(crate) async fn ask(store: &RedisStore, limit: &Limit, key: &str) -> Decision {
    store.decide(&[Ask::one(limit, key)], SystemClock.now(), Patience::NONE).await.unwrap()
}

/// `cost` permits of `limit` for `key`, now.
pub(crate) async fn ask_for(store: &RedisStore, limit: &Limit, key: &str, cost: u64) -> Decision {
    let ask = [Ask::new(limit, key, Cost::new(cost).unwrap())];
    store.decide(&ask, SystemClock.now(), Patience::NONE).await.unwrap()
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
