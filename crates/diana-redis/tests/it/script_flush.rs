//! After SCRIPT FLUSH the scripts are sent again, and no request is affected.

use crate::support::*;
use diana_redis::{Batching, Options, WhenDown};
use diana_testing::RedisServer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn between_two_requests() {
    let redis = RedisServer::start().unwrap();
    let options = Options::default().timeout(PATIENT).when_down(WhenDown::Deny);
    let store = healthy_store(&redis.url(), options).await;
    let limit = bucket("few", "10/h");
    for _ in 0..10 {
        redis.cli(&["SCRIPT", "FLUSH"]).unwrap();
        assert!(ask(&store, &limit, "x").await.is_granted());
    }
    redis.cli(&["SCRIPT", "FLUSH"]).unwrap();
    assert!(!ask(&store, &limit, "x").await.is_granted());
    assert!(is_healthy(&store));
}

async fn under_load(batching: Batching) {
    let redis = RedisServer::start().unwrap();
    let options = Options::default().timeout(PATIENT * 8).when_down(WhenDown::Deny).batching(batching);
    let store = healthy_store(&redis.url(), options).await;
    // Few permits are refilled meanwhile: the remaining ones show how many were charged.
    let limit = bucket("plenty", "1000/day burst 1000000");
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = (0..50).map(|_| {
        let (store, limit, stop) = (store.clone(), limit.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut asked = 0;
            while !stop.load(Ordering::Relaxed) {
                assert!(ask(&store, &limit, "x").await.is_granted(), "{:?}", store.link());
                asked += 1;
            }
            asked
        })
    });
    let tasks = tasks.collect::<Vec<_>>();
    for _ in 0..30 {
        tokio::task::block_in_place(|| redis.cli(&["SCRIPT", "FLUSH"]).unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    let mut asked: u64 = 0;
    for task in tasks {
        asked += task.await.unwrap();
    }
    // Each request was charged once: none was decided locally, and none twice.
    assert_eq!(remaining(&store, &limit, "x").await, 1_000_000 - asked);
    assert!(is_healthy(&store));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_in_batches() {
    under_load(Batching::On).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_one_by_one() {
    under_load(Batching::Off).await;
}
