//! Streams, sinks and iterators that are paced by a rule of the file, or by a limit that processes share on a real Redis.

use crate::support::file;
use diana::pace::{IteratorExt as _, SinkError, SinkExt as _, StreamExt as _};
use diana::redis::{Options, RedisStore, SharedLimiter};
use diana::rules::{Document, RuleFile};
use diana::{
    Clock as _, Engine, EngineOptions, Quota, RuleLimiter, SystemClock, TokenBucket, TokioClock, connect, registry,
};
use diana_testing::RedisServer;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _, sink, stream};
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// An engine on tokio's time.
fn engine(rules: &str) -> Engine {
    let file = file(rules);
    EngineOptions::of(&file).clock(TokioClock::new()).build(&file)
}

fn mails(rest: &str) -> RuleLimiter {
    engine(&format!("rules: [{{name: mails, match: {{call: true}}, {rest}}}]")).limiter("mails").unwrap()
}

/// Returns when each item arrived, in milliseconds from now.
async fn passed(limiter: RuleLimiter, costs: &[u64]) -> Vec<u128> {
    let start = Instant::now();
    let mut items = pin!(stream::iter(costs.to_vec()).rate_limited(limiter).cost(|cost| *cost));
    let mut passed = Vec::new();
    while items.next().await.is_some() {
        passed.push(start.elapsed().as_millis());
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_paced_by_a_rule() {
    // Whether the engine waits, or the stream asks again when the rule says so.
    for wait in ["", ", wait: 1h"] {
        let limiter = mails(&format!("limit: 10/s burst 2{wait}"));
        assert_eq!(passed(limiter, &[1, 1, 1, 0, 1, 1]).await, [0, 0, 100, 100, 200, 300], "{wait}");
        // In instalments of at most the burst.
        assert_eq!(passed(mails(&format!("limit: 10/s burst 2{wait}")), &[7, 1]).await, [500, 600], "{wait}");
        let windows = format!("limit: {{rate: 2/s, algorithm: fixed_window, opens: first_request}}{wait}");
        assert_eq!(passed(mails(&windows), &[1, 1, 1, 1, 1]).await, [0, 0, 1_000, 1_000, 2_000], "{wait}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_the_rate_and_nothing_is_lost_without_the_rule() {
    let rules =
        |rate: &str| format!("rules: [{{name: mails, match: {{call: [tenant]}}, by: tenant, limit: {rate} burst 1}}]");
    let engine = engine(&rules("1/s"));
    let limiter = |tenant: &str| engine.limiter("mails").unwrap().with_argument("tenant", tenant);
    let start = Instant::now();
    let mut items = pin!(stream::iter(1..=5).rate_limited(limiter("acme")));
    assert_eq!(items.next().await, Some(1));
    assert_eq!((items.next().await, start.elapsed().as_millis()), (Some(2), 1_000));
    // Another tenant has its own.
    assert_eq!(stream::iter([1]).rate_limited(limiter("initech")).next().now_or_never(), Some(Some(1)));
    engine.set_rules(&file(&rules("10/s")));
    assert_eq!(items.next().await, Some(3));
    assert_eq!((items.next().await, start.elapsed().as_millis()), (Some(4), 1_200));
    // Without the rule, items wait; it is looked for each second.
    engine.set_rules(&file("rules: []"));
    assert!(tokio::time::timeout(Duration::from_millis(9_500), items.next()).await.is_err());
    engine.set_rules(&file(&rules("10/s")));
    assert_eq!((items.next().await, items.next().await), (Some(5), None));
}

#[tokio::test(start_paused = true)]
async fn a_sink_ends_with_the_total_of_its_rule() {
    let mut outbox = Box::pin(sink::drain().rate_limited(mails("total: 2")));
    outbox.send("one").await.unwrap();
    outbox.send("two").await.unwrap();
    assert!(matches!(outbox.send("three").await, Err(SinkError::Exhausted(_))));
    let held = stream::iter([1]).rate_limited(mails("concurrent: 1"));
    // A rule whose permits are released paces nothing; its items wait until the rule is another one.
    assert!(tokio::time::timeout(Duration::from_secs(60), pin!(held).next()).await.is_err());
}

#[test]
fn an_iterator_is_paced_by_a_rule_without_a_runtime() {
    let engine = Engine::new(&file("rules: [{name: mails, match: {call: true}, limit: 1000/s burst 1}]"));
    let items = (1..=20).rate_limited(engine.limiter("mails").unwrap());
    let start = SystemClock.now();
    assert_eq!(items.count(), 20);
    assert!(SystemClock.now().since(start) >= Duration::from_millis(19));
}

async fn shared(redis: &RedisServer) -> Engine {
    let text = "store: {redis: '${URL}', timeout: 5s}\nrules: [{name: mails, match: {call: true}, limit: 100/s burst 1, wait: 10s}]";
    let document = Document::new("diana.yaml", text);
    let file = RuleFile::read_with(&document, &registry(), |_| Some(redis.url())).unwrap();
    Engine::with_shared(&file, connect(file.store.redis.as_ref().unwrap()).await.unwrap())
}

/// Consumers in two processes, as Redis sees them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_consumers_of_two_processes_share_one_rate() {
    let redis = RedisServer::start().unwrap();
    let by_rule = [shared(&redis).await, shared(&redis).await].map(|engine| engine.limiter("mails").unwrap());
    consume_evenly(by_rule).await;
    let url = redis.url();
    let store = || RedisStore::connect(&url, Options::default().timeout(Duration::from_secs(30)));
    let bucket = || TokenBucket::new(Quota::per_second(100).unwrap().with_burst(1).unwrap());
    let key = |store: &RedisStore| SharedLimiter::new(store, "messages", bucket()).key("all");
    consume_evenly([key(&store().await.unwrap()), key(&store().await.unwrap())]).await;
}

/// Two streams of twenty items at 100/s: each interval has at most one, however they take turns.
async fn consume_evenly<L: Into<diana::pace::PaceLimiter> + Send + 'static>(limiters: [L; 2]) {
    let start = Instant::now();
    let consumers = limiters.map(|limiter| {
        let items = stream::iter(1..=20).rate_limited(limiter);
        tokio::spawn(items.map(move |_| start.elapsed()).collect::<Vec<_>>())
    });
    let mut passed = Vec::new();
    for consumer in consumers {
        let of_one = consumer.await.unwrap();
        assert_eq!(of_one.len(), 20);
        passed.extend(of_one);
    }
    passed.sort();
    // An item passes when it is granted, or later if its task is woken late; so the n-th has n intervals before it.
    for (number, at) in (0_u32..).zip(&passed) {
        assert!(
            *at + Duration::from_millis(1) >= Duration::from_millis(10) * number,
            "item {number} after {at:?}: {passed:?}"
        );
    }
}
