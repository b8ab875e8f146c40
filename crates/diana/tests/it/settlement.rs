//! The actual cost of a request: more is charged, less is refunded, in this process and in the shared store.

use crate::support::{Decides, account, clock, decide, file, now};
use diana::store::MemoryStore;
use diana::{ActualCost, Engine, EngineOptions, ManualClock};
use std::time::Duration;

const RULES: &str = "
  - {name: tokens, by: account, limit: 1000/h, algorithm: fixed_window, opens: first_request, cost: 100}
  - {name: requests, by: account, limit: 50/h, algorithm: sliding_log}
  - {name: permits, by: account, concurrent: 5, cost: 2}
  - {name: shadow, by: account, limit: 500/h, algorithm: sliding_window, cost: 100, shadow: true}
";

fn local() -> (Engine, ManualClock) {
    let (file, clock) = (file(&format!("rules:{RULES}")), clock());
    (EngineOptions::of(&file).clock(clock.clone()).build(&file), clock)
}

fn shared() -> (Engine, ManualClock) {
    let (file, clock) = (file(&format!("store: {{redis: 'redis://127.0.0.1'}}\nrules:{RULES}")), clock());
    (EngineOptions::of(&file).clock(clock.clone()).build_shared(&file, MemoryStore::default()), clock)
}

/// Returns the remaining permits of each limit.
fn remaining(engine: &Engine) -> Vec<u64> {
    let explained = now(engine.explain(&account("alice")));
    explained.rules.iter().flat_map(|rule| rule.limits.iter().map(|(_, answer)| answer.status().remaining)).collect()
}

fn check_corrections(engine: &Engine) {
    let mut verdict = now(engine.check(&account("alice")));
    assert_eq!(remaining(engine), [900, 49, 3, 400]);
    verdict.settle(&ActualCost::all(250));
    assert_eq!(remaining(engine), [750, 49, 3, 250], "rules without a cost, and permits, stay");
    verdict.settle(&ActualCost::all(30));
    assert_eq!(remaining(engine), [970, 49, 3, 470]);
    verdict.settle(&ActualCost::all(30));
    assert_eq!(remaining(engine), [970, 49, 3, 470], "the same cost again changes nothing");
    verdict.settle(&ActualCost::new().rule("requests", 4).rule("unknown", 7));
    assert_eq!(remaining(engine), [970, 46, 3, 470]);
    // A cost of 0, and a higher one again; then everything is refunded, once.
    verdict.settle(&ActualCost::all(0));
    assert_eq!(remaining(engine), [1_000, 46, 3, 500]);
    verdict.settle(&ActualCost::all(5_000));
    assert_eq!(remaining(engine), [0, 46, 3, 0], "even over the limit");
    assert!(!now(engine.check(&account("alice"))).is_granted());
    verdict.settle(&ActualCost::all(0));
    now(verdict.refund());
    assert_eq!(remaining(engine), [1_000, 50, 5, 500]);
}

#[test]
fn local_costs_are_corrected_both_ways() {
    check_corrections(&local().0);
}

#[test]
fn shared_costs_are_corrected_both_ways_when_the_request_ends() {
    let (engine, _) = shared();
    let settled = |costs: &[ActualCost]| {
        let mut verdict = decide(&engine, &account("alice"));
        let before = remaining(&engine);
        costs.iter().for_each(|costs| verdict.settle(costs));
        assert_eq!(remaining(&engine), before, "the response does not wait for the store");
        let expected = verdict.checked_limits().map(|limit| limit.answer.status().remaining).collect::<Vec<_>>();
        now(verdict.finish());
        let after = remaining(&engine);
        assert_eq!((expected[0], expected[1]), (after[0], after[1]), "as the headers report");
        after
    };
    assert_eq!(settled(&[ActualCost::all(250)]), [750, 49, 5, 250]);
    let later = ActualCost::new().rule("requests", 4).rule("unknown", 7);
    assert_eq!(settled(&[ActualCost::all(90), ActualCost::all(30), later]), [720, 45, 5, 220]);
    assert_eq!(settled(&[ActualCost::all(0)]), [720, 44, 5, 220]);
    assert_eq!(settled(&[ActualCost::all(5_000)]), [0, 43, 5, 0], "even over the limit");
    assert!(!decide(&engine, &account("alice")).is_granted());
}

#[test]
fn a_bucket_refunds_at_most_its_usage_at_the_grant() {
    let (engine, _) = crate::support::engine("rules: [{name: bucket, limit: 1000/h, cost: 100}]");
    let mut first = now(engine.check(&account("alice")));
    first.settle(&ActualCost::all(30));
    assert_eq!(remaining(&engine), [970]);
    let mut second = now(engine.check(&account("alice")));
    second.settle(&ActualCost::all(250));
    assert_eq!(remaining(&engine), [720]);
    second.settle(&ActualCost::all(0));
    // At most the usage when it was granted: its own 100, and the 30 before it.
    assert_eq!(remaining(&engine), [850]);
}

#[test]
fn an_expired_window_refunds_nothing() {
    let (engine, clock) = local();
    let mut verdict = now(engine.check(&account("alice")));
    clock.advance(Duration::from_secs(7_200));
    let second = now(engine.check(&account("alice")));
    assert_eq!(remaining(&engine)[0], 900);
    verdict.settle(&ActualCost::all(10));
    assert_eq!(remaining(&engine)[0], 900, "the charge has expired");
    verdict.settle(&ActualCost::all(60));
    assert_eq!(remaining(&engine)[0], 850, "but a higher cost is charged");
    drop(second);
}

#[test]
fn a_denied_request_is_not_settled() {
    let (engine, _) = crate::support::engine("rules: [{name: a, limit: 10/h, cost: 20}]");
    let mut denied = now(engine.check(&account("alice")));
    assert!(!denied.is_granted());
    denied.settle(&ActualCost::all(5));
    assert_eq!(remaining(&engine), [10]);
}
