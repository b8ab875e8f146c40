//! A released permit is available to the same process at once, in whatever order the release and the next query reach
//! Redis.

use crate::support::*;
use diana_core::{Ask, Clock, Concurrency, Limit, MaxWait, Store, SystemClock};
use diana_redis::{Options, RedisStore, SharedLimiter};
use diana_testing::{Proxy, RedisServer};
use std::sync::Arc;
use std::time::Duration;

const TIMES: usize = 300;

/// Far longer than any release takes, so that a lost release is not mistaken for an expiry.
fn options() -> Options {
    Options::default().timeout(Duration::from_secs(20)).permits_for(Duration::from_secs(3_600))
}

/// Takes the only permit and starts to release it, repeatedly, without ever waiting for the release.
async fn one_after_the_other(store: &Arc<RedisStore>, between: impl Fn(usize)) {
    let limit = Limit::new("one", Concurrency::new(1).unwrap());
    let asks = [Ask::one(&limit, "x")];
    for index in 0..TIMES {
        let decision = store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
        assert!(decision.is_granted(), "request {index}: {decision:?}");
        between(index);
        drop(store.start_refund(&asks, &decision, SystemClock.now()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_query_of_this_process_gets_the_permit() {
    let redis = RedisServer::start().unwrap();
    let store = Arc::new(store(&redis.url(), options()).await);
    one_after_the_other(&store, |_| ()).await;
}

/// A release whose script Redis has not cached must be sent twice, and so arrives after the query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overtaken_release_is_waited_for() {
    let redis = RedisServer::start().unwrap();
    let store = Arc::new(store(&redis.url(), options()).await);
    let other = Limit::new("other", Concurrency::new(1_000_000).unwrap());
    let runtime = tokio::runtime::Handle::current();
    one_after_the_other(&store, |index| {
        if index % 10 == 0 {
            redis.cli(&["SCRIPT", "FLUSH"]).unwrap();
            // Now Redis has cached the script that takes, and not the one that releases.
            assert!(tokio::task::block_in_place(|| runtime.block_on(ask(&store, &other, "y"))).is_granted());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_counts_release_at_once() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    proxy.refuse().unwrap();
    let store = Arc::new(store(&proxy.url(), options()).await);
    assert!(!is_healthy(&store));
    one_after_the_other(&store, |_| ()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_permit_can_be_held_again_at_once() {
    let redis = RedisServer::start().unwrap();
    let store = store(&redis.url(), options()).await;
    let limiter = SharedLimiter::new(&store, "held", Concurrency::new(1).unwrap());
    for index in 0..TIMES {
        let held = limiter.hold("x", 1, Duration::ZERO).await;
        assert!(held.is_ok(), "request {index}: {held:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_permit_is_denied_while_others_are_released() {
    let redis = RedisServer::start().unwrap();
    let store = Arc::new(store(&redis.url(), options()).await);
    let limit = Limit::new("two", Concurrency::new(2).unwrap());
    let asks = [Ask::one(&limit, "x")];
    let held = ask(&store, &limit, "x").await;
    for _ in 0..TIMES {
        let released = ask(&store, &limit, "x").await;
        assert!(released.is_granted());
        drop(store.start_refund(&asks, &released, SystemClock.now()));
        let next = ask(&store, &limit, "x").await;
        assert!(next.is_granted());
        assert!(!ask(&store, &limit, "x").await.is_granted());
        store.refund(&asks, &next, SystemClock.now()).await.unwrap();
    }
    store.refund(&asks, &held, SystemClock.now()).await.unwrap();
    assert_eq!(remaining(&store, &limit, "x").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_release_is_repeated_when_redis_is_reachable_again() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT).permits_for(SOON * 360)).await;
    let limit = Limit::new("one", Concurrency::new(1).unwrap());
    let asks = [Ask::one(&limit, "x")];
    let held = ask(&store, &limit, "x").await;
    assert!(held.is_granted());
    proxy.refuse().unwrap();
    proxy.drop_connections();
    until_degraded(&store, &bucket("unrelated", "1000000/h")).await;
    assert!(store.refund(&asks, &held, SystemClock.now()).await.is_err());
    proxy.pass().unwrap();
    until_healthy(&store).await;
    until_released(&store, &limit, "x").await;
    assert!(ask(&store, &limit, "x").await.is_granted());
}

/// Regression: a take whose answer was late held its permit until it expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_taken_by_a_timed_out_call_is_released() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let timeout = Duration::from_secs(1);
    let store = healthy_store(&proxy.url(), Options::default().timeout(timeout).permits_for(SOON * 360)).await;
    let other = healthy_store(&redis.url(), Options::default().timeout(timeout)).await;
    let limit = Limit::new("one", Concurrency::new(1).unwrap());
    let asks = [Ask::one(&limit, "x")];
    let first = ask(&store, &limit, "x").await;
    store.refund(&asks, &first, SystemClock.now()).await.unwrap();
    // It reaches Redis before the deadline, and the answer arrives after it.
    proxy.delay(timeout * 3 / 5).unwrap();
    let local = ask(&store, &limit, "x").await;
    assert!(store.is_fallback(&local));
    assert_eq!(remaining(&other, &limit, "x").await, 0, "the permit was not taken on Redis");
    proxy.pass().unwrap();
    until_released(&other, &limit, "x").await;
    store.refund(&asks, &local, SystemClock.now()).await.unwrap();
    assert!(ask(&store, &limit, "x").await.is_granted());
}

/// Regression: so did the permits of a request across slots, of which one part was granted and the other was late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_taken_across_slots_are_released_after_an_outage() {
    let (redis, proxy) = one_node_cluster();
    let url = format!("redis+cluster://127.0.0.1:{}", proxy.port());
    let timeout = Duration::from_secs(2);
    let store = healthy_store(&url, Options::default().timeout(timeout).permits_for(SOON * 360)).await;
    let limit = Limit::new("one", Concurrency::new(1).unwrap());
    let asks = [Ask::one(&limit, "a"), Ask::one(&limit, "b")];
    let first = store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
    assert!(first.is_granted());
    store.refund(&asks, &first, SystemClock.now()).await.unwrap();
    // Both reach Redis before the deadline, and the second answer arrives after it.
    proxy.delay(timeout * 26 / 100).unwrap();
    let local = store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
    assert!(store.is_fallback(&local));
    proxy.refuse().unwrap();
    proxy.drop_connections();
    let held = || redis.cli(&["KEYS", "diana:one:*"]).unwrap().lines().count();
    assert_ne!(held(), 0, "nothing was taken on Redis");
    proxy.pass().unwrap();
    until(SOON, "all permits are released", || held() == 0).await;
}

async fn until_released(store: &RedisStore, limit: &Limit, key: &str) {
    let began = SystemClock.now();
    while remaining(store, limit, key).await == 0 {
        assert!(SystemClock.now().since(began) < SOON, "the permit is still held");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
