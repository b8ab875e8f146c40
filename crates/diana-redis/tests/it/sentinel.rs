//! Under sentinels: when the master fails, requests are answered according to `when_down` until the new one is found.

use crate::support::*;
use diana_core::{Clock, SystemClock};
use diana_redis::{ConnectError, Options, RedisStore};
use diana_testing::{RedisSentinel, RedisServer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_master_is_found_and_the_limit_holds() {
    let mut redis = tokio::task::block_in_place(RedisSentinel::start).unwrap();
    let hosts = redis.sentinels().iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect::<Vec<_>>();
    let url = format!("redis+sentinel://{}/{}", hosts.join(","), redis.master_name());
    let limit = bucket("few", "10/h");
    let store = healthy_store(&url, Options::default().timeout(PATIENT)).await;
    assert_eq!(granted(&store, &limit, "x", 4).await, 4);

    let before = store.link().waits;
    let old = tokio::task::block_in_place(|| redis.kill_master()).unwrap();
    let killed_at = SystemClock.now();
    until_degraded(&store, &limit).await;
    measured("master killed: detected, waits", (SystemClock.now().since(killed_at), store.link().waits - before));
    assert_eq!(granted_without_waiting(&store, &limit, "x").await, 10);
    let new = tokio::task::block_in_place(|| redis.wait_for_failover()).unwrap();
    assert_ne!(old, new);
    let failed_over = SystemClock.now().since(killed_at);
    measured("failover took, healthy after", (failed_over, until_healthy(&store).await));
    // The replica had the four grants, or some of them, and the ten local grants are charged.
    assert_eq!(granted(&store, &limit, "x", 30).await, 0);
    // A key that it did not have is new.
    assert_eq!(granted(&store, &limit, "y", 30).await, 10);
    assert!(is_healthy(&store));
}

#[tokio::test]
async fn an_unknown_master_is_reported() {
    let sentinel_less = RedisServer::start().unwrap();
    let url = format!("redis+sentinel://127.0.0.1:{}/unknown", sentinel_less.port());
    let store = RedisStore::connect(&url, Options::default().timeout(PATIENT)).await;
    match store {
        Ok(store) => measured("no sentinel", reason(&store)),
        Err(error) => assert!(matches!(error, ConnectError::AccessDenied { .. }), "{error}"),
    }
}
