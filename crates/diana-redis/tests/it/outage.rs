//! While Redis is unreachable, requests are answered at once according to `when_down`; when it is reachable again, the
//! limit applies again.

use crate::support::*;
use diana_core::{Clock, Limit, SystemClock};
use diana_redis::{Batching, Options, RedisStore, WhenDown};
use diana_testing::{Proxy, RedisServer};
use std::time::Duration;

/// Long enough that the pauses between two probes reach their maximum.
const LONG_OUTAGE: Duration = Duration::from_millis(1_500);

/// Returns for each of many concurrent requests whether it was granted, and how long it took.
async fn at_once(store: &RedisStore, limit: &Limit, key: &'static str, requests: usize) -> Vec<(bool, Duration)> {
    let tasks = (0..requests).map(|_| {
        let (store, limit) = (store.clone(), limit.clone());
        tokio::spawn(async move {
            let began = SystemClock.now();
            let granted = ask(&store, &limit, key).await.is_granted();
            (granted, SystemClock.now().since(began))
        })
    });
    let mut answered = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        answered.push(task.await.unwrap());
    }
    answered
}

fn longest(answered: &[(bool, Duration)]) -> Duration {
    answered.iter().map(|(_, took)| *took).max().unwrap()
}

/// Redis is killed under load, and restarts empty; of 200 requests during the outage, `granted_during_outage` are
/// granted.
async fn killed(when_down: WhenDown, granted_during_outage: usize) {
    let mut redis = RedisServer::start().unwrap();
    let options = Options::default().timeout(PATIENT).when_down(when_down);
    let store = healthy_store(&redis.url(), options).await;
    let (limit, plenty) = (bucket("few", "10/h"), bucket("plenty", "1000000/h"));
    assert_eq!(granted(&store, &limit, "x", 4).await, 4);

    // Requests are in flight all the time.
    let asking = tokio::spawn({
        let (store, plenty) = (store.clone(), plenty.clone());
        async move {
            let mut slowest = Duration::ZERO;
            while is_healthy(&store) {
                slowest = slowest.max(longest(&at_once(&store, &plenty, "y", 20).await));
            }
            slowest
        }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (before, killed_at) = (store.link().waits, SystemClock.now());
    redis.kill().unwrap();
    let slowest = asking.await.unwrap();
    let detected = SystemClock.now().since(killed_at);
    assert!(slowest < PATIENT * 8, "a request took {slowest:?}");
    measured(
        &format!("killed, {when_down:?}: detected, slowest, waits"),
        (detected, slowest, store.link().waits - before),
    );

    assert_eq!(granted_without_waiting(&store, &limit, "x").await, granted_during_outage);
    tokio::time::sleep(LONG_OUTAGE).await;
    let restarted_at = SystemClock.now();
    tokio::task::block_in_place(|| redis.restart()).unwrap();
    until_healthy(&store).await;
    measured("restarted: healthy after", SystemClock.now().since(restarted_at));
    // Redis is empty, so the whole limit is available except for local grants, which are charged.
    let charged = if when_down == WhenDown::Local { granted_during_outage } else { 0 };
    assert_eq!(granted(&store, &limit, "x", 30).await, 10 - charged);
    assert!(is_healthy(&store));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_local_counts_grant_the_share() {
    killed(WhenDown::Local, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_allow_grants_every_request() {
    killed(WhenDown::Allow, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_deny_denies_every_request() {
    killed(WhenDown::Deny, 0).await;
}

/// Redis is frozen, then thawed: it runs scripts whose requests have timed out, and charges nothing.
async fn frozen(batching: Batching) {
    const TIMEOUT: Duration = Duration::from_millis(100);
    const REQUESTS: usize = 40;
    let redis = RedisServer::start().unwrap();
    let options = Options::default().timeout(TIMEOUT).when_down(WhenDown::Allow).batching(batching);
    let store = healthy_store(&redis.url(), options).await;
    let limit = bucket("many", "1000/h");
    assert!(ask(&store, &limit, "warm").await.is_granted());
    until_healthy(&store).await;
    let scripts_before: u64 = scripts_run(&redis);

    redis.freeze().unwrap();
    let before = store.link().waits;
    let answered = at_once(&store, &limit, "x", REQUESTS).await;
    assert!(answered.iter().all(|(granted, _)| *granted));
    assert!(longest(&answered) < TIMEOUT * 10, "a request took {:?}", longest(&answered));
    let waits = store.link().waits - before;
    assert!((1..=REQUESTS as u64).contains(&waits), "{waits} waits");
    measured(&format!("frozen, batching {batching:?}: slowest of 40, waits"), (longest(&answered), waits));
    assert_eq!(granted_without_waiting(&store, &limit, "x").await, 200);

    tokio::time::sleep(LONG_OUTAGE).await;
    redis.thaw().unwrap();
    measured("thawed: healthy after", until_healthy(&store).await);
    // It did run them...
    until(SOON, "the frozen scripts run", || scripts_run(&redis) > scripts_before).await;
    // ...and this answer is from Redis.
    assert_eq!(remaining(&store, &limit, "x").await, 1_000);
    assert!(is_healthy(&store));
}

fn scripts_run(redis: &RedisServer) -> u64 {
    let stats = redis.info("commandstats", "cmdstat_evalsha").unwrap_or_default();
    let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thawed_a_timed_out_batch_is_not_charged() {
    frozen(Batching::On).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thawed_timed_out_requests_are_not_charged() {
    frozen(Batching::Off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_redis_gets_no_requests_until_it_is_fast() {
    const TIMEOUT: Duration = Duration::from_millis(100);
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(TIMEOUT)).await;
    let limit = bucket("few", "10/h");
    assert_eq!(granted(&store, &limit, "x", 4).await, 4);

    proxy.delay(TIMEOUT * 2).unwrap();
    let before = store.link().waits;
    let detected = until_degraded(&store, &limit).await;
    let began = SystemClock.now();
    let mut granted_locally = 0;
    while SystemClock.now().since(began) < Duration::from_millis(1_500) {
        granted_locally += granted(&store, &limit, "x", 1).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let waits = store.link().waits - before;
    assert!(!is_healthy(&store));
    assert!(waits <= 2, "{waits} waits");
    assert_eq!(granted_locally, 10);
    measured("slow: detected, waits", (detected, waits));

    proxy.pass().unwrap();
    measured("fast again: healthy after", until_healthy(&store).await);
    // Redis has counted its own grants, and local grants are charged.
    assert_eq!(granted(&store, &limit, "x", 30).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_packets_cost_one_timeout() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let limit = bucket("few", "10/h");
    assert_eq!(granted(&store, &limit, "x", 4).await, 4);
    proxy.swallow().unwrap();
    let before = store.link().waits;
    let detected = until_degraded(&store, &limit).await;
    measured("packets dropped: detected, waits", (detected, store.link().waits - before));
    assert!(store.link().waits - before <= 2);
    assert_eq!(granted_without_waiting(&store, &limit, "x").await, 10);
    tokio::time::sleep(LONG_OUTAGE).await;
    proxy.pass().unwrap();
    measured("packets pass again: healthy after", until_healthy(&store).await);
    assert_eq!(granted(&store, &limit, "x", 30).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_are_replaced() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let limit = bucket("plenty", "1000000/h");
    for _ in 0..5 {
        let asking = tokio::spawn({
            let (store, limit) = (store.clone(), limit.clone());
            async move { at_once(&store, &limit, "x", 200).await }
        });
        let (before, dropped_at) = (proxy.connections(), SystemClock.now());
        proxy.drop_connections();
        let answered = asking.await.unwrap();
        assert!(longest(&answered) < PATIENT * 8, "{:?}", longest(&answered));
        // It may be reachable again by now; otherwise this request, or the next heartbeat, finds it broken.
        let _ = ask(&store, &limit, "x").await;
        until(SOON, "a new connection", || proxy.connections() > before).await;
        until_healthy(&store).await;
        measured("connections dropped: healthy after", SystemClock.now().since(dropped_at));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_refuses_connections_is_used_once_it_accepts() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let limit = bucket("few", "10/h");
    proxy.refuse().unwrap();
    let store = store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    assert!(reason(&store).contains("refused"), "{}", reason(&store));
    assert_eq!(granted_without_waiting(&store, &limit, "x").await, 10);
    assert_eq!(store.link().waits, 0);
    proxy.pass().unwrap();
    measured("refused at startup: healthy after", until_healthy(&store).await);
    assert_eq!(granted(&store, &limit, "x", 30).await, 0);
    assert_eq!(granted(&store, &limit, "y", 30).await, 10);

    // And at run time.
    proxy.refuse().unwrap();
    proxy.drop_connections();
    until_degraded(&store, &limit).await;
    assert_eq!(granted_without_waiting(&store, &limit, "x").await, 0, "the share is used up");
    until(SOON, "the reason is reported", || reason(&store).contains("refused")).await;
    tokio::time::sleep(LONG_OUTAGE).await;
    proxy.pass().unwrap();
    measured("refused: healthy after", until_healthy(&store).await);
    assert_eq!(granted(&store, &limit, "x", 30).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn startup_does_not_hang_if_packets_are_dropped() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    proxy.swallow().unwrap();
    let began = SystemClock.now();
    let store = store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let took = SystemClock.now().since(began);
    assert!(took < Duration::from_secs(5), "{took:?}");
    measured("packets dropped at startup: store created after", took);
    assert_eq!(granted_without_waiting(&store, &bucket("few", "10/h"), "x").await, 10);
    proxy.pass().unwrap();
    until_healthy(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_share_is_the_limit_divided_by_the_instances_and_at_least_one() {
    let mut redis = RedisServer::start().unwrap();
    let options = || Options::default().timeout(PATIENT);
    let mut stores = Vec::new();
    for expected in 1..=3 {
        stores.push(healthy_store(&redis.url(), options()).await);
        for store in &stores {
            until(SOON, "all instances are seen", || store.link().instances == expected).await;
        }
    }
    let (limit, small) = (bucket("nine", "9/h"), bucket("two", "2/h"));
    redis.kill().unwrap();
    for store in &stores {
        until_degraded(store, &limit).await;
        assert_eq!(granted_without_waiting(store, &limit, "x").await, 3);
        assert_eq!(granted_without_waiting(store, &small, "x").await, 1);
    }
    // Reachable again, and empty: the first instances must not assume that they are the only ones.
    redis.restart().unwrap();
    for store in &stores {
        until_healthy(store).await;
        assert_eq!(store.link().instances, 3);
    }
    stores.pop();
    for store in &stores {
        until(SOON * 2, "a stopped instance is not counted", || store.link().instances == 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_instance_reconnects_with_one_connection() {
    const INSTANCES: usize = 8;
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let mut stores = Vec::new();
    for _ in 0..INSTANCES {
        stores.push(healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await);
    }
    let limit = bucket("plenty", "1000000/h");
    proxy.refuse().unwrap();
    proxy.drop_connections();
    for store in &stores {
        until_degraded(store, &limit).await;
    }
    let asking = stores.iter().map(|store| {
        let (store, limit) = (store.clone(), limit.clone());
        tokio::spawn(async move {
            // All of them busy all the time.
            while !is_healthy(&store) {
                at_once(&store, &limit, "x", 50).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    });
    let asking = asking.collect::<Vec<_>>();
    let before = proxy.connections();
    proxy.pass().unwrap();
    for task in asking {
        task.await.unwrap();
    }
    let connections = proxy.connections() - before;
    measured("reachable again with eight instances: connections", connections);
    // One for requests, one for invalidations, and some probes that failed.
    assert!(connections <= 3 * INSTANCES as u64, "{connections} connections of {INSTANCES} instances");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_store_closes_its_connections() {
    let redis = RedisServer::start().unwrap();
    let limit = bucket("few", "10/h");
    let connections = || redis.info("clients", "connected_clients").unwrap().parse::<u64>().unwrap();
    let first = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    let second = first.clone();
    at_once(&first, &limit, "x", 50).await;
    // One for requests, one for invalidations; and the connection of this `redis-cli` is counted too.
    until(SOON, "both connections are open", || connections() == 3).await;
    drop(first);
    assert_eq!(connections(), 3);
    drop(second);
    until(SOON, "the connection is closed", || connections() == 1).await;

    // Also a store that is reconnecting.
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    proxy.swallow().unwrap();
    until_degraded(&store, &limit).await;
    drop(store);
    proxy.pass().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = proxy.connections();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(proxy.connections(), before, "the dropped store still reconnects");
    assert_eq!(connections(), 1);
}

#[test]
fn a_runtime_shutdown_does_not_affect_other_requests() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let limit = bucket("few", "10/h");
    let lasting = runtime();
    let options = Options::default().timeout(PATIENT * 4).when_down(WhenDown::Deny).batching(Batching::On);
    let store = lasting.block_on(healthy_store(&proxy.url(), options));
    assert!(lasting.block_on(ask(&store, &limit, "x")).is_granted());
    proxy.delay(PATIENT / 4).unwrap();
    for _ in 0..4 {
        let passing = runtime();
        let (store, limit) = (store.clone(), limit.clone());
        let before = store.link().commands;
        passing.spawn({
            let store = store.clone();
            async move { ask(&store, &limit, "y").await }
        });
        // Then the proxy delays it.
        lasting.block_on(until(SOON, "the request is in flight", || store.link().commands > before));
        passing.shutdown_background();
    }
    proxy.pass().unwrap();
    assert!(lasting.block_on(ask(&store, &limit, "x")).is_granted(), "{:?}", store.link());
    assert!(is_healthy(&store), "{:?}", store.link());
    // Shutting down the store's runtime closes the connection, but no request hangs.
    lasting.shutdown_background();
    let other = runtime();
    for _ in 0..4 {
        assert!(!other.block_on(ask(&store, &limit, "z")).is_granted());
    }
}
