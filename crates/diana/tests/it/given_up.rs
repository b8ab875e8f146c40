//! Requests that are cancelled during a query of the shared store: all charges are refunded, whenever they are
//! cancelled.

use crate::support::{account, clock, file};
use diana::rules::{Document, RuleFile};
use diana::store::{Ask, Decision, Limit, LocalStore, MemoryStore, Store, StoreError};
use diana::{Engine, EngineOptions, MaxWait, Timestamp, connect, registry};
use diana_testing::{RedisServer, wait_until};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::sync::Semaphore;

/// A shared store that grants immediately, and responds when the test allows it.
#[derive(Clone)]
struct Late {
    counts: Arc<MemoryStore>,
    may_answer: Arc<Semaphore>,
}

impl Store for Late {
    async fn decide(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Decision, StoreError> {
        let decision = LocalStore::decide(&*self.counts, asks, now, max_wait);
        self.may_answer.acquire().await.unwrap().forget();
        Ok(decision)
    }

    async fn peek(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Decision, StoreError> {
        Ok(LocalStore::peek(&*self.counts, asks, now, max_wait))
    }

    async fn refund(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> Result<(), StoreError> {
        LocalStore::refund(&*self.counts, asks, decision, now);
        Ok(())
    }

    async fn charge(&self, ask: Ask<'_>, now: Timestamp) -> Result<(), StoreError> {
        LocalStore::charge(&*self.counts, ask, now);
        Ok(())
    }

    async fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) -> Result<(), StoreError> {
        LocalStore::reset(&*self.counts, limit, key, now);
        Ok(())
    }
}

fn late(rules: &str) -> (Engine, Late) {
    let file = file(&format!("store: {{redis: 'redis://127.0.0.1'}}\nrules: {rules}"));
    let store = Late { counts: Arc::default(), may_answer: Arc::new(Semaphore::new(0)) };
    (EngineOptions::of(&file).clock(clock()).build_shared(&file, store.clone()), store)
}

/// Returns the remaining permits of each limit of all rules.
async fn left(engine: &Engine) -> Vec<u64> {
    let explained = engine.explain(&account("alice")).await;
    explained.rules.iter().flat_map(|rule| rule.limits.iter().map(|(_, answer)| answer.status.remaining)).collect()
}

#[tokio::test]
async fn what_the_store_grants_to_somebody_who_has_left_goes_back() {
    let (engine, store) = late(
        "[{name: here, limit: 4/h, store: local}, {name: rate, limit: 4/h}, {name: places, concurrent: 3},
          {name: shadow, limit: 5/h, shadow: true}]",
    );
    // While the rules in force are asked, and while the shadow is.
    for (answers, after) in [(0, [3, 3, 2, 5]), (1, [3, 3, 2, 4])] {
        store.may_answer.add_permits(answers);
        let mut asking = Box::pin(engine.decide(&account("alice")));
        assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(left(&engine).await, after);
        drop(asking);
        assert_eq!(left(&engine).await[0], 4, "what is counted here comes back at once");
        store.may_answer.add_permits(2 - answers);
        engine.background_tasks_finished().await;
        assert_eq!(left(&engine).await, [4, 4, 3, 5]);
        assert_eq!(store.may_answer.available_permits(), 0, "it was asked to the end");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_store_grants_to_the_first_in_line_who_has_left_goes_back() {
    let (engine, store) = late("[{name: places, concurrent: 1, wait: 60s}]");
    store.may_answer.add_permits(1);
    let holds = engine.admit(&account("alice")).await;
    assert!(holds.is_granted());
    // It is denied when it comes, and once more when it has become the first.
    store.may_answer.add_permits(2);
    let mut waits = Box::pin(engine.admit(&account("alice")));
    assert!(tokio::time::timeout(Duration::from_millis(1), waits.as_mut()).await.is_err(), "it stands in line");
    engine.finish(holds).await;
    // It is the first, and asks again; nobody has told it yet that it has the place.
    assert!(tokio::time::timeout(Duration::from_secs(1), waits.as_mut()).await.is_err());
    assert_eq!(left(&engine).await, [0]);
    drop(waits);
    store.may_answer.add_permits(1);
    engine.background_tasks_finished().await;
    assert_eq!(left(&engine).await, [1]);
}

const RULES: &str = "
store: {redis: '${REDIS_URL}', timeout: 5s, prefix: given-up}
rules:
  - {name: places, by: account, concurrent: 20}
  - {name: line, by: account, concurrent: 18, wait: 10s}
  - {name: rate, by: account, limit: 1000/day}
  - {name: shadow, by: account, limit: 1000/day, shadow: true}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whenever_requests_leave_redis_has_everything_back() {
    let redis = RedisServer::start().unwrap();
    let document = Document::new("diana.yaml", RULES);
    let file = RuleFile::read_with(&document, &registry(), |_| Some(redis.url())).unwrap();
    let store = connect(file.store.redis.as_ref().unwrap()).await.unwrap();
    let engine: Arc<Engine> = Arc::new(Engine::with_shared(&file, store));
    for round in 0..20_u64 {
        let leaving = (0..40_u64).map(|nth| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                // At moments that are spread over what a trip takes, and beyond.
                let leaves = Duration::from_micros((round * 40 + nth) * 7 % 3_000);
                let alice = account("alice");
                tokio::select! {
                    verdict = engine.admit(&alice) => engine.refund(verdict).await,
                    () = tokio::time::sleep(leaves) => {}
                }
            })
        });
        for gone in leaving.collect::<Vec<_>>() {
            gone.await.unwrap();
        }
    }
    engine.background_tasks_finished().await;
    assert_eq!(left(&engine).await, [20, 18, 1_000, 1_000]);
}

/// Returns the leases that are stored in Redis, with their expiry.
fn in_flight(redis: &RedisServer) -> String {
    let keys = redis.cli(&["keys", "*places*"]).unwrap();
    let sets = keys.split_whitespace().filter(|key| redis.cli(&["type", key]).unwrap().trim() == "zset");
    sets.map(|key| redis.cli(&["zrange", key, "0", "-1", "withscores"]).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_is_extended_again_and_again() {
    let redis = RedisServer::start().unwrap();
    let text = "{store: {redis: '${REDIS_URL}', timeout: 5s, permits_for: 3s}, rules: [{name: places, concurrent: 1}]}";
    let file = RuleFile::read_with(&Document::new("diana.yaml", text), &registry(), |_| Some(redis.url())).unwrap();
    let store = connect(file.store.redis.as_ref().unwrap()).await.unwrap();
    let engine = Arc::new(Engine::with_shared(&file, store));
    let alice = account("alice");
    let held = engine.decide(&alice).await;
    let mut known = in_flight(&redis);
    assert!(held.is_granted() && !known.is_empty());
    let mut held = engine.guard(held);
    held.begin();
    for _ in 0..4 {
        let later = || Some(in_flight(&redis)).filter(|now| *now != known);
        known = wait_until("its end to be put off", Duration::from_secs(30), later).unwrap();
        assert!(!known.is_empty(), "it has ended meanwhile");
        assert!(!engine.decide(&alice).await.is_granted(), "it is still held");
    }
    drop(held);
    engine.background_tasks_finished().await;
    assert!(engine.decide(&alice).await.is_granted());
}
