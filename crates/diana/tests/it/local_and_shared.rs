//! Local and shared rules in one decision.

use crate::support::{Decides, account, clock, decide, decision_text, file, now};
use diana::store::{Ask, Change, Decision, LocalStore, MemoryStore, Query, Store, StoreError};
use diana::{Engine, EngineOptions, ManualClock, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

const RULES: &str = "
store: {redis: 'redis://127.0.0.1'}
rules:
  - {name: local, by: account, limit: 4/h, store: local}
  - {name: shared, by: account, limit: 2/h}
";

/// A shared store that can fail, or never respond.
#[derive(Clone, Default)]
struct FaultyStore {
    counts: Arc<MemoryStore>,
    fails: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
}

impl FaultyStore {
    async fn respond<T>(&self, run: impl FnOnce(&MemoryStore) -> T) -> Result<T, StoreError> {
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.fails.load(Ordering::Relaxed) {
            return Err(StoreError::Unreachable { store: "shared".to_owned(), reason: "simulated failure".to_owned() });
        }
        Ok(run(&self.counts))
    }
}

impl Store for FaultyStore {
    async fn query(&self, asks: &[Ask<'_>], now: Timestamp, query: Query<'_>) -> Result<Decision, StoreError> {
        self.respond(|counts| LocalStore::query(counts, asks, now, query)).await
    }

    async fn change(&self, asks: &[Ask<'_>], now: Timestamp, change: Change<'_>) -> Result<(), StoreError> {
        self.respond(|counts| LocalStore::change(counts, asks, now, change)).await
    }
}

fn engine(text: &str) -> (Engine, FaultyStore, ManualClock) {
    let (file, shared, clock) = (file(text), FaultyStore::default(), clock());
    (EngineOptions::of(&file).clock(clock.clone()).build_shared(&file, shared.clone()), shared, clock)
}

/// Returns the remaining permits of each limit of both rules.
fn remaining(engine: &Engine) -> Vec<u64> {
    let explained = now(engine.explain(&account("alice")));
    explained.rules.iter().flat_map(|rule| rule.limits.iter().map(|(_, answer)| answer.status().remaining)).collect()
}

#[test]
fn local_charges_are_refunded_if_the_shared_store_denies() {
    let (engine, shared, _) = engine(RULES);
    assert!(decide(&engine, &account("alice")).is_granted());
    assert!(decide(&engine, &account("alice")).is_granted());
    assert_eq!(remaining(&engine), [2, 0]);
    let denied = decide(&engine, &account("alice"));
    assert_eq!(denied.to_string(), "denied by `shared` for alice: 0 of 2 left, retry after 30min");
    assert_eq!(remaining(&engine), [2, 0]);
    assert_eq!((engine.local().len(), shared.counts.len()), (1, 1), "each rule is counted in its own store");
}

#[test]
fn the_shared_store_is_not_queried_after_a_local_denial() {
    let (engine, shared, _) = engine(
        "store: {redis: 'redis://127.0.0.1'}
rules: [{name: local, limit: 1/h, store: local}, {name: shared, by: account, limit: 5/h}]",
    );
    assert!(decide(&engine, &account("alice")).is_granted());
    // It would never respond.
    shared.hangs.store(true, Ordering::Relaxed);
    assert_eq!(decision_text(&engine, &account("alice")), "denied by `local`: 0 of 1 left, retry after 1h");
}

#[test]
fn a_cancelled_request_is_refunded() {
    let (engine, shared, _) = engine(RULES);
    shared.hangs.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let mut waiting = Box::pin(engine.check(&account("alice")));
        assert!(matches!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    }
    drop(engine.check(&account("alice"))); // never polled
    shared.hangs.store(false, Ordering::Relaxed);
    assert_eq!(remaining(&engine), [4, 2]);
}

#[test]
fn local_counts_replace_a_failing_shared_store() {
    let (engine, shared, _) = engine(RULES);
    shared.fails.store(true, Ordering::Relaxed);
    let first = decide(&engine, &account("alice"));
    assert!(first.is_granted() && first.is_fallback());
    assert!(decide(&engine, &account("alice")).is_granted());
    assert_eq!(
        decision_text(&engine, &account("alice")),
        "denied by `shared` for alice: 0 of 2 left, retry after 30min"
    );
    assert_eq!(shared.counts.len(), 0);
    // It is refunded to the store that was charged.
    now(first.refund());
    assert!(decide(&engine, &account("alice")).is_granted());
}

#[test]
fn local_and_shared_permits_are_released() {
    let (engine, _, _) = engine(
        "store: {redis: 'redis://127.0.0.1'}
rules:
  - {name: local, by: account, concurrent: 2, store: local}
  - {name: shared, by: account, concurrent: 1}
  - {name: shadow, by: account, concurrent: 1, shadow: true}
",
    );
    let first = decide(&engine, &account("alice"));
    assert_eq!(remaining(&engine), [1, 0, 0]);
    assert!(!decide(&engine, &account("alice")).is_granted());
    assert_eq!(remaining(&engine), [1, 0, 0]);
    now(first.finish());
    assert_eq!(remaining(&engine), [2, 1, 1]);
}

#[test]
fn without_a_shared_store_everything_is_counted_locally() {
    let (file, clock) = (file(RULES), clock());
    let engine = EngineOptions::of(&file).clock(clock).build(&file);
    assert!(decide(&engine, &account("alice")).is_granted());
    assert!(decide(&engine, &account("alice")).is_granted());
    assert_eq!(
        decision_text(&engine, &account("alice")),
        "denied by `shared` for alice: 0 of 2 left, retry after 30min"
    );
}
