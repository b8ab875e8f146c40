//! A Redis that answers but can't be written to counts as down, and the reason is reported.

use crate::support::*;
use diana_redis::Options;
use diana_testing::RedisServer;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_reported_until_it_is_a_master() {
    let master = RedisServer::start().unwrap();
    let replica = RedisServer::builder().replica_of(&master).start().unwrap();
    replica.wait_until_in_sync().unwrap();
    let limit = bucket("few", "10/h");
    let store = store(&replica.url(), Options::default().timeout(PATIENT)).await;
    assert!(!is_healthy(&store));
    until(SOON, "the reason is reported", || reason(&store).contains("read only replica")).await;
    assert_eq!(granted_without_waiting(&store, &limit, "x").await, 10);
    assert_eq!(store.link().waits, 0);
    replica.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
    measured("a replica made master: healthy after", until_healthy(&store).await);
    assert_eq!(granted(&store, &limit, "x", 30).await, 0, "local grants are charged");
    assert_eq!(granted(&store, &limit, "y", 30).await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_becomes_a_replica_is_down_until_it_is_a_master_again() {
    let other = RedisServer::start().unwrap();
    let redis = RedisServer::start().unwrap();
    let limit = bucket("few", "10/h");
    let store = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    assert_eq!(granted(&store, &limit, "x", 4).await, 4);
    let before = store.link().waits;
    redis.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).unwrap();
    let detected = until_degraded(&store, &limit).await;
    measured("made a replica: detected, waits", (detected, store.link().waits - before));
    assert!(reason(&store).contains("read only replica"), "{}", reason(&store));
    assert_eq!(granted_without_waiting(&store, &limit, "x").await, 10);
    redis.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
    measured("made a master again: healthy after", until_healthy(&store).await);
    assert_eq!(granted(&store, &limit, "x", 30).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_redis_is_down_until_memory_is_free() {
    let redis = RedisServer::start().unwrap();
    let limit = bucket("few", "10/h");
    let store = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    assert_eq!(granted(&store, &limit, "x", 4).await, 4);
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1"]).unwrap();
    let before = store.link().waits;
    let detected = until_degraded(&store, &limit).await;
    measured("out of memory: detected, waits", (detected, store.link().waits - before));
    assert!(reason(&store).contains("OOM"), "{}", reason(&store));
    assert_eq!(granted_without_waiting(&store, &limit, "x").await, 10);
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    measured("memory again: healthy after", until_healthy(&store).await);
    assert_eq!(granted(&store, &limit, "x", 30).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_change_at_run_time_is_reported_without_the_password() {
    let redis = RedisServer::builder().password("first-secret").start().unwrap();
    let limit = bucket("few", "10/h");
    let store = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    assert_eq!(granted(&store, &limit, "x", 4).await, 4);
    redis.cli(&["CONFIG", "SET", "requirepass", "second-secret"]).unwrap();
    // An open connection stays open.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(is_healthy(&store));
    // Closes the store's connection, which can't be reopened with the old password.
    let killed = std::process::Command::new("redis-cli")
        .env("REDISCLI_AUTH", "second-secret")
        .args(["-p", &redis.port().to_string(), "CLIENT", "KILL", "TYPE", "normal"])
        .output();
    assert!(killed.unwrap().status.success());
    let before = store.link().waits;
    let detected = until_degraded(&store, &limit).await;
    measured("password changed: detected, waits", (detected, store.link().waits - before));
    until(SOON, "the reason is reported", || reason(&store).to_lowercase().contains("password")).await;
    assert!(!format!("{:?}", store.link()).contains("secret"));
    assert!(!format!("{store:?}").contains("secret"));
    assert_eq!(granted_without_waiting(&store, &limit, "x").await, 10);
    let changed = std::process::Command::new("redis-cli")
        .env("REDISCLI_AUTH", "second-secret")
        .args(["-p", &redis.port().to_string(), "CONFIG", "SET", "requirepass", "first-secret"])
        .output();
    assert!(changed.unwrap().status.success());
    measured("password changed back: healthy after", until_healthy(&store).await);
    assert_eq!(granted(&store, &limit, "x", 30).await, 0);
}
