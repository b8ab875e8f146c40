//! Requests that are cancelled during a query of the shared store: all charges are refunded, whenever they are
//! cancelled.

use crate::support::{Decides, account, clock, file};
use diana::rules::{Document, RuleFile};
use diana::store::{Ask, Change, Decision, LocalStore, MemoryStore, Query, Store, StoreError};
use diana::{Engine, EngineOptions, Timestamp, connect, registry};
use diana_testing::{RedisServer, wait_until};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::sync::Semaphore;

/// A shared store that grants immediately, and responds when the test allows it.
#[derive(Clone)]
struct DelayedStore {
    counts: Arc<MemoryStore>,
    may_respond: Arc<Semaphore>,
}

impl Store for DelayedStore {
    async fn query(&self, asks: &[Ask<'_>], now: Timestamp, query: Query<'_>) -> Result<Decision, StoreError> {
        let decision = LocalStore::query(&*self.counts, asks, now, query);
        if !matches!(query, Query::Peek(_)) {
            self.may_respond.acquire().await.unwrap().forget();
        }
        Ok(decision)
    }

    async fn change(&self, asks: &[Ask<'_>], now: Timestamp, change: Change<'_>) -> Result<(), StoreError> {
        LocalStore::change(&*self.counts, asks, now, change);
        Ok(())
    }
}

fn delayed(rules: &str) -> (Engine, DelayedStore) {
    let file = file(&format!("store: {{redis: 'redis://127.0.0.1'}}\nrules: {rules}"));
    let store = DelayedStore { counts: Arc::default(), may_respond: Arc::new(Semaphore::new(0)) };
    (EngineOptions::of(&file).clock(clock()).build_shared(&file, store.clone()), store)
}

/// Returns the remaining permits of each limit of all rules.
async fn remaining(engine: &Engine) -> Vec<u64> {
    let explained = engine.explain(&account("alice")).await;
    explained.rules.iter().flat_map(|rule| rule.limits.iter().map(|(_, answer)| answer.status().remaining)).collect()
}

#[tokio::test]
async fn a_grant_to_a_cancelled_request_is_refunded() {
    let (engine, store) = delayed(
        "[{name: local, limit: 4/h, store: local}, {name: rate, limit: 4/h}, {name: permits, concurrent: 3},
          {name: shadow, limit: 5/h, shadow: true}]",
    );
    // During the query of the active rules, and during that of the shadow rule.
    for (responses, after) in [(0, [3, 3, 2, 5]), (1, [3, 3, 2, 4])] {
        store.may_respond.add_permits(responses);
        let mut deciding = Box::pin(engine.check(&account("alice")));
        assert!(deciding.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(remaining(&engine).await, after);
        drop(deciding);
        assert_eq!(remaining(&engine).await[0], 4, "local charges are refunded immediately");
        store.may_respond.add_permits(2 - responses);
        engine.background_tasks_finished().await;
        assert_eq!(remaining(&engine).await, [4, 4, 3, 5]);
        assert_eq!(store.may_respond.available_permits(), 0, "the query has finished");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_to_a_cancelled_request_in_a_queue_is_refunded() {
    let (engine, store) = delayed("[{name: permits, concurrent: 1, wait: 60s}]");
    store.may_respond.add_permits(1);
    let running = engine.queue(&account("alice")).await;
    assert!(running.is_granted());
    // It is denied first, and again when it becomes the first in the queue.
    store.may_respond.add_permits(2);
    let mut queued = Box::pin(engine.queue(&account("alice")));
    assert!(tokio::time::timeout(Duration::from_millis(1), queued.as_mut()).await.is_err(), "it is queued");
    running.finish().await;
    // It is the first and queries again; the response with the permit is delayed.
    assert!(tokio::time::timeout(Duration::from_secs(1), queued.as_mut()).await.is_err());
    assert_eq!(remaining(&engine).await, [0]);
    drop(queued);
    store.may_respond.add_permits(1);
    engine.background_tasks_finished().await;
    assert_eq!(remaining(&engine).await, [1]);
}

const RULES: &str = "
store: {redis: '${REDIS_URL}', timeout: 5s, prefix: cancelled}
rules:
  - {name: permits, by: account, concurrent: 20}
  - {name: queued, by: account, concurrent: 18, wait: 10s}
  - {name: rate, by: account, limit: 1000/day}
  - {name: shadow, by: account, limit: 1000/day, shadow: true}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_requests_leave_no_charges_on_redis() {
    let redis = RedisServer::start().unwrap();
    let document = Document::new("diana.yaml", RULES);
    let file = RuleFile::read_with(&document, &registry(), |_| Some(redis.url())).unwrap();
    let store = connect(file.store.redis.as_ref().unwrap()).await.unwrap();
    let engine: Engine = Engine::with_shared(&file, store);
    for round in 0..20_u64 {
        let cancelled = (0..40_u64).map(|index| {
            let engine = engine.clone();
            tokio::spawn(async move {
                // At times that are spread over a round trip and more.
                let timeout = Duration::from_micros((round * 40 + index) * 7 % 3_000);
                let alice = account("alice");
                tokio::select! {
                    verdict = engine.queue(&alice) => verdict.refund().await,
                    () = tokio::time::sleep(timeout) => {}
                }
            })
        });
        for task in cancelled.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    }
    engine.background_tasks_finished().await;
    assert_eq!(remaining(&engine).await, [20, 18, 1_000, 1_000]);
}

/// Returns the leases that are stored in Redis, with their expiry.
fn in_flight(redis: &RedisServer) -> String {
    let keys = redis.cli(&["keys", "*permits*"]).unwrap();
    let sets = keys.split_whitespace().filter(|key| redis.cli(&["type", key]).unwrap().trim() == "zset");
    sets.map(|key| redis.cli(&["zrange", key, "0", "-1", "withscores"]).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_running_requests_are_extended() {
    let redis = RedisServer::start().unwrap();
    let text =
        "{store: {redis: '${REDIS_URL}', timeout: 5s, permits_for: 3s}, rules: [{name: permits, concurrent: 1}]}";
    let file = RuleFile::read_with(&Document::new("diana.yaml", text), &registry(), |_| Some(redis.url())).unwrap();
    let store = connect(file.store.redis.as_ref().unwrap()).await.unwrap();
    let engine = Engine::with_shared(&file, store);
    let alice = account("alice");
    let held = engine.check(&alice).await;
    let mut leases = in_flight(&redis);
    assert!(held.is_granted() && !leases.is_empty());
    for _ in 0..4 {
        let later = || Some(in_flight(&redis)).filter(|now| *now != leases);
        leases = wait_until("the lease to be extended", Duration::from_secs(30), later).unwrap();
        assert!(!leases.is_empty(), "the lease has expired");
        assert!(!engine.check(&alice).await.is_granted(), "the permit is still held");
    }
    drop(held);
    engine.background_tasks_finished().await;
    assert!(engine.check(&alice).await.is_granted());
}
