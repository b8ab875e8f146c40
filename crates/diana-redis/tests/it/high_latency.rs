//! With a high latency to Redis, many concurrent requests are decided by Redis too, and it does not count as down.

#![allow(clippy::disallowed_methods, reason = "the latency is real time")]

use crate::support::*;
use diana_core::Limit;
use diana_redis::{Batching, Options, RedisStore, WhenDown};
use diana_testing::RedisServer;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(100);

/// Creates a connection to `port` with this latency in each direction, whatever the amount of data. Returns its URL.
/// (The proxy of the other tests forwards one chunk after the other, so that more bytes take longer.)
fn delayed_proxy(port: u16, latency: Duration) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            for (from, to) in [(&client, &server), (&server, &client)] {
                to.set_nodelay(true).unwrap();
                forward(from.try_clone().unwrap(), to.try_clone().unwrap(), latency);
            }
        }
    });
    url
}

/// Forwards bytes in one direction until the end of the stream.
fn forward(mut from: TcpStream, mut to: TcpStream, latency: Duration) {
    let (sender, in_flight) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut chunk = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            let _ = sender.send((Instant::now() + latency, chunk[..length].to_vec()));
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in in_flight {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

/// Returns a store with a high latency, whose Redis has cached all scripts: that of one request, and that of many.
async fn far_store(redis: &RedisServer, latency: Duration) -> RedisStore {
    let options = Options::default().when_down(WhenDown::Allow).batching(Batching::On);
    let near = healthy_store(&redis.url(), options.clone().timeout(PATIENT * 4)).await;
    granted_at_once(&near, &bucket("warm", "1000/h"), "x", 100).await;
    healthy_store(&delayed_proxy(redis.port(), latency), options.timeout(TIMEOUT)).await
}

/// Returns how many of this many concurrent requests are granted.
async fn granted_at_once(store: &RedisStore, limit: &Limit, key: &'static str, requests: usize) -> usize {
    let asking = (0..requests).map(|_| {
        let (store, limit) = (store.clone(), limit.clone());
        tokio::spawn(async move { ask(&store, &limit, key).await.is_granted() })
    });
    let mut granted = 0;
    for asked in asking.collect::<Vec<_>>() {
        granted += usize::from(asked.await.unwrap());
    }
    granted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_are_decided_by_redis() {
    let redis = RedisServer::start().unwrap();
    let store = far_store(&redis, Duration::from_millis(20)).await;
    let limit = bucket("few", "10/h");
    for (key, requests) in [("some", 300), ("many", 1_000)] {
        let granted = granted_at_once(&store, &limit, key, requests).await;
        measured("concurrent requests with a high latency", (requests, granted, store.link()));
        assert_eq!(granted, 10, "of {requests}: {:?}", store.link());
        assert!(is_healthy(&store), "{:?}", store.link());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_in_the_batch_queue_does_not_degrade_the_link() {
    let redis = RedisServer::start().unwrap();
    // More than half of the timeout: a request that has waited for as long can't be answered in time.
    let store = far_store(&redis, Duration::from_millis(30)).await;
    let limit = bucket("plenty", "1000000/h");
    for _ in 0..10 {
        let asking = (0..6).map(|index| {
            let (store, limit) = (store.clone(), limit.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(index * 9)).await;
                ask(&store, &limit, "x").await.is_granted()
            })
        });
        for asked in asking.collect::<Vec<_>>() {
            assert!(asked.await.unwrap());
        }
        assert!(is_healthy(&store), "{:?}", store.link());
    }
}
