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
async fn five_that_come_together_go_one_interval_apart() {
    let redis = RedisServer::start().unwrap();
    let limiters = two_processes(&redis, |store| SharedLimiter::new(store, "five", one_by_one())).await;
    let callers = (0..5).map(|nth| {
        let limiter = limiters[nth % 2].clone();
        tokio::spawn(async move { limiter.acquire("x", 1).await.unwrap().waited() })
    });
    let mut waits = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        waits.push(caller.await.unwrap());
    }
    waits.sort();
    // 0, 100, 200, 300 and 400 ms; in the seeds' Java four of them waited for the same time.
    for (nth, wait) in (0..).zip(&waits) {
        let least = Duration::from_millis(100 * nth);
        // They don't arrive at exactly the same time, so the later ones wait a little less.
        assert!(*wait + Duration::from_millis(30) >= least, "{waits:?}");
    }
}

#[tokio::test]
async fn who_has_too_little_patience_is_told_at_once_and_takes_nothing() {
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
async fn who_stops_waiting_gives_the_reservation_back() {
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
        decision.answers()[0].status.reset
    };
    let mut longest = Duration::ZERO;
    for _ in 0..100 {
        longest = reserved().await;
        if longest > Duration::from_millis(100) {
            break;
        }
    }
    assert!(longest > Duration::from_millis(100), "nobody reserved: {longest:?}");
    waiting.abort();
    for _ in 0..100 {
        if reserved().await <= Duration::from_millis(100) {
            return;
        }
    }
    panic!("the reservation was not given back");
}

#[tokio::test]
async fn a_window_is_waited_for() {
    let redis = RedisServer::start().unwrap();
    let window = || FixedWindow::new("2/200ms".parse::<Quota>().unwrap()).with_window_start(WindowStart::FirstRequest);
    let [first, second] = two_processes(&redis, |store| SharedLimiter::new(store, "window", window())).await;
    assert!(first.acquire("x", 2).await.is_ok());
    let waited = second.acquire("x", 1).await.unwrap().waited();
    assert!(waited > Duration::from_millis(100), "{waited:?}");
    assert!(second.acquire_timeout("x", 2, Duration::from_millis(10)).await.unwrap_err().retry().is_some());
    assert!(second.acquire("x", 3).await.unwrap_err().retry().is_some(), "above the capacity, no maximum wait helps");
}

#[tokio::test]
async fn a_place_is_waited_for_across_processes_and_comes_free_when_the_guard_is_dropped() {
    let redis = RedisServer::start().unwrap();
    let places = || Concurrency::new(1).unwrap();
    let [first, second] = two_processes(&redis, |store| SharedLimiter::new(store, "places", places())).await;
    let held = first.hold("x", 1, Duration::ZERO).await.unwrap();
    assert!(second.hold("x", 1, Duration::from_millis(30)).await.is_err());
    let waiting = tokio::spawn(async move { second.hold("x", 1, Duration::from_secs(5)).await.is_ok() });
    tokio::task::yield_now().await;
    drop(held);
    assert!(waiting.await.unwrap());
}

#[tokio::test]
async fn a_crashed_holder_loses_its_place_after_its_time() {
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
fn a_thread_can_wait_too() {
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
async fn limiters_by_name_are_few_and_forget_nothing() {
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
async fn limiters_that_nobody_asks_for_are_dropped() {
    let redis = RedisServer::start().unwrap();
    let limiters =
        SharedLimiters::new(&store(&redis.url(), options()).await).with_idle_timeout(Duration::from_millis(20));
    let first = limiters.get("a", one_by_one).limit().id();
    tokio::time::sleep(Duration::from_millis(30)).await;
    let _ = limiters.get("b", one_by_one);
    assert_eq!(limiters.len(), 1);
    assert_ne!(limiters.get("a", one_by_one).limit().id(), first);
}
