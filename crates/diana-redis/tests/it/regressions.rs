//! Bugs that were found, each as a test that failed before the fix.

use crate::support::{ask, ask_for, bucket, granted, store, until};
use diana_core::{Ask, Clock, Concurrency, Cost, FixedWindow, Limit, MaxWait, Quota, Store, SystemClock, TokenBucket};
use diana_core::{Timestamp, Total};
use diana_redis::{DenyCache, Leases, Options, RedisStore, SharedLimiter, WhenDown};
use diana_testing::RedisServer;
use std::time::Duration;

fn options() -> Options {
    Options::default().timeout(Duration::from_secs(2)).when_down(WhenDown::Deny).deny_cache(DenyCache::Off)
}

fn now() -> Timestamp {
    SystemClock.now()
}

/// Repeats requests until some permits are leased.
async fn until_leased(store: &RedisStore, limit: &Limit) -> u64 {
    let mut used = 0;
    for _ in 0..2_000 {
        if store.link().leased > 0 {
            return used;
        }
        used += u64::from(ask(store, limit, "x").await.is_granted());
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    panic!("no lease: {:?}", store.link());
}

/// Takes all available permits.
async fn all_of(store: &RedisStore, limit: &Limit) -> u64 {
    let mut all = 0;
    while ask(store, limit, "x").await.is_granted() {
        all += 1;
    }
    all
}

#[tokio::test]
async fn a_block_from_before_a_reset_is_not_refunded_after_it() {
    let redis = RedisServer::start().unwrap();
    let limits = [
        Limit::new("total", Total::new(100).unwrap()),
        Limit::new("window", FixedWindow::new("100/day".parse::<Quota>().unwrap())),
    ];
    for limit in limits {
        let (a, b) =
            (store(&redis.url(), options()).await, store(&redis.url(), options().leases(Leases::Of(40))).await);
        until_leased(&b, &limit).await;
        a.reset(&limit, b"x", now()).await.unwrap();
        assert_eq!(granted(&a, &limit, "x", 60).await, 60);
        // Whatever b returns, it does not belong to this count.
        b.close().await;
        assert_eq!(all_of(&a, &limit).await, 40, "{}", limit.name());
    }
}

#[tokio::test]
async fn a_dropped_store_and_a_changed_limit_release_blocks() {
    let redis = RedisServer::start().unwrap();
    let limit = Limit::new("total", Total::new(100).unwrap());
    let plain = store(&redis.url(), options()).await;
    let leasing = store(&redis.url(), options().leases(Leases::Of(40))).await;
    let mut used = until_leased(&leasing, &limit).await;
    let larger = limit.changed_to(Total::new(101).unwrap());
    used += u64::from(ask(&leasing, &larger, "x").await.is_granted());
    drop(leasing);
    let remaining = async || {
        let peeked = plain.peek(&[Ask::one(&larger, "x")], now(), MaxWait::NONE).await.unwrap();
        peeked.answers()[0].status().remaining
    };
    let began = now();
    while remaining().await + used != 101 {
        assert!(now().since(began) < Duration::from_secs(5), "{} remaining, {used} used of 101", remaining().await);
    }
}

#[tokio::test]
async fn a_reset_revokes_leases_of_other_instances() {
    let redis = RedisServer::start().unwrap();
    let limit = bucket("bucket", "1/h burst 100");
    let (a, b) = (store(&redis.url(), options()).await, store(&redis.url(), options().leases(Leases::Of(40))).await);
    let listening = || redis.cli(&["pubsub", "numsub", "diana:returned"]).is_ok_and(|reply| reply.contains('1'));
    until(Duration::from_secs(10), "b is subscribed", listening).await;
    until_leased(&b, &limit).await;
    a.reset(&limit, b"x", now()).await.unwrap();
    until(Duration::from_secs(5), "b drops its lease", || b.link().leased == 0).await;
    assert_eq!(all_of(&a, &limit).await, 100);
}

#[tokio::test]
async fn a_lease_stays_counted_when_the_limit_changes() {
    let redis = RedisServer::start().unwrap();
    // If the machine stalls, the lease ends before it is checked; then the test is retried.
    for attempt in 0..10 {
        let (limit, other) = (format!("bucket {attempt}"), format!("bucket {attempt}"));
        let (limit, other) = (bucket(&limit, "200/s burst 100"), bucket(&other, "200/s burst 99"));
        let a = store(&redis.url(), options()).await;
        let b = store(&redis.url(), options().leases(Leases::Of(40))).await;
        let began = now();
        until_leased(&b, &limit).await;
        let leased = b.link().leased;
        assert!(ask(&a, &other, "x").await.is_granted());
        // If it were part of the stored time, it would be refilled by now, while b still has it.
        tokio::time::sleep(Duration::from_millis(450)).await;
        let too_much = ask_for(&a, &other, "x", 99 - leased + 2).await.is_granted();
        let just_enough = ask_for(&a, &other, "x", 99 - leased - 1).await.is_granted();
        if now().since(began) < Duration::from_millis(900) {
            assert_eq!((too_much, just_enough), (false, true), "{leased} are leased");
            return;
        }
    }
    panic!("the machine is too busy for this test");
}

#[tokio::test]
async fn a_refund_of_refilled_permits_has_no_effect_while_others_hold_leases() {
    let redis = RedisServer::start().unwrap();
    let limit = bucket("bucket", "100/s burst 100");
    let (a, b) = (store(&redis.url(), options()).await, store(&redis.url(), options().leases(Leases::Of(40))).await);
    until_leased(&b, &limit).await;
    let asks = [Ask::new(&limit, "x", Cost::new(10).unwrap())];
    let decision = a.decide(&asks, now(), MaxWait::NONE).await.unwrap();
    assert!(decision.is_granted());
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Time has refilled it already, and the permits in use are other requests'.
    assert!(ask_for(&a, &limit, "x", 30).await.is_granted());
    let before = a.peek(&asks, now(), MaxWait::NONE).await.unwrap().answers()[0].status().remaining;
    a.refund(&asks, &decision, now()).await.unwrap();
    let after = a.peek(&asks, now(), MaxWait::NONE).await.unwrap().answers()[0].status().remaining;
    // Some are refilled between the two peeks; an effective refund would be ten.
    assert!(after <= before + 6, "{before} before the refund, {after} after");
}

#[tokio::test]
async fn a_cancelled_wait_is_refunded_while_others_hold_leases() {
    let redis = RedisServer::start().unwrap();
    let limit = bucket("bucket", "10/s burst 40");
    let (a, b) = (store(&redis.url(), options()).await, store(&redis.url(), options().leases(Leases::Of(10))).await);
    until_leased(&b, &limit).await;
    let _ = all_of(&a, &limit).await;
    let asks = [Ask::new(&limit, "x", Cost::new(20).unwrap())];
    let waits = a.decide(&asks, now(), MaxWait::FOREVER).await.unwrap();
    assert!(waits.wait().unwrap() > Duration::from_millis(1_000));
    let longest = a.peek(&asks, now(), MaxWait::FOREVER).await.unwrap().wait().unwrap();
    a.refund(&asks, &waits, now()).await.unwrap();
    let wait = a.peek(&asks, now(), MaxWait::FOREVER).await.unwrap().wait().unwrap();
    assert!(wait + Duration::from_millis(1_500) < longest, "{longest:?} with it, {wait:?} without it");
}

#[tokio::test]
async fn two_limits_with_one_name_share_one_state() {
    let redis = RedisServer::start().unwrap();
    let store = store(&redis.url(), options()).await;
    let (one, other) = (bucket("same", "100/h"), bucket("same", "100/h"));
    let asks = [Ask::new(&one, "x", Cost::new(50).unwrap()), Ask::one(&other, "x")];
    let decision = store.decide(&asks, now(), MaxWait::NONE).await.unwrap();
    assert!(decision.is_granted());
    assert_eq!(decision.answers()[1].status().remaining, 50);
    assert_eq!(granted(&store, &one, "x", 100).await, 50);
}

#[tokio::test]
async fn an_invalid_state_does_not_affect_other_states() {
    let redis = RedisServer::start().unwrap();
    let store = store(&redis.url(), options().when_down(WhenDown::Allow)).await;
    let pool = Limit::new("pool", Concurrency::new(10).unwrap());
    let odd = Limit::new("odd", Concurrency::new(10).unwrap());
    assert!(ask(&store, &odd, "x").await.is_granted());
    redis.cli(&["zadd", "diana:odd:{x}", "1", "foreign"]).unwrap();
    for _ in 0..20 {
        let both = [pool.clone(), odd.clone(), pool.clone(), odd.clone()];
        let tasks = both.map(|limit| {
            let store = store.clone();
            tokio::spawn(async move {
                let asks = [Ask::one(&limit, "x")];
                let decision = store.decide(&asks, now(), MaxWait::NONE).await.unwrap();
                let _ = store.refund(&asks, &decision, now()).await;
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
    }
    let peeked = store.peek(&[Ask::one(&pool, "x")], now(), MaxWait::NONE).await.unwrap();
    assert_eq!(peeked.answers()[0].status().remaining, 10, "no permit is in use");
}

#[tokio::test]
async fn acquire_waits_for_an_unreachable_redis() {
    let mut redis = RedisServer::start().unwrap();
    let brief = Options::default().timeout(Duration::from_millis(200)).when_down(WhenDown::Deny);
    let limiter =
        SharedLimiter::new(&store(&redis.url(), brief).await, "one", TokenBucket::new("5/s".parse().unwrap()));
    redis.kill().unwrap();
    assert!(limiter.acquire_timeout("x", 1, Duration::from_millis(10)).await.unwrap_err().retry().is_some());
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("x", 1).await.is_ok() }
    });
    redis.restart().unwrap();
    assert!(waiting.await.unwrap());
}
