//! A config server on Redis.

use crate::support::*;
use diana_config::{Apply, Origin, Remote, Sources};
use diana_testing::RedisServer;
use std::sync::Arc;
use std::time::Duration;

const KEY: &str = "diana:rules";

/// A poll interval that never elapses, so that only notifications are seen.
const NEVER: Duration = Duration::from_secs(3600);

fn set(redis: &RedisServer, text: &str) {
    redis.cli(&["SET", KEY, text]).unwrap();
}

#[tokio::test]
async fn a_message_on_the_channel_of_the_key_triggers_a_read() {
    let redis = RedisServer::start().unwrap();
    set(&redis, &rules("one"));
    let (handle, engine) = start(Sources::new().remote(Remote::parse(&redis.url()).unwrap().poll(NEVER))).await;
    let status = handle.status();
    assert_eq!((engine.active(), status.active, status.connected), (rules("one"), Origin::Remote, true));
    assert_eq!(status.name, format!("{}?key=diana:rules", redis.url()));
    for name in ["two", "three"] {
        set(&redis, &rules(name));
        assert_eq!(redis.cli(&["PUBLISH", KEY, ""]).unwrap(), "1");
        until_active(&engine, &rules(name)).await;
    }
    assert_eq!(handle.status().errors, 0, "{}", last_error(&handle));
}

#[tokio::test]
async fn keyspace_events_trigger_a_read() {
    let redis = RedisServer::builder().arg("notify-keyspace-events", "K$g").start().unwrap();
    redis.cli(&["-n", "3", "SET", "mine", &rules("one")]).unwrap();
    let url = format!("{}/3?key=mine", redis.url());
    let (_running, engine) = start(Sources::new().remote(Remote::parse(&url).unwrap().poll(NEVER))).await;
    redis.cli(&["-n", "3", "SET", "mine", &rules("two")]).unwrap();
    until_active(&engine, &rules("two")).await;
}

#[tokio::test]
async fn a_change_without_a_message_is_found_by_polling() {
    let redis = RedisServer::start().unwrap();
    set(&redis, &rules("one"));
    let often = Duration::from_millis(200);
    let (handle, engine) = start(Sources::new().remote(Remote::parse(&redis.url()).unwrap().poll(often))).await;
    set(&redis, &rules("two"));
    until_active(&engine, &rules("two")).await;

    redis.cli(&["DEL", KEY]).unwrap();
    until_error(&handle, "is missing or empty").await;
    redis.cli(&["LPUSH", KEY, "x"]).unwrap();
    until_error(&handle, "is not a string").await;
    redis.cli(&["DEL", KEY]).unwrap();
    redis.cli(&["SETRANGE", KEY, "16777216", "x"]).unwrap();
    until_error(&handle, "more than 16777216 bytes").await;
    set(&redis, "rules: [");
    until_error(&handle, ":1:8").await;
    assert_eq!((engine.active(), handle.status().connected), (rules("two"), true));
    set(&redis, &rules("three"));
    until_active(&engine, &rules("three")).await;
}

#[tokio::test]
async fn reconnects_and_subscribes_again_after_a_restart() {
    let mut redis = RedisServer::start().unwrap();
    set(&redis, &rules("one"));
    let remote = Remote::parse(&redis.url()).unwrap().poll(NEVER).timeout(Duration::from_millis(500));
    let (handle, engine) = start(Sources::new().remote(remote)).await;
    redis.kill().unwrap();
    until("the disconnect", || !handle.status().connected).await;
    assert_eq!(engine.active(), rules("one"));
    redis.restart().unwrap();
    // The restarted server is empty, which changes nothing.
    until_error(&handle, "is missing or empty").await;
    assert_eq!(engine.active(), rules("one"));
    set(&redis, &rules("two"));
    redis.cli(&["PUBLISH", KEY, ""]).unwrap();
    until_active(&engine, &rules("two")).await;
}

#[tokio::test]
async fn a_frozen_redis_is_unreachable_until_it_responds() {
    let redis = RedisServer::start().unwrap();
    set(&redis, &rules("one"));
    let remote = Remote::parse(&redis.url()).unwrap();
    let remote = remote.poll(Duration::from_millis(200)).timeout(Duration::from_millis(500));
    let (handle, engine) = start(Sources::new().remote(remote)).await;
    redis.freeze().unwrap();
    until("the disconnect", || !handle.status().connected).await;
    redis.thaw().unwrap();
    set(&redis, &rules("two"));
    until_active(&engine, &rules("two")).await;
    until("the connection", || handle.status().connected).await;
}

#[tokio::test]
async fn a_password_is_used_and_never_shown() {
    let redis = RedisServer::builder().password("s3cret").start().unwrap();
    set(&redis, &rules("one"));
    let (handle, engine) = start(Sources::new().remote(Remote::parse(&redis.url()).unwrap())).await;
    assert_eq!(engine.active(), rules("one"));
    assert!(!format!("{handle:?} {:?}", handle.status()).contains("s3cret"));

    let wrong = Remote::parse(&format!("redis://:wr0ng@127.0.0.1:{}", redis.port())).unwrap();
    let error = Sources::new().wait(LONG).remote(wrong).start(Recorder::new() as Arc<dyn Apply>).await.unwrap_err();
    assert!(error.to_string().contains("remote: redis://127.0.0.1"), "{error}");
    assert!(!format!("{error} {error:?}").contains("wr0ng"), "{error}");
}
