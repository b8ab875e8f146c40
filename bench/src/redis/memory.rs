//! Bytes per key in Redis: the growth of its memory, expiries and hash tables included, and its own `MEMORY USAGE` of
//! one key.

use crate::setup::{Server, key, one_thread, plain};
use diana_bench::Length;
use diana_bench::report::{Goal, Report};
use diana_core::{
    Ask, Clock, Concurrency, FixedWindow, InitialPermits, Limit, MaxWait, Quota, SlidingLog, SlidingWindow,
    SmoothBursty, Store, SystemClock, TokenBucket,
};
use diana_redis::{Batching, RedisStore};

/// Requests in flight, to finish sooner.
const DEPTH: u64 = 64;

pub(crate) fn run(report: &mut Report, server: &Server, length: Length) {
    let keys = if length == Length::Quick { 20_000 } else { 100_000 };
    report.section(&format!("bytes a key in Redis, limit each-account, {keys} keys of 16 bytes"));
    let hundred = || Quota::per_second(100).unwrap();
    let minute = || Quota::per_minute(100).unwrap();
    let smooth = SmoothBursty::new(100.0).unwrap().with_initial_permits(InitialPermits::Full);
    // Otherwise a key of a one-second limit would expire before the last key is added.
    server.cli(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let cases = [
        // The limits, and how often each key is used.
        ("token bucket, 100/s", Limit::new("each-account", TokenBucket::new(hundred())), 90, 1),
        ("fixed window, 100/min", Limit::new("each-account", FixedWindow::new(minute())), 1, 1),
        ("sliding window, 100/min", Limit::new("each-account", SlidingWindow::new(minute())), 1, 1),
        ("sliding log, 100/min, 10 entries", Limit::new("each-account", SlidingLog::new(minute())), 1, 10),
        ("smooth, 100/s", Limit::new("each-account", smooth), 90, 1),
        ("concurrency of 100, 1 held", Limit::new("each-account", Concurrency::new(100).unwrap()), 1, 1),
    ];
    for (index, (name, limit, cost, times)) in cases.iter().enumerate() {
        server.cli(&["FLUSHALL", "SYNC"]);
        let runtime = one_thread();
        let (bytes, counted) = runtime.block_on(async {
            let store = server.store(plain().batching(Batching::On)).await;
            let before = (server.used_memory(), dbsize(server));
            fill(&store, limit, *cost, *times, keys).await;
            let (after, size) = (server.used_memory(), dbsize(server));
            ((after - before.0) as f64 / (size - before.1) as f64, size - before.1)
        });
        let name_on_redis = format!("diana:each-account:{{{}}}", key(keys - 1));
        let one = server.cli(&["MEMORY", "USAGE", &name_on_redis]);
        let remark = format!("MEMORY USAGE {one}; {counted} keys in Redis");
        let goal = if index == 0 { Goal::AtMost(170.0) } else { Goal::Information };
        report.compare(&format!("  {name}"), format!("{bytes:.0} B"), remark, bytes, goal);
        drop(runtime);
    }
}

fn dbsize(server: &Server) -> u64 {
    server.cli(&["DBSIZE"]).parse().unwrap()
}

async fn fill(store: &RedisStore, limit: &Limit, cost: u64, times: u64, keys: u64) {
    let worker = |worker: u64| {
        let (store, limit) = (store.clone(), limit.clone());
        tokio::spawn(async move {
            for index in (worker..keys).step_by(DEPTH as usize) {
                let key = key(index);
                for _ in 0..times {
                    let ask = [Ask::new(&limit, &*key, diana_core::Cost::new(cost).unwrap())];
                    let decision = store.decide(&ask, SystemClock.now(), MaxWait::NONE).await.unwrap();
                    assert!(decision.is_granted(), "{key} must be granted");
                }
            }
        })
    };
    let workers: Vec<_> = (0..DEPTH).map(worker).collect();
    for worker in workers {
        worker.await.unwrap();
    }
}
