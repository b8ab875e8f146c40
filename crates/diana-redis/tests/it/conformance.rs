//! The core's conformance suite, on a real Redis: with the default options, and with Redis queried each time.

use diana_core::conformance::{self, SuiteOptions};
use diana_redis::{Batching, DenyCache, Options, RedisStore, TimeSource, WhenDown};
use diana_testing::RedisServer;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Permits are held for longer than the suite waits: the expiry of leases is not common to all stores.
const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Options for tests only: the caller provides the time, and an answer without Redis would prove nothing.
fn of_test(options: Options) -> Options {
    options.time_source(TimeSource::Caller).permits_for(YEARS).when_down(WhenDown::Deny).timeout(Duration::from_secs(5))
}

async fn passes(options: fn(Options) -> Options) {
    let redis = RedisServer::start().unwrap();
    let next = AtomicU64::new(0);
    for seed in 1..=3 {
        let suite = SuiteOptions::default().tick(Duration::from_micros(1)).seed(seed);
        let report = conformance::run(&suite, async || {
            let prefix = format!("suite-{}", next.fetch_add(1, Ordering::Relaxed));
            let options = options(of_test(Options::default().prefix(prefix)));
            RedisStore::connect(&redis.url(), options).await.unwrap()
        })
        .await;
        assert!(report.passed(), "seed {seed}: {report}");
    }
}

#[tokio::test]
async fn the_shared_store_passes_without_caches() {
    passes(|options| options.deny_cache(DenyCache::Off).batching(Batching::Off)).await;
}

#[tokio::test]
async fn the_shared_store_passes_by_default() {
    passes(|options| options).await;
}
