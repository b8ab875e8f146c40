//! Never more than the limit in any span, over all instances, with all options that save round trips.

use crate::support::{ask, ask_for, bucket, store};
use diana_core::{Ask, Clock, Cost, FixedWindow, Limit, MaxWait, Quota, Store, SystemClock, Timestamp};
use diana_redis::{Leases, Options};
use diana_testing::RedisServer;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A grant: at an unknown time between its request and its answer.
#[derive(Clone, Copy)]
struct Grant {
    asked: Timestamp,
    answered: Timestamp,
    cost: u64,
}

/// Returns the maximum by which the certain grants within a span exceed `burst + rate × span`, over all spans.
///
/// For every pair of a beginning and an end: grants that were requested no earlier than the beginning and answered no
/// later than the end happened in between, however long they took.
fn worst_excess(mut grants: Vec<Grant>, burst: f64, rate: f64) -> f64 {
    grants.sort_by_key(|grant| grant.answered);
    let mut begins = grants.iter().map(|grant| grant.asked).collect::<Vec<_>>();
    begins.sort();
    begins.dedup();
    let mut worst = f64::MIN;
    // Every beginning would take long; every third is enough to detect a persistent excess.
    for begin in begins.iter().step_by(3) {
        let mut count = 0.0;
        for grant in grants.iter().filter(|grant| grant.asked >= *begin) {
            count += grant.cost as f64;
            let span = grant.answered.since(*begin).as_secs_f64();
            worst = worst.max(count - burst - rate * span);
        }
    }
    worst
}

/// Returns the maximum number of certain grants within one window of `length` on the clock.
fn fullest_window(grants: &[Grant], length: Duration) -> u64 {
    // This process and Redis read the same clock at different times: a margin at either end is excluded.
    const MARGIN: Duration = Duration::from_millis(2);
    let length = u64::try_from(length.as_nanos()).unwrap();
    let window = |time: Timestamp| time.as_nanos() / length;
    let mut windows = std::collections::HashMap::new();
    for grant in grants {
        let (start, end) = (Timestamp::from_nanos(grant.asked.as_nanos() - 2_000_000), grant.answered + MARGIN);
        if window(start) == window(end) {
            *windows.entry(window(start)).or_insert(0) += grant.cost;
        }
    }
    windows.into_values().max().unwrap_or(0)
}

/// The wall clock, as Redis reads it. [`SystemClock`] is a monotonic clock: within a minute it may run a few
/// milliseconds ahead or behind.
#[allow(clippy::disallowed_methods, reason = "Redis's clock is the wall clock")]
fn wall_clock() -> Timestamp {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_nanos(u64::try_from(since_epoch.as_nanos()).unwrap())
}

/// Eight instances send requests for three seconds. Returns the grants of each key.
async fn hammer(leases: Leases, limit: Limit) -> Vec<(&'static str, Vec<Grant>)> {
    const INSTANCES: usize = 8;
    let keys = MIXED;
    let redis = RedisServer::start().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut stores = Vec::new();
    for _ in 0..INSTANCES {
        stores.push(store(&redis.url(), Options::default().leases(leases).timeout(Duration::from_secs(2))).await);
    }
    let grants: Arc<Mutex<Vec<(usize, Grant)>>> = Arc::default();
    let tasks = stores.iter().flat_map(|store| keys.iter().enumerate().map(move |key| (store.clone(), key)));
    let tasks = tasks.map(|(store, (index, (key, pause)))| {
        let (stop, limit, grants) = (Arc::clone(&stop), limit.clone(), Arc::clone(&grants));
        tokio::spawn(async move {
            let mut costs = [1, 1, 3, 1, 2].into_iter().cycle();
            while !stop.load(Ordering::Relaxed) {
                let (asked, cost) = (wall_clock(), costs.next().unwrap());
                let asks = [Ask::new(&limit, key, Cost::new(cost).unwrap())];
                let decision = store.decide(&asks, asked, MaxWait::NONE).await.unwrap();
                let granted = decision.is_granted();
                if granted {
                    grants.lock().push((index, Grant { asked, answered: wall_clock(), cost }));
                }
                if granted && pause.is_zero() {
                    tokio::task::yield_now().await;
                } else {
                    tokio::time::sleep(pause.max(&Duration::from_micros(200)).to_owned()).await;
                }
            }
        })
    });
    let tasks = tasks.collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_secs(3)).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let grants = grants.lock().clone();
    let mut by_lease = 0;
    for store in &stores {
        let link = store.link();
        assert!(crate::support::is_healthy(store), "{link:?}");
        by_lease += link.saved_by_leases;
    }
    assert_eq!(by_lease > 0, leases != Leases::Off);
    let of_key = |of| grants.iter().filter(move |(index, _)| *index == of).map(|(_, grant)| *grant).collect();
    keys.iter().enumerate().map(|(index, (key, _))| (*key, of_key(index))).collect()
}

/// No span of any key exceeds the bucket, and it is used: at least half of it, with continuous requests.
async fn holds_in_every_span(leases: Leases) {
    for (key, grants) in hammer(leases, bucket("hot", "2000/s burst 300")).await {
        let granted = grants.iter().map(|grant| grant.cost).sum::<u64>();
        let worst = worst_excess(grants, 300.0, 2_000.0);
        assert!(worst <= 0.0, "`{key}`: {worst} too many within a span, of {granted}");
        assert!(key != "hot" || granted > 3_000, "only {granted} granted");
    }
}

/// No window exceeds its limit, and those of a busy key are full.
async fn holds_in_every_window(leases: Leases) {
    let window = FixedWindow::new("500/300ms".parse::<Quota>().unwrap());
    for (key, grants) in hammer(leases, Limit::new("window", window)).await {
        let fullest = fullest_window(&grants, Duration::from_millis(300));
        assert!(fullest <= 500, "`{key}`: {fullest} in a window of 500");
        assert!(key != "hot" || fullest > 250, "only {fullest} of 500");
    }
}

const MIXED: &[(&str, Duration)] =
    &[("hot", Duration::ZERO), ("warm", Duration::from_millis(3)), ("cold", Duration::from_millis(300))];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_instances_with_automatic_leases() {
    holds_in_every_span(Leases::Auto).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_instances_with_leases_of_fifty() {
    holds_in_every_span(Leases::Of(50)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_instances_with_leases_of_windows() {
    holds_in_every_window(Leases::Of(50)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_instances_without_leases() {
    holds_in_every_span(Leases::Off).await;
}

#[tokio::test]
async fn a_lease_held_during_a_refill_grants_at_most_the_burst() {
    let redis = RedisServer::start().unwrap();
    let options = || Options::default().timeout(Duration::from_secs(2));
    let other = store(&redis.url(), options()).await;
    // If the machine stalls, the lease ends before it is checked; then the test is retried.
    for attempt in 0..10 {
        let holder = store(&redis.url(), options().leases(Leases::Of(40))).await;
        // Full again half a second after the lease; the lease lasts twice as long.
        let limit = bucket(&format!("held {attempt}"), "200/s burst 100");
        let began = SystemClock.now();
        while holder.link().leased == 0 {
            let _ = ask(&holder, &limit, "x").await;
            assert!(SystemClock.now().since(began) < Duration::from_secs(5), "no lease: {:?}", holder.link());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let leased = holder.link().leased;
        assert!(leased >= 30, "{leased}");
        tokio::time::sleep(Duration::from_millis(350)).await;
        // All permits that other instances can take at once, and then all leased ones.
        let others = 100 - leased;
        let too_much = ask_for(&other, &limit, "x", others + 2).await.is_granted();
        let just_enough = ask_for(&other, &limit, "x", others - 1).await.is_granted();
        let mut spent = 0;
        while holder.link().leased > 0 && ask(&holder, &limit, "x").await.is_granted() {
            spent += 1;
        }
        if SystemClock.now().since(began) < Duration::from_millis(900) {
            assert_eq!((too_much, just_enough), (false, true), "{leased} are leased");
            assert!(spent >= leased, "{spent} of {leased}");
            return;
        }
    }
    panic!("the machine is too busy for this test");
}
