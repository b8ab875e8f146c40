//! Local grants during an outage are charged when Redis is reachable again: as far as they are still in use, once, and
//! before the next decision on Redis for the key.

use crate::support::*;
use diana_core::{
    Ask, Clock, Concurrency, Cost, FixedWindow, Limit, MaxWait, Quota, RefillingBucket, SlidingLog, SlidingWindow,
    Store, SystemClock, Timestamp, Total, WindowStart,
};
use diana_redis::{Options, RedisStore, TimeSource, WhenDown};
use diana_testing::{Proxy, RedisCluster, RedisServer};
use std::time::Duration;

/// Makes Redis unreachable for the store.
async fn cut(proxy: &Proxy, store: &RedisStore) {
    proxy.refuse().unwrap();
    proxy.drop_connections();
    until_degraded(store, &bucket("unrelated", "1000000/h")).await;
}

async fn reconnect(proxy: &Proxy, store: &RedisStore) {
    proxy.pass().unwrap();
    until_healthy(store).await;
}

/// One limit of 20 of each counting kind, which time does not refill during the test.
fn twenties() -> Vec<Limit> {
    let quota = |text: &str| text.parse::<Quota>().unwrap();
    vec![
        bucket("bucket", "20/week"),
        Limit::new("window", FixedWindow::new(quota("20/week")).with_window_start(WindowStart::FirstRequest)),
        Limit::new("log", SlidingLog::new(quota("20/week"))),
        Limit::new("total", Total::new(20).unwrap()),
    ]
}

/// The same, and those whose charges can't always be refunded.
fn more_twenties() -> Vec<Limit> {
    let quota = |text: &str| text.parse::<Quota>().unwrap();
    let mut limits = twenties();
    limits.push(Limit::new("sliding", SlidingWindow::new(quota("20/week"))));
    limits.push(Limit::new("refilling", RefillingBucket::new(quota("20/week"))));
    limits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_grants_are_charged_before_the_next_decision() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let other = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    until(SOON, "both are counted", || store.link().instances == 2).await;
    // The share of one of two is ten.
    cut(&proxy, &store).await;
    for limit in &twenties() {
        assert_eq!(granted(&store, limit, "asked", 7).await, 7);
        assert_eq!(granted(&store, limit, "idle", 6).await, 6);
    }
    reconnect(&proxy, &store).await;
    for limit in &twenties() {
        assert_eq!(remaining(&store, limit, "asked").await, 13, "{}", limit.name());
        assert_eq!(granted(&store, limit, "asked", 30).await, 13, "{}", limit.name());
    }
    // And without a request in this process.
    for limit in &twenties() {
        let mut seen = 20;
        for _ in 0..1_000 {
            seen = remaining(&other, limit, "idle").await;
            if seen == 14 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(seen, 14, "{}", limit.name());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_empty_at_most_twice_the_limit_is_granted() {
    let mut redis = RedisServer::start().unwrap();
    let store = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    let limits = twenties();
    let mut passed = vec![0; limits.len()];
    for (limit, passed) in limits.iter().zip(&mut passed) {
        *passed += granted(&store, limit, "x", 30).await;
    }
    redis.kill().unwrap();
    until_degraded(&store, &bucket("unrelated", "1000000/h")).await;
    // Until Redis's denials have expired from the deny cache.
    for (limit, passed) in limits.iter().zip(&mut passed) {
        let until = SystemClock.now() + SOON;
        while *passed < 40 && SystemClock.now() < until {
            *passed += granted(&store, limit, "x", 1).await;
        }
        *passed += granted(&store, limit, "x", 30).await;
    }
    tokio::task::block_in_place(|| redis.restart()).unwrap();
    until_healthy(&store).await;
    for (limit, passed) in limits.iter().zip(&mut passed) {
        *passed += granted(&store, limit, "x", 30).await;
    }
    assert_eq!(passed, [40, 40, 40, 40]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_outage_grants_the_rest_of_the_share_and_charges_once() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    for limit in &twenties() {
        cut(&proxy, &store).await;
        assert_eq!(granted(&store, limit, "x", 6).await, 6);
        reconnect(&proxy, &store).await;
        assert_eq!(remaining(&store, limit, "x").await, 14, "{}", limit.name());
        cut(&proxy, &store).await;
        assert_eq!(granted(&store, limit, "x", 4).await, 4);
        reconnect(&proxy, &store).await;
        assert_eq!(remaining(&store, limit, "x").await, 10, "{}", limit.name());
        cut(&proxy, &store).await;
        // Ten of its twenty are used up by now.
        assert_eq!(granted(&store, limit, "x", 30).await, 10);
        reconnect(&proxy, &store).await;
        assert_eq!(remaining(&store, limit, "x").await, 0, "{}", limit.name());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunded_and_held_permits_are_not_charged() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let pool = Limit::new("pool", Concurrency::new(20).unwrap());
    let mut limits = twenties();
    limits.push(pool.clone());
    cut(&proxy, &store).await;
    for limit in &limits {
        let mut last = None;
        for _ in 0..5 {
            last = Some(ask(&store, limit, "x").await);
        }
        store.refund(&[Ask::one(limit, "x")], &last.unwrap(), SystemClock.now()).await.unwrap();
        // A reset key owes nothing.
        assert_eq!(granted(&store, limit, "reset", 5).await, 5);
        let _ = store.reset(limit, b"reset", SystemClock.now()).await;
    }
    reconnect(&proxy, &store).await;
    for limit in &limits {
        let expected = if limit.name() == pool.name() { 20 } else { 16 };
        assert_eq!(remaining(&store, limit, "x").await, expected, "{}", limit.name());
        assert_eq!(remaining(&store, limit, "reset").await, 20, "{}", limit.name());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_permits_in_use_are_charged() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let options = Options::default().timeout(PATIENT).time_source(TimeSource::Caller);
    let store = healthy_store(&proxy.url(), options).await;
    let (limit, window) = (
        bucket("bucket", "10/10s"),
        Limit::new(
            "window",
            FixedWindow::new("10/10s".parse::<Quota>().unwrap()).with_window_start(WindowStart::FirstRequest),
        ),
    );
    let at = |secs: u64| Timestamp::from_secs(1_800_000_000 + secs);
    let all = async |limit: &Limit, secs: u64| {
        let mut granted = 0;
        while store.decide(&[Ask::one(limit, "x")], at(secs), MaxWait::NONE).await.unwrap().is_granted() {
            granted += 1;
        }
        granted
    };
    cut(&proxy, &store).await;
    for limit in [&limit, &window] {
        assert_eq!(all(limit, 0).await, 10);
    }
    assert_eq!(all(&limit, 20).await, 10, "a long outage grants more than the limit");
    reconnect(&proxy, &store).await;
    // Of the bucket's twenty, six of ten are refilled; the window has ended.
    assert_eq!(all(&limit, 26).await, 6);
    assert_eq!(all(&window, 26).await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allow_charges_nothing() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT).when_down(WhenDown::Allow)).await;
    let limit = bucket("few", "20/week");
    cut(&proxy, &store).await;
    assert_eq!(granted(&store, &limit, "x", 100).await, 100);
    reconnect(&proxy, &store).await;
    assert_eq!(remaining(&store, &limit, "x").await, 20);
}

/// Waits until `other` sees `expected` permits left of each limit for `key`: it does not query the store that owes
/// them.
async fn until_remaining(other: &RedisStore, limits: &[Limit], key: &str, expected: u64) {
    for limit in limits {
        let began = SystemClock.now();
        loop {
            let seen = remaining(other, limit, key).await;
            if seen == expected {
                break;
            }
            assert!(SystemClock.now().since(began) < SOON, "{}: {seen} remaining, not {expected}", limit.name());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Returns the used permits of a fixed window, from the state on Redis.
fn used(redis: &RedisServer, name: &str) -> u64 {
    redis.cli(&["GET", name]).unwrap().split(' ').nth(2).map_or(0, |count| count.parse().unwrap())
}

/// Regression: all slots shared one timeout; when it expired, all of them were charged again, forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slots_of_a_slow_cluster_are_charged_once() {
    let (redis, proxy) = one_node_cluster();
    let url = format!("redis+cluster://127.0.0.1:{}", proxy.port());
    let store = healthy_store(&url, Options::default().timeout(PATIENT)).await;
    let limit = Limit::new(
        "slots",
        FixedWindow::new("100/week".parse::<Quota>().unwrap()).with_window_start(WindowStart::FirstRequest),
    );
    let keys = (0..40).map(|index| format!("k{index}")).collect::<Vec<_>>();
    proxy.refuse().unwrap();
    proxy.drop_connections();
    for key in &keys {
        assert_eq!(granted(&store, &limit, key, 4).await, 4);
    }
    // A call takes about 20 ms, and all of them together three times as long as one call may take.
    proxy.delay(Duration::from_millis(10)).unwrap();
    until_healthy(&store).await;
    let charged = || keys.iter().map(|key| used(&redis, &format!("diana:slots:{{{key}}}"))).collect::<Vec<_>>();
    let began = SystemClock.now();
    while charged().contains(&0) {
        assert!(SystemClock.now().since(began) < SOON, "charged: {:?}", charged());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(charged(), vec![4; keys.len()]);
    // Each is charged before it is decided.
    for key in &keys {
        assert!(ask(&store, &limit, key).await.is_granted());
    }
    assert_eq!(charged(), vec![5; keys.len()]);
}

/// Regression: a foreign key made the charges of all others in the same call count as done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_does_not_prevent_other_charges() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let other = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    until(SOON, "both are counted", || store.link().instances == 2).await;
    let limits = twenties();
    for limit in &limits {
        redis.cli(&["LPUSH", &format!("diana:{}:{{foreign}}", limit.name()), "x"]).unwrap();
    }
    cut(&proxy, &store).await;
    for limit in &limits {
        for key in ["foreign", "a", "b", "c"] {
            assert_eq!(granted(&store, limit, key, 5).await, 5);
        }
    }
    reconnect(&proxy, &store).await;
    for key in ["a", "b", "c"] {
        until_remaining(&other, &limits, key, 15).await;
    }
}

/// Regression: a slot that is being moved (TRYAGAIN) made the charges of all its keys count as done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_moving_slot_are_charged() {
    let cluster = tokio::task::block_in_place(RedisCluster::start).unwrap();
    let url = format!("redis+cluster://127.0.0.1:{}", cluster.nodes()[0].port());
    let options = || Options::default().timeout(PATIENT);
    let store = healthy_store(&url, options()).await;
    let other = healthy_store(&url, options()).await;
    until(SOON, "both are counted", || store.link().instances == 2).await;
    let (known, new) = (bucket("known", "20/week"), bucket("new", "20/week"));
    assert_eq!(granted(&other, &known, "traveller", 2).await, 2);
    let moving = cluster.begin_move_of("{traveller}").unwrap();
    let node = cluster.nodes().iter().find(|node| node.port() == moving.source_port()).unwrap();
    node.freeze().unwrap();
    let asks = [Ask::one(&known, "traveller"), Ask::one(&new, "traveller")];
    for _ in 0..3 {
        assert!(store.decide(&asks, SystemClock.now(), MaxWait::NONE).await.unwrap().is_granted());
    }
    node.thaw().unwrap();
    until_remaining(&other, &[known], "traveller", 15).await;
    until_remaining(&other, &[new], "traveller", 17).await;
}

/// Regression: a gateway without a connection migrated the key back to its own, older limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_charge_does_not_undo_a_change_of_the_limit() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let other = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    until(SOON, "both are counted", || store.link().instances == 2).await;
    let window =
        |quota: &str| FixedWindow::new(quota.parse::<Quota>().unwrap()).with_window_start(WindowStart::FirstRequest);
    let (old, new) = (Limit::new("window", window("10/week")), Limit::new("window", window("100/week")));
    assert_eq!(granted(&other, &old, "x", 1).await, 1);
    let others = (0..20).map(|index| format!("k{index}")).collect::<Vec<_>>();
    cut(&proxy, &store).await;
    assert_eq!(granted(&store, &old, "x", 3).await, 3);
    assert_eq!(granted(&other, &new, "x", 60).await, 60);
    for key in &others {
        assert_eq!(granted(&store, &old, key, 1).await, 1);
        assert_eq!(granted(&other, &new, key, 1).await, 1);
    }
    // So that all of them together exceed one timeout.
    proxy.delay(Duration::from_millis(10)).unwrap();
    until_remaining(&other, std::slice::from_ref(&new), "x", 36).await;
    for key in &others {
        until_remaining(&other, std::slice::from_ref(&new), key, 98).await;
    }
}

/// Regression: permits that a request did not need, or never used, were lost once its local grant had been charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charged_grant_can_be_refunded() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let other = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    until(SOON, "both are counted", || store.link().instances == 2).await;
    let limits = more_twenties();
    cut(&proxy, &store).await;
    let mut decisions = Vec::new();
    for limit in &limits {
        decisions.push((ask_for(&store, limit, "x", 4).await, ask_for(&store, limit, "x", 3).await));
        assert!(decisions.iter().all(|(first, second)| first.is_granted() && second.is_granted()));
    }
    reconnect(&proxy, &store).await;
    until_remaining(&other, &limits, "x", 13).await;
    // A second outage, without refunds.
    cut(&proxy, &store).await;
    for limit in &limits {
        assert!(ask_for(&store, limit, "x", 2).await.is_granted());
    }
    reconnect(&proxy, &store).await;
    until_remaining(&other, &limits, "x", 11).await;
    let refund = async |limit: &Limit, cost, decision| {
        store.refund(&[Ask::new(limit, "x", Cost::new(cost).unwrap())], decision, SystemClock.now()).await.unwrap();
    };
    for (limit, (first, _)) in limits.iter().zip(&decisions) {
        refund(limit, 4, first).await;
    }
    until_remaining(&other, &limits, "x", 15).await;
    for (limit, (_, second)) in limits.iter().zip(&decisions) {
        refund(limit, 3, second).await;
        // No more than was charged, however often it is refunded.
        refund(limit, 3, second).await;
    }
    until_remaining(&other, &limits, "x", 18).await;
}

/// Regression: permits that were refunded while the charge was in flight were charged and never refunded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_during_the_charge_is_not_lost() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(Duration::from_secs(2))).await;
    let other = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    until(SOON, "both are counted", || store.link().instances == 2).await;
    for limit in &more_twenties() {
        cut(&proxy, &store).await;
        let decision = ask_for(&store, limit, "x", 4).await;
        assert_eq!(granted(&store, limit, "x", 1).await, 1);
        proxy.delay(Duration::from_millis(150)).unwrap();
        let before = store.link().commands;
        until(SOON, "the charge is sent", || store.link().commands > before).await;
        let asks = [Ask::new(limit, "x", Cost::new(4).unwrap())];
        store.refund(&asks, &decision, SystemClock.now()).await.unwrap();
        until_remaining(&other, std::slice::from_ref(limit), "x", 19).await;
        // Not because it is not charged yet.
        reconnect(&proxy, &store).await;
        assert_eq!(remaining(&store, limit, "x").await, 19, "{}", limit.name());
    }
}

/// Regression: a gateway that stopped just after an outage never charged its local grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_charges_debts_and_releases_permits() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::to(redis.port()).unwrap();
    let store = healthy_store(&proxy.url(), Options::default().timeout(PATIENT)).await;
    let other = healthy_store(&redis.url(), Options::default().timeout(PATIENT)).await;
    until(SOON, "both are counted", || store.link().instances == 2).await;
    let pool = Limit::new("pool", Concurrency::new(20).unwrap());
    let held = ask(&store, &pool, "x").await;
    cut(&proxy, &store).await;
    for limit in &twenties() {
        assert_eq!(granted(&store, limit, "x", 6).await, 6);
    }
    assert!(store.refund(&[Ask::one(&pool, "x")], &held, SystemClock.now()).await.is_err());
    reconnect(&proxy, &store).await;
    store.close().await;
    for limit in &twenties() {
        assert_eq!(remaining(&other, limit, "x").await, 14, "{}", limit.name());
    }
    assert_eq!(remaining(&other, &pool, "x").await, 20);
}
