//! `TimeSource::Local`: scripts get the time from this process, whose clock follows Redis's.

use crate::support::{ask, bucket, healthy_store};
use diana_core::{Ask, Clock, Concurrency, Cost, FixedWindow, Limit, MaxWait, Quota, Store, SystemClock};
use diana_redis::{Batching, Options, RedisStore, TimeSource};
use diana_testing::RedisServer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn options(time: TimeSource) -> Options {
    Options::default().timeout(Duration::from_secs(20)).time_source(time)
}

/// A store that knows Redis's time, since a heartbeat has been answered.
async fn local_store(redis: &RedisServer) -> RedisStore {
    healthy_store(&redis.url(), options(TimeSource::Local)).await
}

fn calls_of_time(redis: &RedisServer) -> u64 {
    let stats = redis.info("commandstats", "cmdstat_time").unwrap_or_default();
    let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_not_asked_for_the_time_of_a_request() {
    const REQUESTS: u64 = 1_000;
    let redis = RedisServer::start().unwrap();
    for (time, is_asked) in [(TimeSource::Redis, true), (TimeSource::Local, false)] {
        let store = healthy_store(&redis.url(), options(time).batching(Batching::Off)).await;
        let limit = bucket("many", "100000/s");
        assert!(ask(&store, &limit, "first").await.is_granted());
        let before = calls_of_time(&redis);
        for _ in 0..REQUESTS {
            assert!(ask(&store, &limit, "x").await.is_granted());
        }
        let asked = calls_of_time(&redis) - before;
        // Heartbeats ask for it, each second.
        assert!(if is_asked { asked >= REQUESTS } else { asked < REQUESTS / 10 }, "{time:?}: {asked} calls of TIME");
        assert!(store.link().clock_difference < Duration::from_millis(10), "{:?}", store.link());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_share_a_limit_exactly() {
    let redis = RedisServer::start().unwrap();
    let stores = [local_store(&redis).await, local_store(&redis).await, local_store(&redis).await];
    // With others that ask Redis for the time.
    let other = healthy_store(&redis.url(), options(TimeSource::Redis)).await;
    let window = Limit::new("fifty", FixedWindow::new("50/day".parse::<Quota>().unwrap()));
    let tasks = stores.iter().chain([&other]).map(|store| {
        let (store, window) = (store.clone(), window.clone());
        tokio::spawn(async move {
            let mut granted = 0;
            for _ in 0..40 {
                granted += usize::from(ask(&store, &window, "x").await.is_granted());
            }
            granted
        })
    });
    let mut granted = 0;
    for task in tasks.collect::<Vec<_>>() {
        granted += task.await.unwrap();
    }
    assert_eq!(granted, 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rate_holds_over_processes() {
    const RATE: f64 = 1_000.0;
    let redis = RedisServer::start().unwrap();
    let stores = [local_store(&redis).await, local_store(&redis).await];
    let limit = bucket("rate", "1000/s burst 100");
    let (began, granted) = (SystemClock.now(), Arc::new(AtomicU32::new(0)));
    let tasks = stores.map(|store| {
        let (limit, granted) = (limit.clone(), Arc::clone(&granted));
        tokio::spawn(async move {
            while granted.load(Ordering::SeqCst) < 600 {
                granted.fetch_add(u32::from(ask(&store, &limit, "x").await.is_granted()), Ordering::SeqCst);
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    let most = 100.0 + RATE * (SystemClock.now().since(began).as_secs_f64() + 0.01);
    let granted = granted.load(Ordering::SeqCst);
    assert!(f64::from(granted) <= most, "{granted} of at most {most}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_limits_refunds_and_permits_have_the_same_time() {
    let redis = RedisServer::start().unwrap();
    let store = local_store(&redis).await;
    let (bucket, held) = (bucket("bucket", "2/min"), Limit::new("held", Concurrency::new(1).unwrap()));
    let asks = [Ask::one(&bucket, "x"), Ask::one(&held, "x")];
    let decision = store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap();
    assert!(decision.is_granted());
    assert!(!store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap().is_granted());
    store.refund(&asks, &decision, SystemClock.now()).await.unwrap();
    assert_eq!(ask(&store, &bucket, "x").await.answers()[0].status().remaining, 1);
    let two = [Ask::new(&bucket, "y", Cost::new(2).unwrap())];
    assert!(store.decide(&two, SystemClock.now(), MaxWait::NONE).await.unwrap().is_granted());
    // Keys expire when they equal new ones, as with Redis's time.
    let script = "return redis.call('PTTL', redis.call('KEYS', '*bucket*y*')[1])";
    let reply = redis.cli(&["EVAL", script, "0"]).unwrap();
    let ttl: i64 = reply.trim().parse().unwrap_or_else(|_| panic!("{reply}"));
    assert!((30_000..=60_100).contains(&ttl), "it expires in {ttl} ms");
}
