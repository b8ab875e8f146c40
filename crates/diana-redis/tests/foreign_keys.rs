//! A foreign key at one of Diana's names: its requests are decided without Redis, the log names the key, and other keys
//! are not affected.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

#[allow(dead_code, reason = "it uses a part")]
#[path = "it/support.rs"]
mod support;

use diana_redis::{Options, RedisStore, WhenDown};
use diana_testing::RedisServer;
use parking_lot::Mutex;
use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock};
use support::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// All log output of this process, one line per event.
static LOG: LazyLock<Arc<Mutex<String>>> = LazyLock::new(|| {
    let log = Arc::new(Mutex::new(String::new()));
    // For the whole process: background tasks log on other threads.
    tracing::subscriber::set_global_default(Log(Arc::clone(&log))).unwrap();
    log
});

struct Log(Arc<Mutex<String>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        let _ = writeln!(self.0.lock(), "{}", line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Returns the lines that contain `key`.
fn logged(key: &str) -> Vec<String> {
    LOG.lock().lines().filter(|line| line.contains(key)).map(str::to_owned).collect()
}

async fn start(when_down: WhenDown) -> (RedisServer, RedisStore) {
    LazyLock::force(&LOG);
    let redis = RedisServer::start().unwrap();
    let store = healthy_store(&redis.url(), Options::default().timeout(PATIENT).when_down(when_down)).await;
    (redis, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_is_logged_and_decided_without_redis() {
    let (redis, store) = start(WhenDown::Local).await;
    let limit = bucket("few", "10/h");
    assert_eq!(granted(&store, &limit, "well", 1).await, 1);
    let written = redis.cli(&["GET", "diana:few:{well}"]).unwrap();
    let garbled = format!("{} garbage", written.split(' ').next().unwrap());
    for (key, command) in [
        ("list", vec!["LPUSH", "diana:few:{list}", "a"]),
        ("hash", vec!["HSET", "diana:few:{hash}", "a", "b"]),
        ("set", vec!["SADD", "diana:few:{set}", "a"]),
        ("sorted-set", vec!["ZADD", "diana:few:{sorted-set}", "1", "a"]),
        ("stream", vec!["XADD", "diana:few:{stream}", "*", "a", "b"]),
        ("text", vec!["SET", "diana:few:{text}", "hello"]),
        ("empty", vec!["SET", "diana:few:{empty}", ""]),
        ("number", vec!["SET", "diana:few:{number}", "42"]),
        ("bytes", vec!["SETBIT", "diana:few:{bytes}", "0", "1"]),
        ("garbled", vec!["SET", "diana:few:{garbled}", garbled.as_str()]),
    ] {
        redis.cli(&command).unwrap();
        assert_eq!(granted(&store, &limit, key, 30).await, 10, "{key}");
        assert!(is_healthy(&store), "{key}: {:?}", store.link());
        let lines = logged(&format!("diana:few:{{{key}}}"));
        let line = lines.first().unwrap_or_else(|| panic!("{key}: not in the log: {}", LOG.lock()));
        assert!(line.starts_with("WARN") && line.contains("delete"), "{line}");
        // Once is enough.
        assert!(lines.len() <= 2, "{} lines for `{key}`", lines.len());
        measured(key, line);
    }
    assert_eq!(granted(&store, &limit, "well", 30).await, 9);
    redis.cli(&["DEL", "diana:few:{list}"]).unwrap();
    assert_eq!(granted(&store, &limit, "list", 30).await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_does_not_affect_its_batch() {
    let (redis, store) = start(WhenDown::Deny).await;
    let limit = bucket("plenty", "1000000/h");
    assert!(ask(&store, &limit, "well").await.is_granted());
    let written = redis.cli(&["GET", "diana:plenty:{well}"]).unwrap();
    let garbled = format!("{} garbage", written.split(' ').next().unwrap());
    redis.cli(&["SET", "diana:plenty:{garbled}", &garbled]).unwrap();
    redis.cli(&["LPUSH", "diana:plenty:{list}", "a"]).unwrap();
    for _ in 0..20 {
        let tasks = (0..100).map(|index| {
            let (store, limit) = (store.clone(), limit.clone());
            let key = ["well", "fine", "good", "garbled", "list"][index % 5];
            tokio::spawn(async move { (key, ask(&store, &limit, key).await.is_granted()) })
        });
        for task in tasks.collect::<Vec<_>>() {
            let (key, granted) = task.await.unwrap();
            assert_eq!(granted, key != "garbled" && key != "list", "{key}: {:?}", store.link());
        }
    }
    assert!(store.link().saved_by_batching > 0);
    assert!(is_healthy(&store));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_instances_key_is_logged_and_affects_no_request() {
    LazyLock::force(&LOG);
    let redis = RedisServer::start().unwrap();
    redis.cli(&["SET", "wrong:instances", "hello"]).unwrap();
    let options = Options::default().timeout(PATIENT).prefix("wrong").when_down(WhenDown::Deny);
    let store = healthy_store(&redis.url(), options).await;
    assert_eq!(granted(&store, &bucket("few", "10/h"), "x", 30).await, 10);
    until(SOON, "the key is logged", || !logged("wrong:instances").is_empty()).await;
    measured("instances", logged("wrong:instances"));
    redis.cli(&["DEL", "wrong:instances"]).unwrap();
    let other = healthy_store(&redis.url(), Options::default().timeout(PATIENT).prefix("wrong")).await;
    until(SOON, "the instances are counted", || store.link().instances == 2).await;
    drop(other);
}
