//! Releases and refunds of a request: correct at every stage, for every kind of limit.

use crate::support::{client, file, filter, get, granted, now};
use bytes::Bytes;
use diana::store::{Ask, Change, Decision, LocalStore, MemoryStore, Query, Store, StoreError};
use diana::{Engine, EngineOptions, Timestamp};
use diana_http::{Filter, HttpAttributes, RequestPermit};
use http::Response;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;

/// A rate limit and a concurrency limit, with four and three permits.
const LOCAL: &str = "rules: [{name: rate, limit: 4/h}, {name: concurrent, by: ip, concurrent: 3}]";
const SHARED: &str = "
store: {redis: 'redis://127.0.0.1'}
rules:
  - {name: rate, limit: 4/h}
  - {name: concurrent, by: ip, concurrent: 3}
  - {name: local, limit: 4/h, store: local}
";

/// Returns the remaining permits of each limit.
fn remaining(filter: &Filter) -> Vec<u64> {
    let request = get("/");
    let attributes = HttpAttributes::of(&request, client());
    let explained = now(filter.engine().explain(&attributes));
    explained.rules.iter().flat_map(|rule| rule.limits.iter().map(|(_, answer)| answer.status().remaining)).collect()
}

/// A body that yields nothing until the test allows it, in two chunks.
struct Slow {
    chunks: usize,
    fails: bool,
}

impl Body for Slow {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.chunks == 0 {
            return Poll::Ready(self.fails.then_some(Err("broken")));
        }
        self.chunks -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"chunk")))))
    }
}

fn slow_response(fails: bool) -> Response<Slow> {
    Response::new(Slow { chunks: 2, fails })
}

#[test]
fn a_permit_dropped_before_begin_refunds_everything() {
    let (filter, _) = filter(LOCAL);
    let check = filter.check(&get("/"), client());
    assert_eq!(remaining(&filter), [3, 2], "the check decides immediately");
    drop(check);
    assert_eq!(remaining(&filter), [4, 3]);
    let permit = granted(filter.check(&get("/"), client()));
    assert_eq!(remaining(&filter), [3, 2]);
    drop(permit);
    assert_eq!(remaining(&filter), [4, 3]);
}

#[test]
fn after_begin_the_charge_stays_and_the_permit_is_released() {
    let (filter, _) = filter(LOCAL);
    let mut permit = granted(filter.check(&get("/"), client()));
    permit.begin();
    assert_eq!(remaining(&filter), [3, 2]);
    drop(permit);
    assert_eq!(remaining(&filter), [3, 3]);
}

#[test]
fn a_permit_is_held_until_the_body_ends() {
    let (filter, _) = filter(LOCAL);
    for fails in [false, true] {
        let before = remaining(&filter)[0];
        let mut body = granted(filter.check(&get("/"), client())).finish(slow_response(fails)).into_body();
        for _ in 0..2 {
            assert!(now(body.frame()).unwrap().is_ok());
            assert_eq!(remaining(&filter), [before - 1, 2]);
        }
        assert_eq!(now(body.frame()).is_some(), fails);
        assert_eq!(remaining(&filter), [before - 1, 3], "before the body is dropped");
        drop(body);
        assert_eq!(remaining(&filter), [before - 1, 3], "it is released once");
    }
}

#[test]
fn a_permit_is_held_until_the_body_is_dropped() {
    let (filter, _) = filter(LOCAL);
    let response = granted(filter.check(&get("/"), client())).finish(slow_response(false));
    assert_eq!(remaining(&filter), [3, 2]);
    drop(response);
    assert_eq!(remaining(&filter), [3, 3]);
    let mut body = granted(filter.check(&get("/"), client())).finish(slow_response(false)).into_body();
    assert!(now(body.frame()).unwrap().is_ok());
    drop(body);
    assert_eq!(remaining(&filter), [2, 3]);
}

#[test]
fn denied_and_rerouted_requests_hold_no_permits() {
    let (filter, _) = filter(
        "gateway: {}\nrules: [{name: concurrent, by: ip, concurrent: 1}, {name: rate, limit: 1/h, over: {reroute: 'http://127.0.0.1:3001'}}]",
    );
    let first = granted(filter.check(&get("/"), client()));
    let decided = filter.acquire(&HttpAttributes::of(&get("/"), client())).now().unwrap();
    assert!(filter.rerouted(decided.unwrap_err()).is_err(), "`concurrent` denies");
    drop(first.finish(slow_response(false)));
    let decided = filter.acquire(&HttpAttributes::of(&get("/"), client())).now().unwrap();
    let permit = filter.rerouted(decided.unwrap_err()).unwrap();
    assert_eq!(permit.reroute_to().unwrap().to_string(), "http://127.0.0.1:3001");
    assert_eq!(remaining(&filter), [1, 0], "the permit is released");
    let response = permit.finish(slow_response(false));
    assert_eq!(response.headers()["ratelimit"], "\"concurrent\";r=1, \"rate\";r=0;t=3600");
}

#[test]
fn a_permit_can_be_dropped_on_another_thread() {
    let (filter, _) = filter(LOCAL);
    let permit = granted(filter.check(&get("/"), client()));
    std::thread::spawn(move || drop(permit)).join().unwrap();
    assert_eq!(remaining(&filter), [4, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_in_the_queue() {
    let (filter, _) = filter("rules: [{name: queued, limit: 1/s, wait: 10s}]");
    let start = tokio::time::Instant::now();
    for seconds in 0..3 {
        let mut permit = filter.check(&get("/"), client()).await.unwrap();
        permit.begin();
        // The engine's clock does not advance, so each request waits a second longer than the one before.
        let waited = (0..=seconds).sum();
        assert_eq!(start.elapsed().as_millis() / 100, u128::from(Duration::from_secs(waited).as_secs() * 10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_is_refunded() {
    let (filter, _) = filter(
        "rules: [{name: queued, limit: 1/s, wait: 10s}, {name: rate, limit: 9/h}, {name: concurrent, concurrent: 3}]",
    );
    granted(filter.check(&get("/"), client())).begin();
    assert_eq!(remaining(&filter), [0, 8, 3]);
    // Before it is polled, and while it waits.
    for wait in [Duration::ZERO, Duration::from_millis(500)] {
        let mut waiting = Box::pin(filter.check(&get("/"), client()));
        assert_eq!(remaining(&filter)[1..], [7, 2]);
        if wait > Duration::ZERO {
            assert!(tokio::time::timeout(wait, &mut waiting).await.is_err(), "it waits for a second");
        }
        assert_eq!(remaining(&filter)[1..], [7, 2]);
        drop(waiting);
        assert_eq!(remaining(&filter), [0, 8, 3]);
    }
    let next = filter.check(&get("/"), client());
    let permit = next.await.unwrap();
    assert_eq!(permit.verdict().wait(), Some(Duration::from_secs(1)), "earlier waits were refunded");
}

/// A shared store that responds when the test allows it.
#[derive(Clone)]
struct Shared {
    counts: Arc<MemoryStore>,
    responses: Arc<Semaphore>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { counts: Arc::default(), responses: Arc::new(Semaphore::new(1_000)) }
    }
}

impl Shared {
    async fn respond<T>(&self, query: impl FnOnce(&MemoryStore) -> T) -> Result<T, StoreError> {
        tokio::task::yield_now().await;
        let _permit = self.responses.acquire().await.unwrap();
        Ok(query(&self.counts))
    }
}

impl Store for Shared {
    async fn query(&self, asks: &[Ask<'_>], now: Timestamp, query: Query<'_>) -> Result<Decision, StoreError> {
        match query {
            Query::Peek(_) => Ok(LocalStore::query(&*self.counts, asks, now, query)),
            query => self.respond(|counts| LocalStore::query(counts, asks, now, query)).await,
        }
    }

    async fn change(&self, asks: &[Ask<'_>], now: Timestamp, change: Change<'_>) -> Result<(), StoreError> {
        self.respond(|counts| LocalStore::change(counts, asks, now, change)).await
    }
}

fn shared() -> (Filter, Shared) {
    let (file, store) = (file(SHARED), Shared::default());
    let engine: Engine = EngineOptions::of(&file).clock(crate::support::clock()).build_shared(&file, store.clone());
    (Filter::new(engine), store)
}

async fn shared_permit(filter: &Filter) -> RequestPermit {
    filter.check(&get("/"), client()).await.unwrap()
}

/// Runs spawned tasks until all are idle.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn shared_charges_are_released_at_every_stage() {
    let (filter, _) = shared();
    drop(filter.check(&get("/"), client()));
    assert_eq!(remaining(&filter), [4, 3, 4]);
    drop(shared_permit(&filter).await);
    settle().await;
    assert_eq!(remaining(&filter), [4, 3, 4]);
    let mut permit = shared_permit(&filter).await;
    permit.begin();
    assert_eq!(remaining(&filter), [3, 2, 3]);
    drop(permit);
    settle().await;
    assert_eq!(remaining(&filter), [3, 3, 3]);
    let mut body = shared_permit(&filter).await.finish(slow_response(false)).into_body();
    assert!(body.frame().await.unwrap().is_ok());
    settle().await;
    assert_eq!(remaining(&filter), [2, 2, 2]);
    while body.frame().await.is_some() {}
    settle().await;
    assert_eq!(remaining(&filter), [2, 3, 2]);
    drop(shared_permit(&filter).await.finish(slow_response(false)));
    settle().await;
    assert_eq!(remaining(&filter), [1, 3, 1]);
}

#[tokio::test]
async fn refunds_local_charges_when_the_shared_query_is_cancelled() {
    let (filter, store) = shared();
    let all = store.responses.clone().acquire_many_owned(1_000).await.unwrap();
    let mut check = Box::pin(filter.check(&get("/"), client()));
    assert_eq!(remaining(&filter), [4, 3, 3]);
    assert!(futures_util::poll!(check.as_mut()).is_pending());
    drop(check);
    assert_eq!(remaining(&filter), [4, 3, 4]);
    drop(all);
}
