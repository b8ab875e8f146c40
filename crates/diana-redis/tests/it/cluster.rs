//! On Redis Cluster: never more than each limit, whatever is moved, killed or requested across slots.

use crate::support::*;
use diana_core::{Ask, Clock, Concurrency, Decision, Limit, MaxWait, Store, SystemClock};
use diana_redis::{DenyCache, Options, RedisStore, WhenDown};
use diana_testing::RedisCluster;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn url(cluster: &RedisCluster) -> String {
    let hosts = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect::<Vec<_>>();
    format!("redis+cluster://{}", hosts.join(","))
}

/// Queries Redis each time, with a long timeout.
fn options(when_down: WhenDown) -> Options {
    Options::default().timeout(PATIENT * 4).deny_cache(DenyCache::Off).when_down(when_down)
}

/// Takes one permit of each limit for its key: all or nothing.
async fn ask_all(store: &RedisStore, all: &[(Limit, &str)]) -> bool {
    let asks = all.iter().map(|(limit, key)| Ask::one(limit, *key)).collect::<Vec<_>>();
    store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap().is_granted()
}

/// Requests that are repeated continuously.
struct Busy {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<(u64, u64)>>,
}

impl Busy {
    /// Takes one permit of each limit for its key, in this many tasks.
    fn with(store: &RedisStore, all: &[(&Limit, &'static str)], tasks: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let all = all.iter().map(|(limit, key)| ((*limit).clone(), *key)).collect::<Vec<_>>();
        let tasks = (0..tasks).map(|_| {
            let (store, stop, all) = (store.clone(), Arc::clone(&stop), all.clone());
            tokio::spawn(async move {
                let (mut granted, mut denied) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let is_granted = ask_all(&store, &all).await;
                    granted += u64::from(is_granted);
                    denied += u64::from(!is_granted);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                (granted, denied)
            })
        });
        let tasks = tasks.collect();
        Self { stop, tasks }
    }

    /// Stops. Returns how many were granted, and how many denied.
    async fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = (0, 0);
        for task in self.tasks {
            let (granted, denied) = task.await.unwrap();
            all = (all.0 + granted, all.1 + denied);
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_within_a_slot_across_slots_and_while_slots_move() {
    let cluster = tokio::task::block_in_place(RedisCluster::start).unwrap();
    all_limits_of_a_key_are_decided_in_one_call(&cluster).await;
    a_denial_across_slots_is_refunded(&cluster).await;
    requests_follow_a_moving_slot(&cluster).await;
    keys_of_a_half_moved_slot_are_decided(&cluster).await;
}

async fn all_limits_of_a_key_are_decided_in_one_call(cluster: &RedisCluster) {
    let store = healthy_store(&url(cluster), options(WhenDown::Deny)).await;
    let (few, more) = (bucket("few", "5/h"), bucket("more", "10/h"));
    assert_eq!(granted(&store, &few, "x", 8).await, 5);
    let mut both = 0;
    for _ in 0..8 {
        both += u64::from(ask_all(&store, &[(few.clone(), "y"), (more.clone(), "y")]).await);
    }
    assert_eq!(both, 5);
    assert_eq!(remaining(&store, &more, "y").await, 5);
    assert!(is_healthy(&store));
}

async fn a_denial_across_slots_is_refunded(cluster: &RedisCluster) {
    let (few, more) = (bucket("across-few", "60/h"), bucket("across-more", "100/h"));
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(healthy_store(&url(cluster), options(WhenDown::Deny)).await);
    }
    // The one with the larger slot is taken last, so both are denied first and last.
    for (one, other) in [("a", "b"), ("b", "a")] {
        assert_ne!(cluster.slot_of(one).unwrap(), cluster.slot_of(other).unwrap());
        let busy = stores.iter().map(|store| Busy::with(store, &[(&few, one), (&more, other)], 8)).collect::<Vec<_>>();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut granted = 0;
        for busy in busy {
            granted += busy.end().await.0;
        }
        assert!(granted <= 60, "{granted} of 60");
        // Refunded permits are available again.
        while ask_all(&stores[0], &[(few.clone(), one), (more.clone(), other)]).await {
            granted += 1;
        }
        let mut seen = (0, 0);
        for _ in 0..200 {
            seen = (remaining(&stores[1], &few, one).await, remaining(&stores[1], &more, other).await);
            if seen == (60 - granted, 100 - granted) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(seen, (60 - granted, 100 - granted), "granted {granted}");
        assert_eq!(granted, 60);
    }
    for store in &stores {
        assert!(is_healthy(store), "{:?}", store.link());
    }
}

async fn requests_follow_a_moving_slot(cluster: &RedisCluster) {
    let store = healthy_store(&url(cluster), options(WhenDown::Deny)).await;
    let limit = bucket("moves", "1000/day burst 100000");
    let busy = Busy::with(&store, &[(&limit, "wanderer")], 8);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        tokio::task::block_in_place(|| cluster.move_slot_of("diana:moves:{wanderer}")).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (granted, denied) = busy.end().await;
    until_healthy(&store).await;
    let charged = 100_000 - remaining(&store, &limit, "wanderer").await;
    measured("slot moved three times: granted, denied by policy, charged", (granted, denied, charged));
    assert!(charged >= granted && charged <= granted + denied, "{granted} granted, {denied} denied, {charged} charged");
    assert!(denied * 50 <= granted, "{granted} granted, {denied} denied");
}

fn pool(name: &str) -> Limit {
    Limit::new(name, Concurrency::new(1).unwrap())
}

async fn keys_of_a_half_moved_slot_are_decided(cluster: &RedisCluster) {
    let store = healthy_store(&url(cluster), options(WhenDown::Deny)).await;
    let (known, new) = (bucket("known", "10/h"), bucket("new", "10/h"));
    assert_eq!(granted(&store, &known, "traveller", 2).await, 2);
    let (held, held_too) = (pool("held"), pool("held-too"));
    let first = ask(&store, &held, "traveller").await;
    let moving = cluster.begin_move_of("{traveller}").unwrap();
    // A key that has not been migrated yet, and a new one, which is created at the target.
    assert_eq!(granted(&store, &known, "traveller", 2).await, 2);
    assert_eq!(granted(&store, &new, "traveller", 2).await, 2);
    assert!(is_healthy(&store), "{:?}", store.link());
    // Both together are on neither node (TRYAGAIN): decided without Redis, and other requests are not affected.
    let began = SystemClock.now();
    assert!(!ask_all(&store, &[(known.clone(), "traveller"), (new.clone(), "traveller")]).await);
    measured("TRYAGAIN: took", SystemClock.now().since(began));
    assert!(is_healthy(&store), "{:?}", store.link());
    // The permits of both are released, one by one.
    let second = ask(&store, &held_too, "traveller").await;
    let both = Decision::new(first.answers().iter().chain(second.answers()).copied());
    assert!(both.is_granted());
    let asks = [Ask::one(&held, "traveller"), Ask::one(&held_too, "traveller")];
    store.refund(&asks, &both, SystemClock.now()).await.unwrap();
    assert_eq!((remaining(&store, &held, "traveller").await, remaining(&store, &held_too, "traveller").await), (1, 1));
    moving.migrate_keys().unwrap();
    assert_eq!(granted(&store, &known, "traveller", 2).await, 2);
    assert!(ask_all(&store, &[(known.clone(), "traveller"), (new.clone(), "traveller")]).await);
    moving.finish().unwrap();
    assert_eq!(granted(&store, &known, "traveller", 10).await, 3);
    assert_eq!(granted(&store, &new, "traveller", 10).await, 7);
    assert!(is_healthy(&store), "{:?}", store.link());
}

/// Returns two keys that different masters serve.
fn apart(cluster: &RedisCluster) -> (&'static str, &'static str) {
    let port = |key: &str| cluster.node_of(key).unwrap().port();
    let mut keys = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"].into_iter();
    let first = keys.next().unwrap();
    (first, keys.find(|key| port(key) != port(first)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_affects_only_its_own_keys() {
    let mut cluster = tokio::task::block_in_place(RedisCluster::start).unwrap();
    for node in cluster.nodes() {
        // Otherwise the whole cluster stops as soon as a part of it is unreachable.
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).unwrap();
    }
    let (doomed, safe) = apart(&cluster);
    let mut stores = Vec::new();
    for _ in 0..2 {
        stores.push(healthy_store(&url(&cluster), options(WhenDown::Local).timeout(PATIENT)).await);
    }
    let deny = healthy_store(&url(&cluster), options(WhenDown::Deny).timeout(PATIENT)).await;
    for store in &stores {
        until(SOON, "all instances are seen", || store.link().instances == 3).await;
    }
    let (first, second, plenty) = (bucket("first", "600/h"), bucket("second", "300/h"), bucket("plenty", "1000/s"));
    a_briefly_frozen_master(&cluster, &deny, &plenty, (doomed, safe)).await;
    let across = stores.iter().map(|store| Busy::with(store, &[(&first, doomed), (&second, safe)], 2));
    let across = across.collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_millis(20)).await;

    tokio::task::block_in_place(|| cluster.kill_master_of(doomed)).unwrap();
    let (killed_at, before) = (SystemClock.now(), deny.link().waits);
    until_degraded_for(&deny, &plenty, doomed).await;
    measured("master killed: detected, waits", (SystemClock.now().since(killed_at), deny.link().waits - before));
    // Requests for the other master's keys are answered by it.
    let (mut by_redis, mut without) = (0, 0);
    while !is_healthy(&deny) && SystemClock.now().since(killed_at) < SOON {
        if ask(&deny, &plenty, safe).await.is_granted() {
            by_redis += 1;
        } else {
            without += 1;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    measured("master killed: others' requests by Redis, without", (by_redis, without));
    measured("master killed: healthy after", SystemClock.now().since(killed_at));
    tokio::task::block_in_place(|| cluster.wait_until_whole()).unwrap();
    for store in stores.iter().chain([&deny]) {
        until_healthy(store).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut granted_across = 0;
    for busy in across {
        granted_across += busy.end().await.0;
    }
    // From Redis at most the limit; without it each instance's share, a third.
    assert!(granted_across <= 300 + 2 * 100, "{granted_across}");
    assert!(granted_across >= 300, "{granted_across}");
    assert!(by_redis > without * 10, "{by_redis} by Redis, {without} without");
    // Afterwards the limit applies: no permits are left on the surviving one.
    assert_eq!(granted(&deny, &second, safe, 20).await, 0);
    let fresh = bucket("fresh", "10/h");
    assert_eq!(granted(&deny, &fresh, doomed, 30).await, 10);
}

/// For less than the time after which it counts as failed.
async fn a_briefly_frozen_master(
    cluster: &RedisCluster,
    store: &RedisStore,
    limit: &Limit,
    (frozen, other): (&str, &str),
) {
    let node = cluster.node_of(frozen).unwrap();
    assert!(ask(store, limit, other).await.is_granted());
    let before = store.link().waits;
    node.freeze().unwrap();
    let frozen_at = SystemClock.now();
    until_degraded_for(store, limit, frozen).await;
    measured("master frozen: detected, waits", (SystemClock.now().since(frozen_at), store.link().waits - before));
    let (mut by_redis, mut without) = (0, 0);
    while SystemClock.now().since(frozen_at) < Duration::from_millis(700) {
        let is_granted = ask(store, limit, other).await.is_granted();
        by_redis += u32::from(is_granted);
        without += u32::from(!is_granted);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    node.thaw().unwrap();
    measured("master frozen: others' requests by Redis, without", (by_redis, without));
    measured("master thawed: healthy after", until_healthy(store).await);
    assert!(by_redis > without * 10, "{by_redis} by Redis, {without} without");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_node_does_not_affect_the_others() {
    let cluster = tokio::task::block_in_place(RedisCluster::start).unwrap();
    let store = healthy_store(&url(&cluster), options(WhenDown::Deny).timeout(PATIENT)).await;
    let (plenty, few) = (bucket("plenty", "1000/s"), bucket("few", "10/h"));
    let hanging = cluster.node_of("x").unwrap();
    hanging.freeze().unwrap();
    let frozen_at = SystemClock.now();
    until_degraded_for(&store, &plenty, "x").await;
    // Its replica takes over, and the one that hangs stays in the URL.
    until_healthy(&store).await;
    measured("master hangs: healthy after", SystemClock.now().since(frozen_at));
    assert_eq!(granted(&store, &few, "x", 20).await, 10);
    let new = healthy_store(&url(&cluster), options(WhenDown::Deny).timeout(PATIENT)).await;
    assert_eq!(remaining(&new, &few, "x").await, 0);
    assert!(is_healthy(&store) && is_healthy(&new), "{:?}, {:?}", store.link(), new.link());
    hanging.thaw().unwrap();
}

async fn until_degraded_for(store: &RedisStore, limit: &Limit, key: &str) {
    let began = SystemClock.now();
    while is_healthy(store) {
        let _ = ask(store, limit, key).await;
        assert!(SystemClock.now().since(began) < SOON, "still healthy: {:?}", store.link());
    }
}
