//! `Engine::cl_throttle`: in this process at once, and on the shared store.

use crate::support::{engine as local_engine, file};
use diana::rules::{Document, RuleFile};
use diana::{Answer, ClThrottle, Engine, KeySpace, connect, registry};
use diana_testing::RedisServer;
use std::time::Duration;

const RULES: &str = "{store: {redis: '${REDIS_URL}', timeout: 1s}, rules: [{name: everyone, limit: 5/s}]}";

fn ten_an_hour() -> ClThrottle {
    ClThrottle::new(9, 10, 3_600, 1).unwrap()
}

async fn shared_engine(url: &str) -> Engine {
    let document = Document::new("diana.yaml", RULES);
    let file = RuleFile::read_with(&document, &registry(), |_| Some(url.to_owned())).unwrap();
    Engine::with_shared(&file, connect(file.store.redis.as_ref().unwrap()).await.unwrap())
}

/// Returns how many of 30 calls are granted.
async fn granted(engine: &Engine, space: KeySpace, key: &[u8]) -> usize {
    let mut granted = 0;
    for _ in 0..30 {
        granted += usize::from(engine.cl_throttle(space, key, &ten_an_hour()).await.is_granted());
    }
    granted
}

#[test]
fn local_calls_are_decided_at_once() {
    let (engine, clock) = local_engine("rules: [{name: everyone, limit: 5/s}]");
    let ask = |quantity| {
        let call = ClThrottle::new(1, 1, 60, quantity).unwrap();
        engine.cl_throttle(KeySpace::default(), b"\xff", &call).now().as_ref().map(Answer::to_integers).unwrap()
    };
    assert_eq!(ask(1), [0, 2, 1, -1, 60]);
    assert_eq!(ask(1), [0, 2, 0, -1, 120]);
    assert_eq!(ask(1), [1, 2, 0, 60, 120]);
    clock.advance(Duration::from_secs(60));
    assert_eq!(ask(1), [0, 2, 0, -1, 120]);
    // Rules that change leave it alone.
    engine.set_rules(&file("rules: [{name: other, limit: 1/s}]"));
    assert_eq!(ask(-2), [0, 2, 2, -1, 0]);
}

#[test]
fn calls_that_arrive_together_are_decided_at_one_time() {
    let (engine, clock) = local_engine("rules: [{name: everyone, limit: 5/s}]");
    let call = ClThrottle::new(1, 1, 60, 1).unwrap();
    let [zero, one] = [0, 1].map(|number| engine.cl_throttle_now(KeySpace::new(number).unwrap()).unwrap());
    assert_eq!(zero.cl_throttle(b"key", &call).to_integers(), [0, 2, 1, -1, 60]);
    clock.advance(Duration::from_secs(30));
    assert_eq!(zero.cl_throttle(b"key", &call).to_integers(), [0, 2, 0, -1, 120]);
    assert_eq!(one.cl_throttle(b"key", &call).to_integers(), [0, 2, 1, -1, 60]);
    // The same counts as those of other calls, at their own time.
    let later = engine.cl_throttle(KeySpace::default(), b"key", &call).now().unwrap();
    assert_eq!(later.to_integers(), [1, 2, 0, 30, 90]);
}

#[test]
fn key_spaces_are_separate() {
    let (engine, _clock) = local_engine("rules: [{name: everyone, limit: 5/s}]");
    let call = ClThrottle::new(0, 1, 60, 1).unwrap();
    for number in 0..16 {
        let space = KeySpace::new(number).unwrap();
        assert_eq!(space.number(), number);
        let granted = || engine.cl_throttle(space, b"key", &call).now().map(|answer| answer.is_granted()).unwrap();
        assert_eq!([granted(), granted()], [true, false], "{number}");
    }
    assert_eq!(KeySpace::new(16), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_share_one_limit() {
    let redis = RedisServer::start().unwrap();
    let engines = [shared_engine(&redis.url()).await, shared_engine(&redis.url()).await];
    let space = KeySpace::default();
    let (one, other) = tokio::join!(granted(&engines[0], space, b"key"), granted(&engines[1], space, b"key"));
    assert_eq!(one + other, 10);
    assert!(engines[0].cl_throttle(space, b"key", &ten_an_hour()).now().is_err(), "a shared call is not ready at once");
    assert!(engines[0].cl_throttle_now(space).is_none(), "nor are several");
    assert_eq!(granted(&engines[1], KeySpace::new(1).unwrap(), b"key").await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_the_engine_counts_locally() {
    let mut redis = RedisServer::start().unwrap();
    let engine = shared_engine(&redis.url()).await;
    assert_eq!(granted(&engine, KeySpace::default(), b"before").await, 10);
    redis.kill().unwrap();
    assert_eq!(granted(&engine, KeySpace::default(), b"after").await, 10);
}
