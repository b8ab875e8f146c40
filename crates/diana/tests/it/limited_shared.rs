//! Limits on functions with shared counts, on a real Redis.
//!
//! Each store is a separate process from the view of Redis. Each test has its own named limits, since all tests share
//! one process.

use diana::limited::{Caller, Cause, Limits};
use diana::redis::{Options, RedisStore};
use diana::rules::{Document, RuleFile};
use diana::{Clock, Engine, Limited, SystemClock, connect, count_limit, limited, rate_limit, registry};
use diana_testing::RedisServer;
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
async fn two_processes_share_one_limit() {
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
    assert!(matches!(limited.cause(), Cause::Exhausted { .. }), "{limited}");
    assert_eq!((limited.key(), limited.name()), (Some("ann"), "shop:it::limited_shared::export"));
    assert!(limited.retry_after() > Some(Duration::from_secs(3_000)), "{limited}");
    assert!(call("bob").await.is_ok());
}

#[rate_limit(rate = 1_000, burst = 1, expire = "1h", by = user, store = shared, in = "expires")]
#[count_limit(limit = 100, period = "1s", by = user, store = shared, in = "expires")]
async fn expires() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expire_keeps_a_key_on_redis_and_each_attribute_has_its_own_name() {
    let redis = RedisServer::start().unwrap();
    Limits::new().with_shared(store(&redis).await).install_as("expires");
    assert_eq!(Caller::new().with_user("ann").scope(expires()).await, Ok(()));
    // The key of the count is stored for one second, and may have expired. The key ends with a byte that is not text,
    // so a script reads it.
    let script = "return redis.call('PTTL', redis.call('KEYS', '*rateLimit*expires*')[1])";
    let reply = redis.cli(&["EVAL", script, "0"]).unwrap();
    let ttl: i64 = reply.trim().parse().unwrap_or_else(|_| panic!("{reply}"));
    assert!(ttl > 3_000_000, "it expires in {ttl} ms");
}

#[rate_limit(rate = 1_000, burst = 1, by = user, store = shared, in = "expires-by-default")]
async fn expires_by_default() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_stays_on_redis_for_a_minute_by_default() {
    let redis = RedisServer::start().unwrap();
    Limits::new().with_shared(store(&redis).await).install_as("expires-by-default");
    assert_eq!(Caller::new().with_user("ann").scope(expires_by_default()).await, Ok(()));
    let script = "return redis.call('PTTL', redis.call('KEYS', '*rateLimit*expires_by_default*')[1])";
    let reply = redis.cli(&["EVAL", script, "0"]).unwrap();
    let ttl: i64 = reply.trim().parse().unwrap_or_else(|_| panic!("{reply}"));
    assert!((30_000..=62_000).contains(&ttl), "it expires in {ttl} ms");
}

#[rate_limit(rate = 0.001, saved = "2500s", by = user, store = shared, in = "fraction-shared")]
async fn fraction() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_saved_calls_may_have_a_fraction_of_a_call() {
    let redis = RedisServer::start().unwrap();
    let call = || Caller::new().with_user("ann").scope(fraction());
    // Two processes; 2.5 calls are stored, and a call takes 1,000 s.
    Limits::new().with_shared(store(&redis).await).install_as("fraction-shared");
    assert_eq!(call().await, Ok(()));
    Limits::new().with_shared(store(&redis).await).install_as("fraction-shared");
    assert_eq!(call().await, Ok(()));
    let retry_after = call().await.unwrap_err().retry_after().unwrap();
    assert!((400..=500).contains(&retry_after.as_secs()), "{retry_after:?}");
}

#[rate_limit(rate = 20, burst = 1, timeout = "30s", store = shared, in = "waits")]
async fn waits() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_shared_permits() {
    let redis = RedisServer::start().unwrap();
    Limits::new().with_shared(store(&redis).await).install_as("waits");
    let began = SystemClock.now();
    for call in (0..4).map(|_| tokio::spawn(waits())).collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    // Three intervals of 50 ms by Redis's clock, which may differ from this one; a slow machine takes longer.
    let took = SystemClock.now().since(began);
    assert!(took >= Duration::from_millis(140), "{took:?}");
}

#[count_limit(limit = 2, period = "1h", store = shared, in = "plain")]
fn plain() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_function_that_is_not_async_needs_a_thread_that_may_block() {
    let redis = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = runtime.block_on(store(&redis));
    Limits::new().with_shared(store).install_as("plain");
    // On a separate thread, and on the only worker of a runtime, whose tasks another thread takes over.
    assert_eq!(plain(), Ok(()));
    let in_a_task = runtime.block_on(runtime.spawn(async { plain() })).unwrap();
    assert_eq!(in_a_task, Ok(()));
    assert!(matches!(plain().unwrap_err().cause(), Cause::Exhausted { .. }));
    let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let limited = single.block_on(async { plain() }).unwrap_err();
    assert_eq!(limited.cause(), &Cause::WouldBlock);
    assert!(limited.to_string().ends_with("make it an `async fn`, or use a multi-threaded runtime"), "{limited}");
}

#[count_limit(limit = 1, period = "1h", store = shared, in = "without-driver")]
fn without_driver() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn a_runtime_that_is_not_running_is_not_waited_for() {
    let redis = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(store(&redis));
    Limits::new().with_shared(store).install_as("without-driver");
    assert_eq!(without_driver().unwrap_err().cause(), &Cause::WouldBlock);
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
async fn a_missing_store_and_a_duplicate_name_are_errors() {
    Limits::new().install_as("names");
    let limited = Mail::send().await.unwrap_err();
    assert_eq!(limited.cause(), &Cause::NoSharedStore);
    assert!(limited.to_string().contains("`Limits::new().with_shared(store)`"), "{limited}");

    let redis = RedisServer::start().unwrap();
    Limits::new().with_shared(store(&redis).await).install_as("names");
    assert_eq!(Mail::send().await, Ok(()));
    // Both are `it::limited_shared::send`, and their shared counts would be the same.
    let limited = Letter::send().await.unwrap_err();
    assert_eq!(limited.cause(), &Cause::DuplicateName);
    assert!(limited.to_string().contains("give one of them a `prefix`"), "{limited}");
    assert_eq!(Letter::post().await, Ok(()));
}

#[count_limit(limit = 2, period = "1h", store = shared, in = "down")]
async fn without_redis() -> Result<(), Limited> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_counts_are_used_while_redis_is_unreachable() {
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

#[limited("permits", in = "rules")]
async fn holds() -> Result<(), Limited> {
    Ok(())
}

#[test]
fn shared_rules_are_checked_and_shared_permits_are_released() {
    let redis = RedisServer::start().unwrap();
    let rules = "store: {redis: '${REDIS_URL}', timeout: 30s}\nrules:\n\
                 - {name: exports, match: {call: true}, limit: {rate: 3/h, algorithm: fixed_window, opens: first_request}}\n\
                 - {name: permits, match: {call: true}, concurrent: 1}";
    let document = Document::new("diana.yaml", rules);
    let file = RuleFile::read_with(&document, &registry(), |_| Some(redis.url()));
    let file = file.unwrap_or_else(|problems| panic!("{problems}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let engine = runtime.block_on(async {
        let store = connect(file.store.redis.as_ref().unwrap()).await.unwrap();
        Engine::with_shared(&file, store)
    });
    Limits::new().with_rules(engine.clone()).install_as("rules");
    assert_eq!(by_rule_plain(), Ok(()));
    runtime.block_on(async {
        assert_eq!(by_rule().await, Ok(()));
        assert_eq!(tokio::spawn(async { by_rule_plain() }).await.unwrap(), Ok(()));
        assert!(matches!(by_rule().await.unwrap_err().cause(), Cause::Rule { rule: "exports", .. }));
        for _ in 0..5 {
            assert_eq!(holds().await, Ok(()));
            // The permit is released in the background.
            engine.background_tasks_finished().await;
        }
    });
    assert!(by_rule_plain().is_err());
}
