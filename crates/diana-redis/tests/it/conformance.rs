//! The core's suite of behaviour, on a real Redis.

use diana_core::conformance::{self, Setup};
use diana_redis::{Options, RedisStore, Refusals, Times, WhenDown};
use diana_testing::RedisServer;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Permits are out for longer than the suite waits: that leases end is not part of what all stores do.
const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);

#[tokio::test]
async fn the_shared_store_passes() {
    let redis = RedisServer::start().unwrap();
    let next = AtomicU64::new(0);
    for seed in 1..=3 {
        let setup = Setup::default().tick(Duration::from_micros(1)).seed(seed);
        let report = conformance::run(&setup, async || {
            let prefix = format!("suite-{}", next.fetch_add(1, Ordering::Relaxed));
            let options = Options::default().prefix(prefix).times(Times::OfCaller).permits_for(YEARS);
            // What is answered without Redis would prove nothing, and a remembered refusal shows where the key stood.
            let options = options.when_down(WhenDown::Deny).refusals(Refusals::AskedAgain);
            RedisStore::connect(&redis.url(), options.timeout(Duration::from_secs(5))).await.unwrap()
        })
        .await;
        assert!(report.passed(), "seed {seed}: {report}");
    }
}
