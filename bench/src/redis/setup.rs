//! Shared by the subjects: the server and its statistics, stores, keys, and requests in flight.

use diana_bench::process_cpu;
use diana_core::{Ask, Clock, Decision, Limit, MaxWait, Quota, Store, SystemClock, TokenBucket};
use diana_redis::{Batching, DenyCache, Leases, Options, RedisStore};
use diana_testing::RedisServer;
use redis::aio::MultiplexedConnection;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The number of keys that requests cycle through.
pub(crate) const KEYS: u64 = 10_000;

/// The server of a run.
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

    /// Returns the CPU time of the process, in nanoseconds. Exact while it sleeps.
    pub(crate) fn cpu(&self) -> u64 {
        process_cpu::nanos(self.redis.pid())
    }

    /// Returns the number of script calls by clients, as Redis counts them.
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

    /// Returns the bytes in use, as Redis counts them.
    pub(crate) fn used_memory(&self) -> u64 {
        self.redis.info("memory", "used_memory").unwrap().parse().unwrap()
    }

    /// Opens a connection without Diana.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.redis.url()).unwrap();
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
    }

    pub(crate) async fn store(&self, options: Options) -> RedisStore {
        RedisStore::connect(&self.redis.url(), options).await.unwrap()
    }
}

/// One script call per request, without any optimisation. Long timeouts, so that Redis is measured and not the fallback
/// on a busy machine.
pub(crate) fn plain() -> Options {
    Options::default()
        .timeout(Duration::from_secs(5))
        .batching(Batching::Off)
        .deny_cache(DenyCache::Off)
        .leases(Leases::Off)
}

/// A client with one thread, so that requests in flight are sent together.
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
pub(crate) fn unreached() -> Quota {
    Quota::per_second(100_000_000).unwrap()
}

/// Returns a key of 16 bytes.
pub(crate) fn key(index: u64) -> String {
    format!("account-{index:08}")
}

/// A cycle of keys.
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

/// Takes one permit of `limit` for `key`, without waiting.
pub(crate) async fn ask(store: &RedisStore, limit: &Limit, key: &str) -> Decision {
    store.decide(&[Ask::one(limit, key)], SystemClock.now(), MaxWait::NONE).await.unwrap()
}
