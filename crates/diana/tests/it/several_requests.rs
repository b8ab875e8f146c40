//! Several requests that are decided together, peeks, refunds, and rules that charge others; in process and on a shared
//! store.

use crate::support::{Decides, account, clock, file};
use diana::rules::Attributes;
use diana::rules::attributes::SyntheticRequest;
use diana::store::MemoryStore;
use diana::{Engine, EngineOptions};

const RULES: &str = "
  - {name: all, limit: 10/h}
  - {name: each, by: account, limit: 3/h}
  - {name: used, match: {path: /used}, by: account, charges: each}
";

/// Returns the same engine with counts in this process, and in a shared store.
fn engines(rules: &str) -> [Engine; 2] {
    let local = file(&format!("rules:\n{rules}"));
    let shared = file(&format!("store: {{redis: 'redis://127.0.0.1'}}\nrules:\n{rules}"));
    let local = EngineOptions::of(&local).clock(clock()).build(&local);
    let shared = EngineOptions::of(&shared).clock(clock()).build_shared(&shared, MemoryStore::default());
    [local, shared]
}

async fn is_granted(engine: &Engine, requests: &[&dyn Attributes]) -> bool {
    engine.acquire_all(requests).await.is_ok()
}

async fn remaining(engine: &Engine, rule: &str, key: &[&str]) -> u64 {
    engine.peek_key(rule, key).await.unwrap().limits[0].remaining
}

fn used(name: &str, hits: u64) -> SyntheticRequest {
    SyntheticRequest::new("POST", "/used").named("account", name).hits(hits)
}

#[tokio::test]
async fn several_requests_are_charged_all_or_nothing() {
    for engine in engines(RULES) {
        let (alice, bob, many) = (account("alice"), account("bob"), account("bob").hits(4));
        assert!(is_granted(&engine, &[&alice, &bob]).await);
        // `all` matches both, and is charged once.
        assert_eq!(remaining(&engine, "all", &[]).await, 9);
        let Err(verdict) = engine.acquire_all(&[&alice, &many]).await else { panic!("bob has 2 left") };
        let limits = |request| {
            verdict.limits_of(request).map(|limit| (limit.limit.name().to_owned(), limit.answer.is_granted()))
        };
        assert!(limits(0).all(|(_, granted)| granted), "{verdict}");
        assert_eq!(limits(1).filter(|(_, granted)| !granted).collect::<Vec<_>>(), [("each".to_owned(), false)]);
        assert_eq!([remaining(&engine, "each", &["alice"]).await, remaining(&engine, "all", &[]).await], [2, 9]);
        assert_eq!(engine.rules().named("all").unwrap().counted().allowed, 1);
    }
}

#[tokio::test]
async fn a_peek_of_nothing_is_denied_only_if_a_limit_is_exceeded() {
    for engine in engines(RULES) {
        let (alice, nothing) = (account("alice"), account("alice").hits(0));
        assert!(engine.peek(&[&account("alice").hits(3)]).await.is_granted());
        assert!(!engine.peek(&[&account("alice").hits(4)]).await.is_granted());
        assert_eq!(remaining(&engine, "each", &["alice"]).await, 3);
        assert!(is_granted(&engine, &[&alice.clone().hits(3)]).await);
        assert!(!engine.peek(&[&alice]).await.is_granted());
        assert!(engine.peek(&[&nothing]).await.is_granted(), "used up is not exceeded");
        assert!(!is_granted(&engine, &[&used("alice", 1)]).await, "`each` counts it, too");
        assert!(engine.peek(&[&nothing]).await.is_granted());
        // Dropping a peeked verdict, or finishing it, changes nothing.
        engine.peek(&[&nothing]).await.finish().await;
        engine.peek(&[&account("bob")]).await.refund().await;
        assert_eq!(remaining(&engine, "all", &[]).await, 7);
    }
}

#[tokio::test]
async fn a_rule_charges_another_into_debt_and_never_denies() {
    const REPORTS: &str = "
  - {name: tokens, match: {path: /ask}, by: account, limit: 100/h}
  - {name: used, match: {path: /used}, charges: tokens}
";
    for engine in engines(REPORTS) {
        let ask = SyntheticRequest::new("POST", "/ask").named("account", "alice").hits(0);
        assert!(engine.peek(&[&ask]).await.is_granted());
        assert!(is_granted(&engine, &[&used("alice", 90)]).await);
        assert_eq!(remaining(&engine, "tokens", &["alice"]).await, 10);
        assert!(engine.peek(&[&ask]).await.is_granted());
        assert!(is_granted(&engine, &[&used("alice", 90)]).await, "it is only reported");
        assert!(!engine.peek(&[&ask]).await.is_granted());
        assert_eq!(remaining(&engine, "tokens", &["bob"]).await, 100);
        assert_eq!(engine.rules().named("used").unwrap().counted().allowed, 2);
        // What was not used is given back.
        engine.refund_all(&[&SyntheticRequest::new("POST", "/ask").named("account", "alice").hits(30)]).await.unwrap();
        assert_eq!(remaining(&engine, "tokens", &["alice"]).await, 30);
    }
}

#[tokio::test]
async fn a_shadow_rule_charges_nothing_and_a_denied_request_neither() {
    const SHADOW: &str = "
  - {name: few, match: {path: /used}, limit: 1/h}
  - {name: tokens, match: {path: /ask}, by: account, limit: 100/h}
  - {name: used, match: {path: /used}, charges: tokens}
  - {name: shadow, match: {path: /used}, charges: tokens, cost: 50, shadow: true}
";
    for engine in engines(SHADOW) {
        assert!(is_granted(&engine, &[&used("alice", 1)]).await);
        assert!(!is_granted(&engine, &[&used("alice", 1)]).await);
        assert_eq!(remaining(&engine, "tokens", &["alice"]).await, 99);
    }
}
