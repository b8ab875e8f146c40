//! The core's suite of behaviour, on a real Redis: with the options that everybody has by default, and with Redis asked each time.

use diana_core::conformance::{self, Setup};
use diana_redis::{Batching, DenyCache, Options, RedisStore, Times, WhenDown};
use diana_testing::RedisServer;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Permits are out for longer than the suite waits: that leases end is not part of what all stores do.
const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);

/// What only a test needs: the time is handed in, and what is answered without Redis would prove nothing.
fn of_test(options: Options) -> Options {
    options.times(Times::OfCaller).permits_for(YEARS).when_down(WhenDown::Deny).timeout(Duration::from_secs(5))
}

async fn passes(options: fn(Options) -> Options) {
    let redis = RedisServer::start().unwrap();
    let next = AtomicU64::new(0);
    for seed in 1..=3 {
        let setup = Setup::default().tick(Duration::from_micros(1)).seed(seed);
        let report = conformance::run(&setup, async || {
            let prefix = format!("suite-{}", next.fetch_add(1, Ordering::Relaxed));
            let options = options(of_test(Options::default().prefix(prefix)));
            RedisStore::connect(&redis.url(), options).await.unwrap()
        })
        .await;
        assert!(report.passed(), "seed {seed}: {report}");
    }
}

#[tokio::test]
async fn the_shared_store_passes() {
    passes(|options| options.deny_cache(DenyCache::Off).batching(Batching::Off)).await;
}

#[tokio::test]
async fn the_shared_store_passes_by_default() {
    passes(|options| options).await;
}
