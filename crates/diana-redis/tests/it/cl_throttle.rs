//! `CL.THROTTLE` on Redis: the same answers as in process, exactly the limit over several stores, and outages.

use crate::support::*;
use diana_core::{
    Ask, ClThrottle, Clock, Limit, MemoryStore, Query, Store, StoreError, SystemClock, TimeDebt, Timestamp, TokenBucket,
};
use diana_redis::{Options, RedisStore, TimeSource, WhenDown};
use diana_testing::RedisServer;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::time::Duration;
use tokio::runtime::Builder;

fn limit() -> Limit {
    Limit::new("CL.THROTTLE.0", TimeDebt)
}

fn call(max_burst: i64, count: i64, period: i64, quantity: i64) -> ClThrottle {
    ClThrottle::new(max_burst, count, period, quantity).unwrap()
}

/// Ten permits an hour.
fn ten_an_hour() -> ClThrottle {
    call(9, 10, 3_600, 1)
}

/// Returns the answer to a call of a limit.
async fn query(
    store: &RedisStore,
    limit: &Limit,
    key: &[u8],
    call: &ClThrottle,
    now: Timestamp,
) -> Result<diana_core::Answer, StoreError> {
    Ok(store.query(&[Ask::one(limit, key)], now, Query::ClThrottle(call)).await?.answers()[0])
}

async fn cl_throttle(store: &RedisStore, key: &[u8], call: &ClThrottle) -> diana_core::Answer {
    query(store, &limit(), key, call, SystemClock.now()).await.unwrap()
}

/// Returns how many of `calls` are granted.
async fn granted(store: &RedisStore, key: &[u8], calls: usize) -> usize {
    let mut granted = 0;
    for _ in 0..calls {
        granted += usize::from(cl_throttle(store, key, &ten_an_hour()).await.is_granted());
    }
    granted
}

/// The same random calls at the same times, to the nanosecond, get the same answers in process and on Redis.
#[test]
fn redis_and_memory_agree() {
    let redis = RedisServer::start().unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let options = Options::default().time_source(TimeSource::Caller).when_down(WhenDown::Deny);
    let store = runtime.block_on(healthy_store(&redis.url(), options.timeout(SOON)));
    let calls = (
        prop_oneof![0..4_i64, 0..1_000_000_000_i64],
        prop_oneof![1..6_i64, 1..1_000_000_000_i64],
        prop_oneof![1..4_i64, 1..10_000_000_000_i64],
        prop_oneof![-2..4_i64, Just(0), -1_000_000..1_000_000_i64],
    );
    let waits = prop_oneof![Just(0), 0..1_500_000_u64, 0..3_000_000_000_u64, 0..30_000_000_000_000_000_u64];
    let steps = prop::collection::vec((0..3_u8, calls, waits), 1..30);
    let (scenario, decided) = (Cell::new(0_u32), Cell::new(0));
    TestRunner::new(Config::with_cases(200))
        .run(&steps, |steps| {
            let (memory, limit) = (MemoryStore::default(), limit());
            let mut now = Timestamp::from_secs(1_767_225_600);
            scenario.set(scenario.get() + 1);
            for (key, (max_burst, count, period, quantity), wait) in steps {
                now = now + Duration::from_nanos(wait);
                let Ok(call) = ClThrottle::new(max_burst, count, period, quantity) else { continue };
                let key = [&scenario.get().to_be_bytes()[..], &[key]].concat();
                let expected = memory.cl_throttle(&limit, &key, &call, now);
                let found = runtime.block_on(query(&store, &limit, &key, &call, now)).unwrap();
                prop_assert_eq!(found, expected, "{:?} at {:?}", call, now);
                decided.set(decided.get() + 1);
            }
            Ok(())
        })
        .unwrap();
    assert!(is_healthy(&store) && decided.get() > 500, "{decided:?} calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_admit_exactly_the_limit() {
    let redis = RedisServer::start().unwrap();
    let stores = [
        healthy_store(&redis.url(), Options::default().timeout(SOON)).await,
        healthy_store(&redis.url(), Options::default().timeout(SOON)).await,
    ];
    let tasks = (0..40).map(|index| {
        let store = stores[index % 2].clone();
        tokio::spawn(async move { granted(&store, b"\xff\0 any bytes", 5).await })
    });
    let mut all = 0;
    for task in tasks.collect::<Vec<_>>() {
        all += task.await.unwrap();
    }
    assert_eq!(all, 10);
    // Each key space has its own counts, and the key is dropped by Redis when its debt is paid.
    let other = Limit::new("CL.THROTTLE.1", TimeDebt);
    let now = SystemClock.now();
    assert!(query(&stores[0], &other, b"\xff\0 any bytes", &ten_an_hour(), now).await.unwrap().is_granted());
    let keys = redis.cli(&["--no-raw", "KEYS", "diana:CL.THROTTLE*"]).unwrap();
    assert_eq!(keys.lines().count(), 2, "{keys}");
    let name = "diana:CL.THROTTLE.0:{short}";
    assert!(cl_throttle(&stores[0], b"short", &call(0, 100, 1, 1)).await.is_granted());
    let has_expired = || (redis.cli(&["EXISTS", name]).unwrap().trim() == "0").then_some(());
    diana_testing::wait_until("the key has expired", SOON, has_expired).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_of_an_outage_are_charged_afterwards() {
    let mut redis = RedisServer::start().unwrap();
    let store = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    assert_eq!(granted(&store, b"x", 4).await, 4);
    redis.kill().unwrap();
    until_degraded(&store, &bucket("other", "1000000/h")).await;
    // The only instance has the whole limit.
    assert_eq!(granted(&store, b"x", 30).await, 10);
    assert!(!is_healthy(&store));
    tokio::task::block_in_place(|| redis.restart()).unwrap();
    until_healthy(&store).await;
    // Redis is empty, but what was granted meanwhile is charged; a new key has the whole limit.
    assert_eq!(granted(&store, b"x", 5).await, 0);
    assert_eq!(cl_throttle(&store, b"x", &call(9, 10, 3_600, 0)).await.status().remaining, 0);
    assert_eq!(granted(&store, b"y", 30).await, 10);
    assert!(is_healthy(&store));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_answered_as_configured() {
    for (when_down, expected) in [(WhenDown::Deny, [1, 10, 0, 1, 0]), (WhenDown::Allow, [0, 10, 9, -1, 360])] {
        let mut redis = RedisServer::start().unwrap();
        let store = healthy_store(&redis.url(), Options::default().timeout(PATIENT).when_down(when_down)).await;
        redis.kill().unwrap();
        until_degraded(&store, &bucket("other", "1000000/h")).await;
        for _ in 0..20 {
            assert_eq!(cl_throttle(&store, b"x", &ten_an_hour()).await.to_integers(), expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_is_counted_in_process() {
    let redis = RedisServer::start().unwrap();
    let store = healthy_store(&redis.url(), Options::default().timeout(SOON)).await;
    redis.cli(&["SET", "diana:CL.THROTTLE.0:{text}", "x"]).unwrap();
    redis.cli(&["LPUSH", "diana:CL.THROTTLE.0:{list}", "x"]).unwrap();
    assert_eq!(granted(&store, b"text", 30).await, 10);
    assert_eq!(granted(&store, b"list", 30).await, 10);
    assert!(is_healthy(&store));
    let limit = Limit::new("bucket", TokenBucket::new("1/s".parse().unwrap()));
    assert!(query(&store, &limit, b"x", &ten_an_hour(), SystemClock.now()).await.is_err());
}
