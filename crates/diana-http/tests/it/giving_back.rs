//! Releases and refunds of a request: correct at every stage, for every kind of limit.

use crate::support::{client, file, filter, get, now, passed, refused};
use bytes::Bytes;
use diana::store::{Ask, Decision, Limit, LocalStore, MemoryStore, Store, StoreError};
use diana::{Engine, EngineOptions, MaxWait, Timestamp};
use diana_http::{CheckResult, Filter, RequestPermit};
use http::Response;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;

/// A rate limit and a concurrency limit, with four and three permits.
const LOCAL: &str = "rules: [{name: rate, limit: 4/h}, {name: places, by: ip, concurrent: 3}]";
const SHARED: &str = "
store: {redis: 'redis://127.0.0.1'}
rules:
  - {name: rate, limit: 4/h}
  - {name: places, by: ip, concurrent: 3}
  - {name: here, limit: 4/h, store: local}
";

/// Returns the remaining permits of each limit.
fn left(filter: &Filter) -> Vec<u64> {
    let request = get("/");
    let attributes = diana_http::HttpAttributes::of(&request, client());
    let explained = now(filter.engine().explain(&attributes));
    explained.rules.iter().flat_map(|rule| rule.limits.iter().map(|(_, answer)| answer.status.remaining)).collect()
}

/// A body that yields nothing until the test allows it, in two chunks.
struct Slow {
    pieces: usize,
    fails: bool,
}

impl Body for Slow {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.pieces == 0 {
            return Poll::Ready(self.fails.then_some(Err("broken")));
        }
        self.pieces -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"piece")))))
    }
}

fn slow(fails: bool) -> Response<Slow> {
    Response::new(Slow { pieces: 2, fails })
}

#[test]
fn what_is_dropped_before_it_begins_costs_nothing() {
    let (filter, _) = filter(LOCAL);
    let checking = filter.check(&get("/"), client());
    assert_eq!(left(&filter), [3, 2], "it is decided in the call");
    drop(checking);
    assert_eq!(left(&filter), [4, 3]);
    let pass = passed(filter.check(&get("/"), client()));
    assert_eq!(left(&filter), [3, 2]);
    drop(pass);
    assert_eq!(left(&filter), [4, 3]);
}

#[test]
fn what_has_begun_stays_charged_and_leaves_its_place() {
    let (filter, _) = filter(LOCAL);
    let mut pass = passed(filter.check(&get("/"), client()));
    pass.begin();
    assert_eq!(left(&filter), [3, 2]);
    drop(pass);
    assert_eq!(left(&filter), [3, 3]);
}

#[test]
fn a_place_is_held_until_the_body_has_ended() {
    let (filter, _) = filter(LOCAL);
    for fails in [false, true] {
        let before = left(&filter)[0];
        let mut body = passed(filter.check(&get("/"), client())).answer(slow(fails)).into_body();
        for _ in 0..2 {
            assert!(now(body.frame()).unwrap().is_ok());
            assert_eq!(left(&filter), [before - 1, 2]);
        }
        assert_eq!(now(body.frame()).is_some(), fails);
        assert_eq!(left(&filter), [before - 1, 3], "though nobody has dropped it yet");
        drop(body);
        assert_eq!(left(&filter), [before - 1, 3], "and it comes back once");
    }
}

#[test]
fn a_place_is_held_until_the_body_is_dropped() {
    let (filter, _) = filter(LOCAL);
    let response = passed(filter.check(&get("/"), client())).answer(slow(false));
    assert_eq!(left(&filter), [3, 2]);
    drop(response);
    assert_eq!(left(&filter), [3, 3]);
    let mut body = passed(filter.check(&get("/"), client())).answer(slow(false)).into_body();
    assert!(now(body.frame()).unwrap().is_ok());
    drop(body);
    assert_eq!(left(&filter), [2, 3]);
}

#[test]
fn what_is_refused_or_diverted_holds_nothing() {
    let (filter, _) = filter(
        "gateway: {}\nrules: [{name: places, by: ip, concurrent: 1}, {name: rate, limit: 1/h, over: {divert: 'http://127.0.0.1:3001'}}]",
    );
    let first = passed(filter.check(&get("/"), client()));
    drop(refused(filter.check(&get("/"), client())));
    drop(first.answer(slow(false)));
    let CheckResult::Reroute(permit) = now(filter.check(&get("/"), client())) else { panic!("it is over the rate") };
    assert_eq!(permit.reroute_to().unwrap().to_string(), "http://127.0.0.1:3001");
    assert_eq!(left(&filter), [1, 0], "and the place is free");
    let response = permit.answer(slow(false));
    assert_eq!(response.headers()["ratelimit"], "\"places\";r=1, \"rate\";r=0;t=3600");
}

#[test]
fn a_pass_may_end_on_another_thread_than_it_began() {
    let (filter, _) = filter(LOCAL);
    let pass = passed(filter.check(&get("/"), client()));
    std::thread::spawn(move || drop(pass)).join().unwrap();
    assert_eq!(left(&filter), [4, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_turn() {
    let (filter, _) = filter("rules: [{name: line, limit: 1/s, wait: 10s}]");
    let begun = tokio::time::Instant::now();
    for seconds in 0..3 {
        let CheckResult::Allow(mut pass) = filter.check(&get("/"), client()).await else { panic!("it waits") };
        pass.begin();
        // The engine's clock stands, so each one waits a second longer than the one before.
        let waited = (0..=seconds).sum();
        assert_eq!(begun.elapsed().as_millis() / 100, u128::from(Duration::from_secs(waited).as_secs() * 10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_stops_waiting_costs_nothing() {
    let (filter, _) =
        filter("rules: [{name: line, limit: 1/s, wait: 10s}, {name: rate, limit: 9/h}, {name: places, concurrent: 3}]");
    passed(filter.check(&get("/"), client())).begin();
    assert_eq!(left(&filter), [0, 8, 3]);
    // Before anybody has looked at it, and while it waits.
    for wait in [Duration::ZERO, Duration::from_millis(500)] {
        let mut waiting = filter.check(&get("/"), client());
        assert_eq!(left(&filter)[1..], [7, 2]);
        if wait > Duration::ZERO {
            assert!(tokio::time::timeout(wait, &mut waiting).await.is_err(), "it waits for a second");
        }
        assert_eq!(left(&filter)[1..], [7, 2]);
        drop(waiting);
        assert_eq!(left(&filter), [0, 8, 3]);
    }
    let next = filter.check(&get("/"), client());
    let CheckResult::Allow(pass) = next.await else { panic!("it waits") };
    assert_eq!(pass.verdict().wait(), Some(Duration::from_secs(1)), "as if nobody had waited before");
}

/// A shared store that responds when the test allows it.
#[derive(Clone)]
struct Shared {
    counts: Arc<MemoryStore>,
    may_answer: Arc<Semaphore>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { counts: Arc::default(), may_answer: Arc::new(Semaphore::new(1_000)) }
    }
}

impl Shared {
    async fn answer<T>(&self, made: impl FnOnce(&MemoryStore) -> T) -> Result<T, StoreError> {
        tokio::task::yield_now().await;
        let _permit = self.may_answer.acquire().await.unwrap();
        Ok(made(&self.counts))
    }
}

impl Store for Shared {
    async fn decide(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Decision, StoreError> {
        self.answer(|counts| LocalStore::decide(counts, asks, now, max_wait)).await
    }

    async fn peek(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Decision, StoreError> {
        Ok(LocalStore::peek(&*self.counts, asks, now, max_wait))
    }

    async fn refund(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> Result<(), StoreError> {
        self.answer(|counts| LocalStore::refund(counts, asks, decision, now)).await
    }

    async fn charge(&self, ask: Ask<'_>, now: Timestamp) -> Result<(), StoreError> {
        self.answer(|counts| LocalStore::charge(counts, ask, now)).await
    }

    async fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) -> Result<(), StoreError> {
        self.answer(|counts| LocalStore::reset(counts, limit, key, now)).await
    }
}

fn shared() -> (Filter, Shared) {
    let (file, store) = (file(SHARED), Shared::default());
    let engine: Engine = EngineOptions::of(&file).clock(crate::support::clock()).build_shared(&file, store.clone());
    (Filter::new(Arc::new(engine)), store)
}

async fn shared_pass(filter: &Filter) -> RequestPermit {
    match filter.check(&get("/"), client()).await {
        CheckResult::Allow(pass) => pass,
        other => panic!("{other:?}"),
    }
}

/// Runs spawned tasks until all are idle.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_shared_comes_back_from_every_stage() {
    let (filter, _) = shared();
    drop(filter.check(&get("/"), client()));
    assert_eq!(left(&filter), [4, 3, 4]);
    drop(shared_pass(&filter).await);
    settle().await;
    assert_eq!(left(&filter), [4, 3, 4]);
    let mut begun = shared_pass(&filter).await;
    begun.begin();
    assert_eq!(left(&filter), [3, 2, 3]);
    drop(begun);
    settle().await;
    assert_eq!(left(&filter), [3, 3, 3]);
    let mut body = shared_pass(&filter).await.answer(slow(false)).into_body();
    assert!(body.frame().await.unwrap().is_ok());
    settle().await;
    assert_eq!(left(&filter), [2, 2, 2]);
    while body.frame().await.is_some() {}
    settle().await;
    assert_eq!(left(&filter), [2, 3, 2]);
    drop(shared_pass(&filter).await.answer(slow(false)));
    settle().await;
    assert_eq!(left(&filter), [1, 3, 1]);
}

#[tokio::test]
async fn what_was_taken_here_comes_back_if_nobody_waits_for_the_shared_store() {
    let (filter, store) = shared();
    let all = store.may_answer.clone().acquire_many_owned(1_000).await.unwrap();
    let mut asking = Box::pin(filter.check(&get("/"), client()));
    assert_eq!(left(&filter), [4, 3, 3]);
    assert!(futures_util::poll!(asking.as_mut()).is_pending());
    drop(asking);
    assert_eq!(left(&filter), [4, 3, 4]);
    drop(all);
}
