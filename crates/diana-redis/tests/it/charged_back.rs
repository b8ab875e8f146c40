//! What was granted by local counts while Redis was away is charged when it is back: as far as it is still in use, once, and
//! before the key is decided on Redis again.

use crate::support::*;
use diana_core::{Ask, Clock, Concurrency, FixedWindow, Limit, Opens, Patience, Quota, SlidingLog, Store, SystemClock};
use diana_core::{Timestamp, Total};
use diana_redis::{Options, RedisStore, Times, WhenDown};
use diana_testing::{Proxy, RedisServer};
use std::time::Duration;

/// Makes Redis unreachable for the store.
async fn cut(proxy: &Proxy, store: &RedisStore) {
    proxy.refuse().unwrap();
    proxy.drop_connections();
    until_degraded(store, &bucket("unrelated", "1000000/h")).await;
}

async fn mend(proxy: &Proxy, store: &RedisStore) {
    proxy.pass().unwrap();
    until_healthy(store).await;
}

/// One limit of 20 of each kind that counts, of which time gives nothing back here.
fn twenties() -> Vec<Limit> {
    let quota = |text: &str| text.parse::<Quota>().unwrap();
    vec![
        bucket("bucket", "20/week"),
        Limit::new("window", FixedWindow::new(quota("20/week")).opens(Opens::FirstRequest)),
        Limit::new("log", SlidingLog::new(quota("20/week"))),
        Limit::new("total", Total::new(20).unwrap()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_local_counts_granted_is_charged_before_the_key_is_decided_again() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let other = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    until(SOON, "both are counted", || store.link().instances == 2).await;
    // The share of one of two is ten.
    cut(&proxy, &store).await;
    for limit in &twenties() {
        assert_eq!(granted(&store, limit, "asked", 7).await, 7);
        assert_eq!(granted(&store, limit, "idle", 6).await, 6);
    }
    mend(&proxy, &store).await;
    for limit in &twenties() {
        assert_eq!(left(&store, limit, "asked").await, 13, "{}", limit.name());
        assert_eq!(granted(&store, limit, "asked", 30).await, 13, "{}", limit.name());
    }
    // And without that anybody asks here.
    for limit in &twenties() {
        let mut seen = 20;
        for _ in 0..1_000 {
            seen = left(&other, limit, "idle").await;
            if seen == 14 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(seen, 14, "{}", limit.name());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_empty_within_the_window_twice_the_limit_passes_and_no_more() {
    let mut redis = RedisServer::start().unwrap();
    let store = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    let limits = twenties();
    let mut passed = vec![0; limits.len()];
    for (limit, passed) in limits.iter().zip(&mut passed) {
        *passed += granted(&store, limit, "x", 30).await;
    }
    redis.kill().unwrap();
    until_degraded(&store, &bucket("unrelated", "1000000/h")).await;
    // Until it forgets what Redis denied.
    for (limit, passed) in limits.iter().zip(&mut passed) {
        let until = SystemClock.now() + SOON;
        while *passed < 40 && SystemClock.now() < until {
            *passed += granted(&store, limit, "x", 1).await;
        }
        *passed += granted(&store, limit, "x", 30).await;
    }
    tokio::task::block_in_place(|| redis.restart()).unwrap();
    until_healthy(&store).await;
    for (limit, passed) in limits.iter().zip(&mut passed) {
        *passed += granted(&store, limit, "x", 30).await;
    }
    assert_eq!(passed, [40, 40, 40, 40]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_outage_neither_grants_the_share_again_nor_is_it_charged_twice() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    for limit in &twenties() {
        cut(&proxy, &store).await;
        assert_eq!(granted(&store, limit, "x", 6).await, 6);
        mend(&proxy, &store).await;
        assert_eq!(left(&store, limit, "x").await, 14, "{}", limit.name());
        cut(&proxy, &store).await;
        assert_eq!(granted(&store, limit, "x", 4).await, 4);
        mend(&proxy, &store).await;
        assert_eq!(left(&store, limit, "x").await, 10, "{}", limit.name());
        cut(&proxy, &store).await;
        // Ten of its twenty are used up by now.
        assert_eq!(granted(&store, limit, "x", 30).await, 10);
        mend(&proxy, &store).await;
        assert_eq!(left(&store, limit, "x").await, 0, "{}", limit.name());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_back_meanwhile_is_not_charged_and_what_is_in_flight_neither() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let pool = Limit::new("pool", Concurrency::new(20).unwrap());
    let mut limits = twenties();
    limits.push(pool.clone());
    cut(&proxy, &store).await;
    for limit in &limits {
        let mut last = None;
        for _ in 0..5 {
            last = Some(ask(&store, limit, "x").await);
        }
        store.refund(&[Ask::one(limit, "x")], &last.unwrap(), SystemClock.now()).await.unwrap();
        // A key that is reset owes nothing.
        assert_eq!(granted(&store, limit, "reset", 5).await, 5);
        let _ = store.reset(limit, b"reset", SystemClock.now()).await;
    }
    mend(&proxy, &store).await;
    for limit in &limits {
        let expected = if limit.name() == pool.name() { 20 } else { 16 };
        assert_eq!(left(&store, limit, "x").await, expected, "{}", limit.name());
        assert_eq!(left(&store, limit, "reset").await, 20, "{}", limit.name());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_still_in_use_is_charged() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let options = Options::default().timeout(PATIENT).times(Times::OfCaller);
    let store = healthy_store(&proxy.url(), options).await;
    let (limit, window) = (
        bucket("bucket", "10/10s"),
        Limit::new("window", FixedWindow::new("10/10s".parse::<Quota>().unwrap()).opens(Opens::FirstRequest)),
    );
    let at = |secs: u64| Timestamp::from_secs(1_800_000_000 + secs);
    let all = async |limit: &Limit, secs: u64| {
        let mut granted = 0;
        while store.decide(&[Ask::one(limit, "x")], at(secs), Patience::NONE).await.unwrap().is_granted() {
            granted += 1;
        }
        granted
    };
    cut(&proxy, &store).await;
    for limit in [&limit, &window] {
        assert_eq!(all(limit, 0).await, 10);
    }
    assert_eq!(all(&limit, 20).await, 10, "a long outage grants more than the limit");
    mend(&proxy, &store).await;
    // Of the bucket's twenty, six of ten have come back; the window is over.
    assert_eq!(all(&limit, 26).await, 6);
    assert_eq!(all(&window, 26).await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_everything_is_allowed_nothing_is_charged() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT).when_down(WhenDown::Allow)).await;
    let limit = bucket("few", "20/week");
    cut(&proxy, &store).await;
    assert_eq!(granted(&store, &limit, "x", 100).await, 100);
    mend(&proxy, &store).await;
    assert_eq!(left(&store, &limit, "x").await, 20);
}
