//! A denial from the deny cache equals Redis's report: every limit of the request, in every field.

use crate::support::{ask, bucket, store, warm};
use diana_core::{
    Answer, Ask, Clock, Concurrency, Cost, Decision, FixedWindow, Limit, MaxWait, MemoryStore, WindowStart,
};
use diana_core::{Quota, RefillingBucket, Retry, SlidingLog, Store, SystemClock, Timestamp, Total};
use diana_redis::{Options, RedisStore, TimeSource, WhenDown};
use diana_testing::RedisServer;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// The defaults, except for what a busy machine needs.
fn options() -> Options {
    Options::default().timeout(Duration::from_secs(10)).when_down(WhenDown::Deny)
}

fn now() -> Timestamp {
    SystemClock.now()
}

async fn ask_all(store: &RedisStore, limits: &[&Limit], key: &str) -> Decision {
    let asks = limits.iter().map(|limit| Ask::one(limit, key)).collect::<Vec<_>>();
    store.decide(&asks, now(), MaxWait::NONE).await.unwrap()
}

fn remaining(decision: &Decision) -> Vec<u64> {
    decision.answers().iter().map(|answer| answer.status().remaining).collect()
}

/// Repeats the request until it is answered without Redis. Returns that answer.
async fn until_cached(store: &RedisStore, limits: &[&Limit], key: &str) -> Decision {
    for _ in 0..1_000 {
        let before = store.link().saved_by_deny_cache;
        let decision = ask_all(store, limits, key).await;
        assert!(!decision.is_granted());
        if store.link().saved_by_deny_cache > before {
            return decision;
        }
    }
    panic!("nothing is cached: {:?}", store.link());
}

#[tokio::test]
async fn a_cached_denial_reports_every_limit() {
    let redis = RedisServer::start().unwrap();
    let store = warm(&redis, options()).await;
    let (few, many) = (bucket("few", "3/h"), bucket("many", "50/h"));
    for remaining_permits in [(2, 49), (1, 48), (0, 47)] {
        let decision = ask_all(&store, &[&few, &many], "x").await;
        assert!(decision.is_granted());
        assert_eq!(remaining(&decision), [remaining_permits.0, remaining_permits.1]);
    }
    for _ in 0..20 {
        let denied = until_cached(&store, &[&few, &many], "x").await;
        assert_eq!(remaining(&denied), [0, 47]);
        assert!(!denied.answers()[0].is_granted() && denied.answers()[1].is_granted());
        assert_eq!(denied.binding(), Some(0));
    }
}

#[tokio::test]
async fn the_longest_retry_is_reported_if_only_another_limit_is_cached() {
    let redis = RedisServer::start().unwrap();
    let (store, other) = (warm(&redis, options()).await, warm(&redis, options()).await);
    let (quick, hourly) = (bucket("quick", "1/5min"), bucket("hourly", "1/h"));
    assert!(ask(&other, &hourly, "x").await.is_granted());
    // Now the deny cache knows that `quick` denies; `hourly` is not cached.
    assert!(ask(&store, &quick, "x").await.is_granted());
    for _ in 0..20 {
        let denied = ask_all(&store, &[&quick, &hourly], "x").await;
        assert_eq!(denied.binding(), Some(1));
        assert!(
            matches!(denied.retry(), Some(Retry::After(after)) if after > Duration::from_secs(3_000)),
            "{denied:?}"
        );
    }
    assert!(store.link().saved_by_deny_cache > 0, "{:?}", store.link());
}

#[tokio::test]
async fn an_uncached_limit_is_queried() {
    let redis = RedisServer::start().unwrap();
    let store = warm(&redis, options()).await;
    let (few, many) = (bucket("few", "1/h"), bucket("many", "50/h"));
    assert_eq!(remaining(&ask_all(&store, &[&many], "x").await), [49]);
    assert!(ask(&store, &few, "x").await.is_granted());
    // `few` is known to deny, and `many` was never reported together with a denial.
    let denied = ask_all(&store, &[&few, &many], "x").await;
    assert_eq!((denied.is_granted(), remaining(&denied)), (false, vec![0, 49]));
}

#[tokio::test]
async fn own_takes_and_charges_are_in_the_next_report() {
    let redis = RedisServer::start().unwrap();
    let store = warm(&redis, options()).await;
    let (each, all) = (bucket("each", "1/h"), bucket("all", "50/h"));
    let both = |key: &'static str| {
        let asks = [Ask::one(&each, key), Ask::one(&all, "all")];
        let store = &store;
        async move { store.decide(&asks, now(), MaxWait::NONE).await.unwrap() }
    };
    assert!(both("x").await.is_granted());
    assert_eq!(remaining(&both("x").await), [0, 49]);
    assert!(both("y").await.is_granted());
    let before = store.link().commands;
    assert_eq!(remaining(&both("x").await), [0, 48]);
    assert_eq!(store.link().commands, before, "the cache has the permits that this process took");
    store.charge(Ask::new(&all, "all", Cost::new(8).unwrap()), now()).await.unwrap();
    assert_eq!(remaining(&both("x").await), [0, 40]);
    let taken = store.decide(&[Ask::one(&all, "all")], now(), MaxWait::NONE).await.unwrap();
    assert_eq!(remaining(&both("x").await), [0, 39]);
    store.refund(&[Ask::one(&all, "all")], &taken, now()).await.unwrap();
    assert_eq!(remaining(&both("x").await), [0, 40]);
    store.reset(&all, b"all", now()).await.unwrap();
    assert_eq!(remaining(&both("x").await), [0, 50]);
}

/// Asks for a permit of `all`, which counts everyone, and one of `each` for `account`.
async fn ask_account(store: &RedisStore, [all, each]: [&Limit; 2], account: &str, at: Timestamp) -> Decision {
    store.decide(&[Ask::one(all, "all"), Ask::one(each, account)], at, MaxWait::NONE).await.unwrap()
}

/// Asserts that the first limit denies, and that it is the one that decides.
fn assert_first_denies(denied: &Decision) {
    assert_eq!((remaining(denied), denied.binding()), (vec![0, 0], Some(0)), "{denied:?}");
    assert!(matches!(denied.retry(), Some(Retry::After(after)) if after > Duration::from_secs(600)), "{denied:?}");
}

#[tokio::test]
async fn a_denial_after_a_grant_has_what_other_processes_took() {
    let redis = RedisServer::start().unwrap();
    let (one, two) = (warm(&redis, options()).await, warm(&redis, options()).await);
    let (all, each) = (bucket("all", "2/h"), bucket("each", "1/5min"));
    assert_eq!(remaining(&ask_account(&one, [&all, &each], "a", now()).await), [1, 0]);
    assert_eq!(remaining(&ask_account(&two, [&all, &each], "b", now()).await), [0, 0]);
    assert_first_denies(&ask_account(&one, [&all, &each], "a", now()).await);
}

#[tokio::test]
async fn a_grant_that_updates_cached_states_does_not_deny_by_them() {
    let redis = RedisServer::start().unwrap();
    let options = || options().time_source(TimeSource::Caller);
    let (one, two) = (warm(&redis, options()).await, warm(&redis, options()).await);
    let (all, each) = (bucket("all", "3/h"), bucket("each", "1/5s"));
    let (start, later) = (now(), now() + Duration::from_secs(6));
    assert!(ask_account(&one, [&all, &each], "a", start).await.is_granted());
    // From now on both states are cached, and the next grant updates them.
    assert!(!ask_account(&one, [&all, &each], "a", start).await.is_granted());
    assert_eq!(remaining(&ask_account(&one, [&all, &each], "a", later).await), [1, 0]);
    assert_eq!(remaining(&ask_account(&two, [&all, &each], "b", later).await), [0, 0]);
    assert_first_denies(&ask_account(&one, [&all, &each], "a", later).await);
}

#[tokio::test]
async fn a_cached_log_report_is_valid_until_an_entry_expires() {
    let redis = RedisServer::start().unwrap();
    let shared = store(&redis.url(), options().time_source(TimeSource::Caller)).await;
    let memory = MemoryStore::default();
    let windows = ["3/day", "7/2s"].map(|window| window.parse::<Quota>().unwrap());
    let limit = Limit::new("log", SlidingLog::several(windows).unwrap());
    let start = Timestamp::from_secs(1_700_000_000);
    let almost_a_day = start + (Duration::from_secs(86_400) - Duration::from_micros(1));
    let charge = Ask::new(&limit, "x", Cost::new(33).unwrap());
    for (at, charges) in [(start, false), (almost_a_day, true), (almost_a_day + Duration::from_millis(100), false)] {
        if charges {
            memory.charge(charge, at).await.unwrap();
            shared.charge(charge, at).await.unwrap();
        }
        let asks = [Ask::one(&limit, "x")];
        let (from_memory, from_redis) = (
            memory.decide(&asks, at, MaxWait::NONE).await.unwrap(),
            shared.decide(&asks, at, MaxWait::NONE).await.unwrap(),
        );
        assert_eq!(from_memory.answers()[0].status(), from_redis.answers()[0].status());
    }
}

#[tokio::test]
async fn concurrency_limits_are_denied_only_by_redis() {
    let redis = RedisServer::start().unwrap();
    let (store, other) = (warm(&redis, options()).await, warm(&redis, options()).await);
    let (hourly, pool) = (bucket("hourly", "2/h"), Limit::new("pool", Concurrency::new(1).unwrap()));
    let held = ask_all(&other, &[&pool], "x").await;
    assert!(held.is_granted());
    assert_eq!(ask_all(&store, &[&hourly, &pool], "x").await.retry(), Some(Retry::WhenReleased));
    // The other process releases, which is not announced.
    other.refund(&[Ask::one(&pool, "x")], &held, now()).await.unwrap();
    assert!(ask_all(&store, &[&hourly, &pool], "x").await.is_granted());
}

/// The number of keys, so that some requests are in flight at once.
const KEYS: u64 = 6;

/// Limits that time does not refill during the test, so that both stores must report the same at any time.
fn limits() -> Vec<Limit> {
    let quota = |text: &str| text.parse::<Quota>().unwrap();
    vec![
        bucket("bucket", "4/week"),
        bucket("wide", "50/week"),
        Limit::new("window", FixedWindow::new(quota("6/week")).with_window_start(WindowStart::FirstRequest)),
        Limit::new("refilled", RefillingBucket::new(quota("5/week"))),
        Limit::new("log", SlidingLog::new(quota("5/week"))),
        Limit::new("total", Total::new(7).unwrap()),
        Limit::new("pool", Concurrency::new(2).unwrap()),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u64, Asked),
    /// The same for every key concurrently, so that they are batched.
    AskForAll(Asked),
    Charge(u64, usize, u64),
    Refund(usize),
    Reset(u64, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let asks = || vec((0..7_usize, prop_oneof![4 => Just(1_u64), 1 => 2..9_u64]), 1..4);
    let step = prop_oneof![
        12 => (0..KEYS, asks()).prop_map(|(key, asks)| Step::Ask(key, asks)),
        4 => asks().prop_map(Step::AskForAll),
        1 => (0..KEYS, 0..6_usize, 1..4_u64).prop_map(|(key, limit, cost)| Step::Charge(key, limit, cost)),
        3 => (0..100_usize).prop_map(Step::Refund),
        1 => (0..KEYS, 0..7_usize).prop_map(|(key, limit)| Step::Reset(key, limit)),
    ];
    vec(step, 10..60)
}

/// A limit by index, and a cost.
type Asked = Vec<(usize, u64)>;

/// A shared store with the default options, and one in process.
struct Both {
    shared: RedisStore,
    memory: MemoryStore,
    limits: Vec<Limit>,
    granted: Vec<(u64, Asked, Decision, Decision)>,
}

impl Both {
    fn asks<'a>(&'a self, key: &'a str, asked: &[(usize, u64)]) -> Vec<Ask<'a>> {
        asked.iter().map(|(limit, cost)| Ask::new(&self.limits[*limit], key, Cost::new(*cost).unwrap())).collect()
    }

    async fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Ask(key, asked) => self.ask(vec![key], asked).await,
            Step::AskForAll(asked) => self.ask((0..KEYS).collect(), asked).await,
            Step::Charge(key, limit, cost) => {
                let key = key.to_string();
                let ask = self.asks(&key, &[(limit, cost)])[0];
                self.memory.charge(ask, now()).await.unwrap();
                self.shared.charge(ask, now()).await.unwrap();
                Ok(())
            }
            Step::Refund(index) => {
                if !self.granted.is_empty() {
                    let (key, asked, memory, shared) = self.granted.remove(index % self.granted.len());
                    let key = key.to_string();
                    let asks = self.asks(&key, &asked);
                    self.memory.refund(&asks, &memory, now()).await.unwrap();
                    self.shared.refund(&asks, &shared, now()).await.unwrap();
                }
                Ok(())
            }
            Step::Reset(key, limit) => {
                let name = key.to_string();
                self.memory.reset(&self.limits[limit], name.as_bytes(), now()).await.unwrap();
                self.shared.reset(&self.limits[limit], name.as_bytes(), now()).await.unwrap();
                // Whether a receipt is valid after a reset depends on the store.
                self.granted.retain(|(of, asked, ..)| *of != key || asked.iter().all(|(asked, _)| *asked != limit));
                Ok(())
            }
        }
    }

    async fn ask(&mut self, keys: Vec<u64>, asked: Asked) -> Result<(), TestCaseError> {
        let mut in_flight = JoinSet::new();
        for key in &keys {
            let (shared, limits, asked, key) = (self.shared.clone(), self.limits.clone(), asked.clone(), *key);
            in_flight.spawn(async move {
                let name = key.to_string();
                let ask = |(limit, cost): &(usize, u64)| Ask::new(&limits[*limit], &name, Cost::new(*cost).unwrap());
                let asks = asked.iter().map(ask).collect::<Vec<_>>();
                (key, shared.decide(&asks, now(), MaxWait::NONE).await.unwrap())
            });
        }
        let mut answered = in_flight.join_all().await;
        answered.sort_by_key(|(key, _)| *key);
        for (key, shared) in answered {
            let name = key.to_string();
            let asks = self.asks(&name, &asked);
            let memory = self.memory.decide(&asks, now(), MaxWait::NONE).await.unwrap();
            let are_equal = memory.answers().iter().zip(shared.answers()).all(|(memory, shared)| same(memory, shared));
            prop_assert!(
                are_equal && memory.binding() == shared.binding(),
                "{asks:?}:\n  memory {:?}\n  redis  {:?}",
                memory.answers(),
                shared.answers()
            );
            if memory.is_granted() {
                self.granted.push((key, asked.clone(), memory, shared));
            }
        }
        Ok(())
    }
}

/// Returns `true` if two answers are equal, except for the time between the two queries.
fn same(memory: &Answer, shared: &Answer) -> bool {
    const TEST_DURATION: Duration = Duration::from_secs(600);
    let is_near = |a: Duration, b: Duration| a.abs_diff(b) < TEST_DURATION;
    let retries = match (memory.retry(), shared.retry()) {
        (Some(Retry::After(a)), Some(Retry::After(b))) => is_near(a, b),
        (a, b) => a == b,
    };
    let (a, b) = (memory.status(), shared.status());
    retries && a.limit == b.limit && a.remaining == b.remaining && is_near(a.reset, b.reset)
}

#[test]
fn default_options_answer_as_the_memory_store_does() {
    let redis = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { failure_persistence: None, cases: 150, max_shrink_iters: 512, ..Config::default() };
    let (next, cached, batched) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let result = TestRunner::new(config).run(&steps(), |steps| {
        runtime.block_on(async {
            let prefix = format!("default-{}", next.fetch_add(1, Ordering::Relaxed));
            let shared = store(&redis.url(), options().prefix(prefix)).await;
            let mut both = Both { shared, memory: MemoryStore::default(), limits: limits(), granted: Vec::new() };
            for step in steps {
                both.run(step).await?;
            }
            let link = both.shared.link();
            cached.fetch_add(link.saved_by_deny_cache, Ordering::Relaxed);
            batched.fetch_add(link.saved_by_batching, Ordering::Relaxed);
            Ok(())
        })
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    let (cached, batched) = (cached.into_inner(), batched.into_inner());
    assert!(cached > 100 && batched > 100, "{cached} cached, {batched} batched");
}
