//! The core's suite of behaviour, on a real Redis.

use diana_core::conformance::{self, Setup};
use diana_redis::{Options, RedisStore, Times};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[tokio::test]
async fn the_shared_store_passes() {
    let url = std::env::var("DIANA_REDIS").unwrap();
    let mut setup = Setup::default().tick(Duration::from_micros(1));
    let only = std::env::var("ONLY").unwrap_or_default();
    for name in conformance::algorithms() {
        if !only.split(',').any(|o| o == name) {
            setup = setup.without(name);
        }
    }
    let next = AtomicU64::new(0);
    let report = conformance::run(&setup, async || {
        let prefix = format!("diana-{}", next.fetch_add(1, Ordering::Relaxed));
        let options = Options::default().prefix(prefix).times(Times::OfCaller).timeout(Duration::from_secs(5)).refusals(diana_redis::Refusals::AskedAgain);
        RedisStore::connect(&url, options).await.unwrap()
    })
    .await;
    assert!(report.passed(), "{report}");
}
