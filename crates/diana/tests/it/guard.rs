//! The permit of a request: what it settles, refunds and releases when it is dropped.

use crate::support::{Decides, file, now, request};
use diana::algorithm::{Algorithm, BucketState, WaitMode};
use diana::rules::{Document, Registry, RuleFile};
use diana::store::MemoryStore;
use diana::{
    ActualCost, Cost, DecideMode, Engine, MaxWait, Outcome, Quota, Receipt, Refund, Status, Timestamp, TokenBucket,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

const SHARED: &str = "store: {redis: 'redis://127.0.0.1'}\n";

/// Returns the remaining permits of a rule that counts all requests together.
fn remaining(engine: &Engine, rule: &str) -> u64 {
    now(engine.peek_key(rule, &[])).unwrap().limits[0].remaining
}

#[tokio::test]
async fn a_second_settlement_keeps_the_costs_of_the_first() {
    let rules = "rules: [{name: a, limit: 100/h, cost: 10}, {name: b, limit: 200/h, cost: 10}]";
    let shared = file(&format!("{SHARED}{rules}"));
    let engines = [Engine::new(&file(rules)), Engine::with_shared(&shared, MemoryStore::default())];
    for engine in engines {
        let mut permit = engine.acquire(&request()).await.unwrap();
        permit.settle(ActualCost::new().rule("a", 20).rule("b", 50));
        permit.settle(ActualCost::new().rule("a", 30));
        let statuses = permit.checked_limits().map(|limit| limit.answer.status().remaining);
        assert_eq!(statuses.collect::<Vec<_>>(), [70, 150], "shared: {}", engine.has_shared());
        drop(permit);
        engine.background_tasks_finished().await;
        assert_eq!((remaining(&engine, "a"), remaining(&engine, "b")), (70, 150), "shared: {}", engine.has_shared());
    }
}

#[tokio::test]
async fn only_a_provisional_permit_that_has_not_begun_is_refunded() {
    let engine = Engine::new(&file("rules: [{name: one, limit: 3/h}]"));
    drop(engine.acquire(&request()).await.unwrap());
    assert_eq!(remaining(&engine, "one"), 2, "dropping a permit keeps the charge");
    drop(engine.acquire(&request()).await.unwrap().provisional());
    assert_eq!(remaining(&engine, "one"), 2, "it was not carried out");
    let mut permit = engine.acquire(&request()).await.unwrap().provisional();
    permit.begin();
    drop(permit);
    assert_eq!(remaining(&engine, "one"), 1);
    engine.acquire(&request()).await.unwrap().refund().await;
    assert_eq!(remaining(&engine, "one"), 1);
}

#[tokio::test]
async fn a_peek_charges_nothing_and_its_permit_settles_nothing() {
    let engine = Engine::new(&file("rules: [{name: one, match: {call: true}, limit: 2/h, cost: 2}]"));
    let call = request();
    let mut peeked = engine.decide_by("one", &call, DecideMode::Peek).unwrap().await.unwrap();
    peeked.settle(ActualCost::all(1));
    drop(peeked.provisional());
    assert_eq!(remaining(&engine, "one"), 2);
    assert!(engine.decide_by("one", &call, DecideMode::Deny).unwrap().await.is_ok());
    let mut peeked = engine.decide_by("one", &request().hits(0), DecideMode::Peek).unwrap().await.unwrap();
    peeked.settle(ActualCost::all(0));
    assert_eq!(remaining(&engine, "one"), 0, "used up, but not exceeded, and not refunded");
    assert!(engine.decide_by("one", &call, DecideMode::Peek).unwrap().await.is_err());
}

#[tokio::test]
async fn a_permit_that_is_finished_is_settled_even_if_nobody_waits_for_it() {
    let shared = file(&format!("{SHARED}rules: [{{name: a, limit: 100/h, cost: 10}}]"));
    let engine = Engine::with_shared(&shared, MemoryStore::default());
    let mut permit = engine.acquire(&request()).await.unwrap();
    permit.settle(ActualCost::all(50));
    let mut finishing = Box::pin(permit.finish());
    let _ = finishing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(finishing);
    engine.background_tasks_finished().await;
    assert_eq!(remaining(&engine, "a"), 50);
}

#[tokio::test]
async fn a_future_that_is_polled_after_completion_is_pending() {
    let file = file(&format!("{SHARED}rules: [{{name: one, limit: 1/h}}]"));
    let engine = Engine::with_shared(&file, MemoryStore::default());
    let mut future = Box::pin(engine.acquire(&request()));
    assert!(future.as_mut().await.is_ok());
    assert!(matches!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
}

/// A token bucket that panics when it is asked.
#[derive(Clone, Debug, PartialEq)]
struct Panicking(TokenBucket);

impl Algorithm for Panicking {
    type State = BucketState;

    fn fresh(&self, now: Timestamp) -> BucketState {
        self.0.fresh(now)
    }

    fn take(&self, _: &mut BucketState, _: Timestamp, _: Cost, _: MaxWait) -> Outcome {
        panic!("a fault in a custom algorithm")
    }

    fn status(&self, state: &BucketState, now: Timestamp) -> Status {
        self.0.status(state, now)
    }

    fn charge(&self, state: &mut BucketState, now: Timestamp, cost: Cost) {
        self.0.charge(state, now, cost);
    }

    fn refund(&self, state: &mut BucketState, now: Timestamp, receipt: &Receipt) -> Refund {
        self.0.refund(state, now, receipt)
    }

    fn is_fresh(&self, state: &BucketState, now: Timestamp) -> bool {
        self.0.is_fresh(state, now)
    }

    fn rescale(&self, state: &mut BucketState, old: &Self, now: Timestamp) {
        self.0.rescale(state, &old.0, now);
    }

    fn wait_mode(&self) -> WaitMode {
        self.0.wait_mode()
    }
}

#[test]
fn a_panic_in_a_shadow_rule_refunds_the_active_rules() {
    let mut registry = Registry::default();
    registry.algorithm("panicking", &[], |quota: Quota, _| Some(Panicking(TokenBucket::new(quota)).into()));
    let rules =
        "rules: [{name: permits, concurrent: 1}, {name: shadow, limit: 3/min, algorithm: panicking, shadow: true}]";
    let file = RuleFile::read(&Document::new("diana.yaml", rules), &registry).unwrap();
    let engine = Engine::new(&file);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(engine.check(&request())))).is_err());
    assert_eq!(remaining(&engine, "permits"), 1);
}
