//! A flood is denied entirely from the deny cache, without a round trip.

use crate::support::{ask, bucket, granted};
use diana_core::{Ask, Clock, MaxWait, Store, SystemClock};
use diana_redis::{Options, RedisStore};
use diana_testing::RedisServer;
use std::time::Duration;

async fn warm(redis: &RedisServer) -> RedisStore {
    crate::support::warm(redis, Options::default().timeout(Duration::from_secs(5))).await
}

#[tokio::test]
async fn only_what_is_granted_costs_a_command() {
    let redis = RedisServer::start().unwrap();
    let store = warm(&redis).await;
    let before = store.link();
    assert_eq!(granted(&store, &bucket("three", "3/h"), "alice", 200).await, 3);
    let after = store.link();
    assert_eq!(after.commands - before.commands, 3);
    assert_eq!(after.saved_by_deny_cache - before.saved_by_deny_cache, 197);
}

#[tokio::test]
async fn what_is_given_back_can_be_had_again() {
    let redis = RedisServer::start().unwrap();
    let (store, limit) = (warm(&redis).await, bucket("one", "1/h"));
    let now = SystemClock.now();
    let asks = [Ask::one(&limit, "alice")];
    let decision = store.decide(&asks, now, MaxWait::NONE).await.unwrap();
    assert!(decision.is_granted());
    assert!(!ask(&store, &limit, "alice").await.is_granted());
    store.refund(&asks, &decision, now).await.unwrap();
    assert!(ask(&store, &limit, "alice").await.is_granted());
}

#[tokio::test]
async fn a_limit_that_was_not_charged_is_not_used_up() {
    let redis = RedisServer::start().unwrap();
    let store = warm(&redis).await;
    let (free, used_up) = (bucket("free", "1/h"), bucket("used-up", "1/h"));
    assert!(ask(&store, &used_up, "alice").await.is_granted());
    let both = [Ask::one(&free, "alice"), Ask::one(&used_up, "alice")];
    assert!(!store.decide(&both, SystemClock.now(), MaxWait::NONE).await.unwrap().is_granted());
    assert!(ask(&store, &free, "alice").await.is_granted());
}
