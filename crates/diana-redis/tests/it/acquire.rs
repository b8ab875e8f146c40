//! Waiting for permits that many processes share.

use crate::support::store;
use diana_core::{
    Clock, Concurrency, FixedWindow, Limit, MaxWait, Quota, Store, SystemClock, TokenBucket, WindowStart,
};
use diana_redis::{Options, RedisStore, SharedLimiter, SharedLimiters};
use diana_testing::RedisServer;
use std::time::Duration;

fn options() -> Options {
    Options::default().timeout(Duration::from_secs(2))
}

/// One permit at a time, one every 100 ms.
fn one_by_one() -> TokenBucket {
    TokenBucket::new("10/s burst 1".parse::<Quota>().unwrap())
}

async fn two_processes(redis: &RedisServer, limiter: impl Fn(&RedisStore) -> SharedLimiter) -> [SharedLimiter; 2] {
    [limiter(&store(&redis.url(), options()).await), limiter(&store(&redis.url(), options()).await)]
}

#[tokio::test]
async fn concurrent_callers_proceed_one_interval_apart() {
    let redis = RedisServer::start().unwrap();
    let limiters = two_processes(&redis, |store| SharedLimiter::new(store, "five", one_by_one())).await;
    let callers = (0..5).map(|index| {
        let limiter = limiters[index % 2].clone();
        tokio::spawn(async move { limiter.acquire("x", 1).await.unwrap().waited() })
    });
    let mut waits = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        waits.push(caller.await.unwrap());
    }
    waits.sort();
    // 0, 100, 200, 300 and 400 ms: no two of them wait for the same time.
    for (index, wait) in (0..).zip(&waits) {
        let min = Duration::from_millis(100 * index);
        // They don't arrive at exactly the same time, so the later ones wait a little less.
        assert!(*wait + Duration::from_millis(30) >= min, "{waits:?}");
    }
}

#[tokio::test]
async fn a_too_short_timeout_is_denied_at_once_and_takes_nothing() {
    let redis = RedisServer::start().unwrap();
    let [first, second] = two_processes(&redis, |store| SharedLimiter::new(store, "brief", one_by_one())).await;
    assert!(first.check("x", 1).await.is_ok());
    let began = SystemClock.now();
    assert!(second.acquire_timeout("x", 1, Duration::from_millis(20)).await.unwrap_err().retry().is_some());
    assert!(SystemClock.now().since(began) < Duration::from_millis(90));
    let waited = second.acquire_timeout("x", 1, Duration::from_millis(150)).await.unwrap().waited();
    assert!(waited <= Duration::from_millis(150), "{waited:?}");
}

#[tokio::test]
async fn a_cancelled_wait_refunds_its_reservation() {
    let redis = RedisServer::start().unwrap();
    let [first, second] = two_processes(&redis, |store| SharedLimiter::new(store, "quits", one_by_one())).await;
    assert!(first.acquire("x", 1).await.is_ok());
    let waiting = tokio::spawn({
        let first = first.clone();
        async move { first.acquire("x", 1).await }
    });
    // It has reserved once the bucket is in debt.
    let reserved = async || {
        let ask = [diana_core::Ask::one(second.limit(), "x")];
        let store = store(&redis.url(), options()).await;
        let decision = store.peek(&ask, SystemClock.now(), MaxWait::NONE).await.unwrap();
        decision.answers()[0].status().reset
    };
    let mut longest = Duration::ZERO;
    for _ in 0..100 {
        longest = reserved().await;
        if longest > Duration::from_millis(100) {
            break;
        }
    }
    assert!(longest > Duration::from_millis(100), "nothing was reserved: {longest:?}");
    waiting.abort();
    for _ in 0..100 {
        if reserved().await <= Duration::from_millis(100) {
            return;
        }
    }
    panic!("the reservation was not refunded");
}

#[tokio::test]
async fn acquire_waits_for_the_next_window() {
    let redis = RedisServer::start().unwrap();
    let window = || FixedWindow::new("2/200ms".parse::<Quota>().unwrap()).with_window_start(WindowStart::FirstRequest);
    let [first, second] = two_processes(&redis, |store| SharedLimiter::new(store, "window", window())).await;
    assert!(first.acquire("x", 2).await.is_ok());
    let waited = second.acquire("x", 1).await.unwrap().waited();
    assert!(waited > Duration::from_millis(100), "{waited:?}");
    assert!(second.acquire_timeout("x", 2, Duration::from_millis(10)).await.unwrap_err().retry().is_some());
    assert!(second.acquire("x", 3).await.unwrap_err().retry().is_some(), "a cost above the capacity is denied at once");
}

#[tokio::test]
async fn hold_waits_across_processes_and_releases_on_drop() {
    let redis = RedisServer::start().unwrap();
    let pool = || Concurrency::new(1).unwrap();
    let [first, second] = two_processes(&redis, |store| SharedLimiter::new(store, "pool", pool())).await;
    let held = first.hold("x", 1, Duration::ZERO).await.unwrap();
    assert!(second.hold("x", 1, Duration::from_millis(30)).await.is_err());
    let waiting = tokio::spawn(async move { second.hold("x", 1, Duration::from_secs(5)).await.is_ok() });
    tokio::task::yield_now().await;
    drop(held);
    assert!(waiting.await.unwrap());
}

#[tokio::test]
async fn permits_of_a_crashed_holder_expire() {
    let redis = RedisServer::start().unwrap();
    let brief = options().permits_for(Duration::from_millis(300));
    let limiter = SharedLimiter::new(&store(&redis.url(), brief).await, "crash", Concurrency::new(1).unwrap());
    let held = limiter.hold("x", 1, Duration::ZERO).await.unwrap();
    // The permit is held as long as the guard exists.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(limiter.hold("x", 1, Duration::ZERO).await.is_err());
    drop(held);
    // A simulated crash: the permit is neither extended nor released.
    assert!(limiter.acquire_timeout("x", 1, Duration::from_secs(5)).await.is_ok());
    assert!(limiter.check("x", 1).await.unwrap_err().retry().is_some());
    assert!(limiter.hold("x", 1, Duration::from_secs(5)).await.is_ok());
}

#[test]
fn a_thread_can_wait() {
    let redis = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = runtime.block_on(store(&redis.url(), options()));
    let limiter = SharedLimiter::new(&store, "threads", one_by_one());
    assert!(limiter.blocking_acquire("x", 1).is_ok());
    assert!(limiter.blocking_acquire_timeout("x", 1, Duration::ZERO).unwrap_err().retry().is_some());
    assert!(limiter.blocking_acquire("x", 1).unwrap().waited() > Duration::from_millis(50));
    assert!(limiter.blocking_acquire("x", 0).is_err());
}

#[tokio::test]
async fn named_limiters_are_bounded_and_keep_their_counts() {
    let redis = RedisServer::start().unwrap();
    let limiters = SharedLimiters::new(&store(&redis.url(), options()).await).with_max_limiters(2);
    let daily = || TokenBucket::new("1/day".parse::<Quota>().unwrap());
    let spend = async |name: &str| limiters.get(name, daily).check("x", 1).await.is_ok();
    assert!(spend("a").await);
    assert!(spend("b").await);
    assert!(spend("c").await);
    assert_eq!(limiters.len(), 2);
    // `a` was evicted, and is created again with its previous count.
    assert!(!spend("a").await);
    assert_eq!(limiters.len(), 2);
    let limit: Limit = limiters.get("c", daily).limit().clone();
    assert_eq!(limit.id(), limiters.get("c", daily).limit().id());
}

#[tokio::test]
async fn idle_limiters_are_dropped() {
    let redis = RedisServer::start().unwrap();
    let limiters =
        SharedLimiters::new(&store(&redis.url(), options()).await).with_idle_timeout(Duration::from_millis(20));
    let first = limiters.get("a", one_by_one).limit().id();
    tokio::time::sleep(Duration::from_millis(30)).await;
    let _ = limiters.get("b", one_by_one);
    assert_eq!(limiters.len(), 1);
    assert_ne!(limiters.get("a", one_by_one).limit().id(), first);
}
