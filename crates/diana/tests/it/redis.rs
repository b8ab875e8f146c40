//! Engines that share their counts on a real Redis, as configured in their file.

use crate::support::{Decides, account};
use diana::Cost;
use diana::rules::rule::CountedIn;
use diana::rules::{Document, RuleFile};
use diana::{Engine, connect, registry};
use diana_testing::RedisServer;

fn read(text: &str, url: &str) -> RuleFile {
    let document = Document::new("diana.yaml", text);
    RuleFile::read_with(&document, &registry(), |_| Some(url.to_owned()))
        .unwrap_or_else(|problems| panic!("{problems}"))
}

async fn engine(file: &RuleFile) -> Engine {
    Engine::with_shared(file, connect(file.store.redis.as_ref().unwrap()).await.unwrap())
}

const RULES: &str = "
store: {redis: '${REDIS_URL}', timeout: 5s, prefix: engines}
rules:
  - {name: shared, by: account, limit: 3/day}
  - {name: own, by: account, limit: 2/day, store: local}
  - {name: permits, by: account, concurrent: 2}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_share_only_shared_rules() {
    let redis = RedisServer::start().unwrap();
    let file = read(RULES, &redis.url());
    let (one, other) = (engine(&file).await, engine(&file).await);
    let mut held = Vec::new();
    for engine in [&one, &other] {
        let verdict = engine.check(&account("alice")).await;
        assert!(verdict.is_granted(), "{verdict}");
        held.push(verdict);
    }
    let verdict = one.check(&account("alice")).await;
    assert_eq!(verdict.to_string(), "denied by `permits` for alice: 0 of 2 left, retry when a permit is released");
    for verdict in held {
        verdict.finish().await;
    }
    // The denied request has refunded its local charges.
    let verdict = one.check(&account("alice")).await;
    assert!(verdict.is_granted(), "{verdict}");
    verdict.finish().await;
    let denied = other.check(&account("alice")).await;
    assert!(denied.to_string().starts_with("denied by `shared` for alice: 0 of 3 left, retry after "), "{denied}");
    let denied = one.check(&account("alice")).await;
    assert!(denied.to_string().starts_with("denied by `own` for alice: 0 of 2 left, retry after "), "{denied}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_shared_limit_keeps_its_usage_in_all_engines() {
    let redis = RedisServer::start().unwrap();
    let text = |revision: u32, limit: &str| {
        format!(
            "revision: {revision}\nstore: {{redis: '${{URL}}', timeout: 5s}}\nrules: [{{name: a, by: account, limit: {limit}}}]"
        )
    };
    let (old, new) = (read(&text(1, "5/day"), &redis.url()), read(&text(2, "4/day"), &redis.url()));
    let (one, other) = (engine(&old).await, engine(&old).await);
    for engine in [&one, &other, &one] {
        assert!(engine.check(&account("alice")).await.is_granted());
    }
    one.set_rules(&new);
    assert!(one.check(&account("alice")).await.is_granted());
    assert!(!one.check(&account("alice")).await.is_granted());
    // An engine that still has the old rules, or starts with them, uses the newer limits, too.
    assert!(!other.check(&account("alice")).await.is_granted());
    assert!(!engine(&old).await.check(&account("alice")).await.is_granted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_each_engine_counts_locally() {
    let mut redis = RedisServer::start().unwrap();
    let file = read(RULES, &redis.url());
    let engine = engine(&file).await;
    assert!(engine.check(&account("alice")).await.is_granted());
    redis.kill().unwrap();
    for _ in 0..3 {
        let verdict = engine.check(&account("bob")).await;
        if verdict.is_granted() {
            verdict.finish().await;
        }
    }
    let denied = engine.check(&account("bob")).await;
    assert!(denied.to_string().starts_with("denied by `own` for bob: 0 of 2 left"), "{denied}");
}

#[test]
fn unsupported_shared_limits_are_reported_when_the_file_is_read() {
    let text = "
store: {redis: 'redis://127.0.0.1'}
rules:
  - {name: a, limit: 5/s, algorithm: smooth_bursty, starts: empty}
  - {name: b, limit: 5/s, algorithm: smooth_bursty, starts: empty, store: local}
";
    let document = Document::new("diana.yaml", text);
    let problems = RuleFile::read_with(&document, &registry(), |_| None).unwrap_err();
    assert_eq!(problems.len(), 1);
    let text = problems.to_string();
    assert!(text.starts_with("diana.yaml:4:22: the shared store does not support this limit: "), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_admin_changes_shared_counts_for_all_engines() {
    let redis = RedisServer::start().unwrap();
    let file = read(
        "{store: {redis: '${REDIS_URL}', timeout: 5s}, rules: [{name: a, by: account, limit: 3/day}]}",
        &redis.url(),
    );
    let (one, other) = (engine(&file).await, engine(&file).await);
    for _ in 0..3 {
        assert!(one.check(&account("alice")).await.is_granted());
    }
    let remaining = async |engine: &Engine| engine.peek_key("a", &["alice"]).await.unwrap().limits[0].remaining;
    assert_eq!(remaining(&other).await, 0);
    assert_eq!(other.refund_key("a", &["alice"], Cost::new(2).unwrap()).await.unwrap().limits[0].remaining, 2);
    assert_eq!(remaining(&one).await, 2);
    one.charge_key("a", &["alice"], Cost::ONE).await.unwrap();
    assert_eq!(remaining(&other).await, 1);
    let reset = one.reset_key("a", &["alice"]).await.unwrap();
    assert_eq!((reset.counted_in, reset.limits[0].remaining, remaining(&other).await), (CountedIn::Shared, 3, 3));
}

/// The essay's two windows over one list: one a second, and five a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_windows_of_a_log_are_one_key() {
    let redis = RedisServer::start().unwrap();
    let log = |rate: &str| format!("{{rate: {rate}, algorithm: sliding_log}}");
    let limit = format!("limit: [{}, {}]", log("1/s"), log("5/min"));
    let text = format!(
        "store: {{redis: '${{URL}}', timeout: 5s, prefix: logs}}\nrules:\n  - {{name: calls, by: account, {limit}}}\n"
    );
    let engine = engine(&read(&text, &redis.url())).await;
    assert!(engine.check(&account("alice")).await.is_granted());
    let denied = engine.check(&account("alice")).await.to_string();
    assert!(denied.starts_with("denied by `calls` for alice: 0 of 1 left, retry after "), "{denied}");
    let keys = redis.cli(&["KEYS", "logs:calls*"]).unwrap();
    assert_eq!(keys.lines().count(), 1, "{keys}");

    // In process: four more, each in another second, and then none until the first is a minute old.
    let (engine, clock) = crate::support::engine(&format!("rules:\n  - {{name: calls, by: account, {limit}}}\n"));
    let mut granted = Vec::new();
    for second in 0..61 {
        granted.extend(crate::support::decide(&engine, &account("alice")).is_granted().then_some(second));
        assert_eq!(engine.local().usage().values().map(|usage| usage.keys).sum::<usize>(), 1);
        clock.advance(std::time::Duration::from_secs(1));
    }
    assert_eq!(granted, [0, 1, 2, 3, 4, 60]);
}
