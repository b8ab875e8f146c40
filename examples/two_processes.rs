//! Two processes that share one limit.
//!
//! ```text
//! cargo run --example two_processes
//! cargo run --example two_processes -- redis://127.0.0.1:6379
//! ```
//!
//! Without a URL it starts its own `redis-server`. Each process sends requests as fast as it can for three seconds, and
//! prints how many were allowed. Together they get the limit: a burst of 50, and 100 per second.

use diana::redis::{Leases, Options, RedisStore, SharedLimiter};
use diana::{AcquireError, Clock, Quota, SystemClock, TokenBucket};
use diana_testing::RedisServer;
use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Duration;

const SECONDS: u64 = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    match &arguments[..] {
        [] => {
            let redis = RedisServer::start()?;
            println!("started a Redis at {}", redis.url());
            run_both(&redis.url())
        }
        [url] => run_both(url),
        [name, url] => run_one(name, url).await,
        _ => Err("expected at most one argument: the URL of a Redis".into()),
    }
}

/// Starts two processes, and adds up their results.
fn run_both(url: &str) -> Result<(), Box<dyn Error>> {
    let start = |name| Command::new(std::env::current_exe()?).args([name, url]).stdout(Stdio::piped()).spawn();
    let mut granted = 0;
    for process in [start("first")?, start("second")?] {
        let output = String::from_utf8(process.wait_with_output()?.stdout)?;
        print!("{output}");
        granted += output.split_whitespace().find_map(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    println!("together: {granted}; the limit is 50 and {SECONDS} × 100");
    Ok(())
}

/// Sends requests as fast as it can.
async fn run_one(name: &str, url: &str) -> Result<(), Box<dyn Error>> {
    let store = RedisStore::connect(url, Options::default().leases(Leases::Auto)).await?;
    let limiter = SharedLimiter::new(&store, "example", TokenBucket::new("100/s burst 50".parse::<Quota>()?));
    let (began, mut granted, mut sent) = (SystemClock.now(), 0_u64, 0_u64);
    while SystemClock.now().since(began) < Duration::from_secs(SECONDS) {
        match limiter.check("everyone", 1).await {
            Ok(_) => granted += 1,
            Err(AcquireError::Denied { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        sent += 1;
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    let link = store.link();
    let (instances, commands) = (link.instances, link.commands);
    println!("{name}: {granted} of {sent} granted, as one of {instances} instances, with {commands} commands to Redis");
    store.close().await;
    Ok(())
}
