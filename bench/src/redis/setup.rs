//! What the subjects share: the server and what is read off it, stores, keys, and requests in flight.

use diana_bench::cpu;
use diana_core::{Ask, Clock, Decision, Limit, MaxWait, Quota, Store, SystemClock, TokenBucket};
use diana_redis::{Batching, DenyCache, Leases, Options, RedisStore};
use diana_testing::RedisServer;
use redis::aio::MultiplexedConnection;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The keys that requests go round.
pub(crate) const KEYS: u64 = 10_000;

/// The one server of a run.
pub(crate) struct Server {
    redis: RedisServer,
    /// Whether redis-cell is loaded.
    pub(crate) has_cell: bool,
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut builder = RedisServer::builder().arg("enable-debug-command", "local");
        let cell = std::env::var("REDIS_CELL").ok();
        if let Some(path) = &cell {
            builder = builder.arg("loadmodule", path);
        }
        Self { redis: builder.start().unwrap(), has_cell: cell.is_some() }
    }

    pub(crate) fn version(&self) -> String {
        format!("Redis {}", self.redis.info("server", "redis_version").unwrap())
    }

    /// The CPU time that the process has used, in nanoseconds. Exact while it sleeps.
    pub(crate) fn cpu(&self) -> u64 {
        cpu::nanos(self.redis.pid())
    }

    /// How many scripts clients have asked for, by Redis's own count.
    pub(crate) fn script_calls(&self) -> u64 {
        let stats = self.redis.cli(&["INFO", "commandstats"]).unwrap();
        let calls = |command: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
            line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse::<u64>().unwrap())
        };
        calls("evalsha") + calls("eval")
    }

    pub(crate) fn cli(&self, args: &[&str]) -> String {
        self.redis.cli(args).unwrap()
    }

    /// Bytes in use, as Redis counts them.
    pub(crate) fn used_memory(&self) -> u64 {
        self.redis.info("memory", "used_memory").unwrap().parse().unwrap()
    }

    /// A connection without Diana.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.redis.url()).unwrap();
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
    }

    pub(crate) async fn store(&self, options: Options) -> RedisStore {
        RedisStore::connect(&self.redis.url(), options).await.unwrap()
    }
}

/// One script call for each request, and nothing that spares any. Patient, so that what is measured is Redis and not what
/// happens without it on a busy machine.
pub(crate) fn plain() -> Options {
    Options::default()
        .timeout(Duration::from_secs(5))
        .batching(Batching::Off)
        .deny_cache(DenyCache::Off)
        .leases(Leases::Off)
}

/// A client with one thread, so that what is in flight goes out together.
pub(crate) fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A client with a thread for each core.
pub(crate) fn all_cores() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// A token bucket.
pub(crate) fn bucket(name: &str, quota: Quota) -> Limit {
    Limit::new(name, TokenBucket::new(quota))
}

/// More than a run can use.
pub(crate) fn roomy() -> Quota {
    Quota::per_second(100_000_000).unwrap()
}

/// A key of 16 bytes.
pub(crate) fn key(index: u64) -> String {
    format!("account-{index:08}")
}

/// Keys one after the other, round and round.
#[derive(Clone)]
pub(crate) struct Ring {
    keys: Arc<[String]>,
    next: Arc<AtomicU64>,
}

impl Ring {
    pub(crate) fn new(keys: impl IntoIterator<Item = String>) -> Self {
        Self { keys: keys.into_iter().collect(), next: Arc::default() }
    }

    pub(crate) fn next(&self) -> &str {
        &self.keys[self.next.fetch_add(1, Ordering::Relaxed) as usize % self.keys.len()]
    }
}

/// One permit of `limit` for `key`, now.
pub(crate) async fn ask(store: &RedisStore, limit: &Limit, key: &str) -> Decision {
    store.decide(&[Ask::one(limit, key)], SystemClock.now(), MaxWait::NONE).await.unwrap()
}
