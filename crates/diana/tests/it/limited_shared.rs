//! Limits on functions with shared counts, on a real Redis.
//!
//! Each store is a separate process from the view of Redis. Each test has its own named limits, since all tests share
//! one process.

use diana::limited::{Caller, Cause, Limits};
use diana::redis::{Options, RedisStore};
use diana::rules::{Document, RuleFile};
use diana::{Clock, Engine, Limited, SystemClock, connect, count_limit, limited, rate_limit, registry};
use diana_testing::RedisServer;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

async fn store(redis: &RedisServer) -> RedisStore {
    RedisStore::connect(&redis.url(), Options::default().timeout(LONG)).await.unwrap()
}

#[count_limit(limit = 3, period = "1h", by = user, prefix = "shop:", store = shared, in = "two")]
async fn export() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_share_grant_what_one_would() {
    let redis = RedisServer::start().unwrap();
    let both = [Limits::new().with_shared(store(&redis).await), Limits::new().with_shared(store(&redis).await)];
    let call = |user: &'static str| Caller::new().with_user(user).scope(export());
    let mut granted = 0;
    for limits in both.iter().cycle().take(6) {
        limits.install_as("two");
        granted += usize::from(call("ann").await.is_ok());
    }
    assert_eq!(granted, 3);
    let limited = call("ann").await.unwrap_err();
    assert!(matches!(limited.cause(), Cause::Used { .. }), "{limited}");
    assert_eq!((limited.key(), limited.name()), (Some("ann"), "shop:it::limited_shared::export"));
    assert!(limited.retry_after() > Some(Duration::from_secs(3_000)), "{limited}");
    assert!(call("bob").await.is_ok());
}

#[rate_limit(rate = 1_000, burst = "0s", expire = "1h", by = user, store = shared, in = "expires")]
#[count_limit(limit = 100, period = "1s", by = user, store = shared, in = "expires")]
async fn expires() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expire_keeps_a_key_on_redis_and_both_attributes_have_names_of_their_own() {
    let redis = RedisServer::start().unwrap();
    Limits::new().with_shared(store(&redis).await).install_as("expires");
    assert_eq!(Caller::new().with_user("ann").scope(expires()).await, Ok(()));
    // The key of the count is kept for its second, and may be gone by now.
    // By a script, since a key ends with a byte that is no text.
    let script = "return redis.call('PTTL', redis.call('KEYS', '*rateLimit*expires*')[1])";
    let said = redis.cli(&["EVAL", script, "0"]).unwrap();
    let left: i64 = said.trim().parse().unwrap_or_else(|_| panic!("{said}"));
    assert!(left > 3_000_000, "it goes in {left} ms");
}

#[rate_limit(rate = 20, burst = "0s", timeout = "30s", store = shared, in = "waits")]
async fn waits() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_turns_that_are_shared() {
    let redis = RedisServer::start().unwrap();
    Limits::new().with_shared(store(&redis).await).install_as("waits");
    let began = SystemClock.now();
    for call in (0..4).map(|_| tokio::spawn(waits())).collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    // Three turns of 50 ms, by Redis's clock, which need not go as ours; how much longer it takes is the machine's affair.
    let took = SystemClock.now().since(began);
    assert!(took >= Duration::from_millis(140), "{took:?}");
}

#[count_limit(limit = 2, period = "1h", store = shared, in = "plain")]
fn plain() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_function_that_is_not_async_asks_from_wherever_it_may_block() {
    let redis = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = runtime.block_on(store(&redis));
    Limits::new().with_shared(store).install_as("plain");
    // On a thread of its own, and on the only worker of a runtime, whose tasks another thread takes over.
    assert_eq!(plain(), Ok(()));
    let in_a_task = runtime.block_on(runtime.spawn(async { plain() })).unwrap();
    assert_eq!(in_a_task, Ok(()));
    assert!(matches!(plain().unwrap_err().cause(), Cause::Used { .. }));
    let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let limited = single.block_on(async { plain() }).unwrap_err();
    assert_eq!(limited.cause(), &Cause::WouldBlock);
    assert!(limited.to_string().ends_with("make it an `async fn`, or use a multi-threaded runtime"), "{limited}");
}

#[count_limit(limit = 1, period = "1h", store = shared, in = "driven-by-nobody")]
fn driven_by_nobody() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_runtime_that_nobody_drives_is_not_waited_for() {
    let redis = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(store(&redis));
    Limits::new().with_shared(store).install_as("driven-by-nobody");
    assert_eq!(driven_by_nobody().unwrap_err().cause(), &Cause::WouldBlock);
}

struct Mail;
struct Letter;

impl Mail {
    #[count_limit(limit = 1, period = "1h", store = shared, in = "names")]
    async fn send() -> Result<(), Limited> {
        Ok(())
    }
}

impl Letter {
    #[count_limit(limit = 1, period = "1h", store = shared, in = "names")]
    async fn send() -> Result<(), Limited> {
        Ok(())
    }

    #[count_limit(limit = 1, period = "1h", prefix = "letter:", store = shared, in = "names")]
    async fn post() -> Result<(), Limited> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_or_ambiguous_is_told() {
    Limits::new().install_as("names");
    let limited = Mail::send().await.unwrap_err();
    assert_eq!(limited.cause(), &Cause::NotShared);
    assert!(limited.to_string().contains("`Limits::new().with_shared(store)`"), "{limited}");

    let redis = RedisServer::start().unwrap();
    Limits::new().with_shared(store(&redis).await).install_as("names");
    assert_eq!(Mail::send().await, Ok(()));
    // Both are `it::limited_shared::send`, and others could not tell them apart.
    let limited = Letter::send().await.unwrap_err();
    assert_eq!(limited.cause(), &Cause::NameTaken);
    assert!(limited.to_string().contains("give one of them a `prefix`"), "{limited}");
    assert_eq!(Letter::post().await, Ok(()));
}

#[count_limit(limit = 2, period = "1h", store = shared, in = "down")]
async fn without_redis() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_counts_take_over_when_redis_is_away() {
    let redis = RedisServer::start().unwrap();
    Limits::new().with_shared(store(&redis).await).install_as("down");
    assert_eq!(without_redis().await, Ok(()));
    drop(redis);
    let mut granted = 0;
    for _ in 0..10 {
        granted += usize::from(without_redis().await.is_ok());
    }
    assert!((1..=2).contains(&granted), "{granted}");
}

#[limited("exports", in = "rules")]
async fn by_rule() -> Result<(), Limited> {
    Ok(())
}

#[limited("exports", in = "rules")]
fn by_rule_plain() -> Result<(), Limited> {
    Ok(())
}

#[limited("places", in = "rules")]
async fn holds() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_rule_that_is_shared_is_asked_and_what_is_held_comes_back() {
    let redis = RedisServer::start().unwrap();
    let rules = "store: {redis: '${REDIS_URL}', timeout: 30s}\nrules:\n\
                 - {name: exports, match: {call: true}, limit: {rate: 3/h, algorithm: fixed_window, opens: first_request}}\n\
                 - {name: places, match: {call: true}, concurrent: 1}";
    let document = Document::new("diana.yaml", rules);
    let file = RuleFile::read_with(&document, &registry(), |_| Some(redis.url()));
    let file = file.unwrap_or_else(|problems| panic!("{problems}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let engine = runtime.block_on(async {
        let store = connect(file.store.redis.as_ref().unwrap()).await.unwrap();
        Arc::new(Engine::with_shared(&file, store))
    });
    Limits::new().with_rules(Arc::clone(&engine)).install_as("rules");
    assert_eq!(by_rule_plain(), Ok(()));
    runtime.block_on(async {
        assert_eq!(by_rule().await, Ok(()));
        assert_eq!(tokio::spawn(async { by_rule_plain() }).await.unwrap(), Ok(()));
        assert!(matches!(by_rule().await.unwrap_err().cause(), Cause::Rule { rule: "exports", .. }));
        for _ in 0..5 {
            assert_eq!(holds().await, Ok(()));
            // The place goes back behind the call.
            engine.background_tasks_finished().await;
        }
    });
    assert!(by_rule_plain().is_err());
}
