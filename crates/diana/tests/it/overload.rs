//! Rules by the machine's load or the response latency, and the counters of every rule.

use crate::support::{account, decide, decision_text, engine, file, now, request};
use diana::ruleset::{DenyReason, Resource, RuleCounts};
use diana::store::MemoryStore;
use diana::{Engine, Reason, ResponseClass};
use diana::{Retry, Timestamp};
use std::time::Duration;

fn counted(engine: &Engine, name: &str) -> RuleCounts {
    let rules = engine.rules();
    rules.rules().iter().find(|rule| rule.rule().name == name).unwrap().counted()
}

/// Granted, waited, denied, rerouted, denied by a shadow rule.
fn numbers(counted: RuleCounts) -> [u64; 5] {
    [counted.allowed, counted.delayed, counted.denied, counted.rerouted, counted.shadow_denied]
}

#[test]
fn an_overloaded_machine_denies_and_charges_nothing() {
    let (engine, _) = engine(
        "rules:
  - {name: few, total: 5}
  - {name: overload, load: {memory: 90%}, match: {path: /slow}}
  - {name: watched, load: {connections: 10}, shadow: true}
",
    );
    engine.load().set_memory(0.95);
    engine.load().set_connections(11);
    let slow = diana::rules::attributes::SyntheticRequest::new("GET", "/slow");
    let denied = decide(&engine, &slow);
    assert_eq!(denied.to_string(), "denied by `overload`: overloaded (memory)");
    assert!(matches!(denied.reason(), Some(Reason::Rule { why: DenyReason::Overloaded(Resource::Memory), .. })));
    assert_eq!(denied.retry(), Some(Retry::After(Duration::from_secs(1))));
    // Other requests are granted, and the shadow rule only reports.
    let granted = decide(&engine, &request());
    assert_eq!(granted.to_string(), "granted, closest to `few`: 4 of 5 left");
    assert_eq!(granted.shadow_denials().map(|by| &*by.rule.name).collect::<Vec<_>>(), ["watched"]);
    engine.load().set_memory(0.5);
    assert!(decide(&engine, &slow).is_granted());
    assert_eq!(numbers(counted(&engine, "overload")), [1, 0, 1, 0, 0]);
    assert_eq!(counted(&engine, "watched").shadow_denied, 2);
    assert_eq!(numbers(counted(&engine, "few")), [2, 0, 0, 0, 0]);
}

#[test]
fn a_share_of_requests_is_denied_while_the_cpu_is_overloaded() {
    let (engine, _) = engine("rules: [{name: overload, load: {cpu: 50%}}]");
    engine.load().set_cpu(1.0);
    for tick in 1..20 {
        engine.load().tick(Timestamp::from_millis(tick * 500));
        let _ = decide(&engine, &request());
    }
    let granted = (0..1_000).filter(|_| decide(&engine, &request()).is_granted()).count();
    assert!(granted < 100, "{granted}");
    // The rule keeps its share when other rules change.
    engine.set_rules(&file("rules: [{name: overload, load: {cpu: 50%}}, {name: new, limit: 5000/s}]"));
    let again = (0..1_000).filter(|_| decide(&engine, &request()).is_granted()).count();
    assert!(again.abs_diff(granted) <= 1, "{granted} {again}");
}

#[test]
fn each_rule_counts_the_outcomes_of_its_requests() {
    let rules = "rules:
  - {name: paced, by: account, every: 1s, wait: 10s, queue: 1}
  - {name: two, by: account, total: 2, over: {reroute: 'http://127.0.0.1:3001'}}
  - {name: shadow, by: account, total: 1, shadow: true}
";
    let (engine, _) = engine(rules);
    let waits = (0..3).map(|_| decide(&engine, &account("alice")).wait()).collect::<Vec<_>>();
    assert_eq!(waits, [Some(Duration::ZERO), Some(Duration::from_secs(1)), None]);
    assert_eq!(numbers(counted(&engine, "paced")), [1, 1, 0, 0, 0]);
    assert_eq!(numbers(counted(&engine, "two")), [2, 0, 0, 1, 0]);
    assert_eq!(numbers(counted(&engine, "shadow")), [1, 0, 0, 0, 1]);
    engine.set_rules(&file(&format!("{rules}  - {{name: more, limit: 5/s}}\n")));
    assert!(!decide(&engine, &account("alice")).is_granted());
    assert_eq!(numbers(counted(&engine, "two")), [2, 0, 0, 2, 0], "a change of the rules keeps the counters");
}

#[test]
fn a_queue_bounds_reservations() {
    let (engine, clock) = engine("rules: [{name: a, limit: 1/s, algorithm: smooth_bursty, wait: 1h, queue: 3}]");
    let waits =
        || (0..6).filter_map(|_| decide(&engine, &request()).wait()).map(|wait| wait.as_secs()).collect::<Vec<_>>();
    assert_eq!(waits(), [0, 0, 1, 2, 3]);
    assert!(waits().is_empty());
    clock.advance(Duration::from_secs(2));
    assert_eq!(waits(), [2, 3]);
    clock.advance(Duration::from_secs(60));
    assert_eq!(waits()[0], 0);
}

#[test]
fn an_adaptive_limit_learns_from_responses() {
    let (engine, clock) = engine("rules: [{name: adaptive, by: account, concurrent: adaptive}]");
    // A service whose latency grows with its load.
    let serve = |engine: &Engine, concurrent: usize| {
        let mut verdicts = Vec::new();
        for _ in 0..concurrent {
            let verdict = decide(engine, &account("alice"));
            if verdict.is_granted() {
                verdicts.push(verdict);
            }
        }
        let granted = verdicts.len();
        for mut verdict in verdicts {
            clock.advance(Duration::from_millis(20));
            verdict.answered(ResponseClass::Ok);
            verdict.answered(ResponseClass::Overloaded); // only the first counts
            drop(verdict);
        }
        granted
    };
    assert_eq!(serve(&engine, 50), 20);
    for _ in 0..200 {
        serve(&engine, 50);
    }
    let settled = serve(&engine, 50);
    assert!((1..=6).contains(&settled), "its capacity is one at a time: {settled}");
    assert!(decision_text(&engine, &account("bob")).ends_with("19 of 20 left"), "bob has his own limit");
    // The learned limit outlives a change of other rules.
    engine.set_rules(&file("rules: [{name: adaptive, by: account, concurrent: adaptive}, {name: b, limit: 500/s}]"));
    assert!(serve(&engine, 50) <= 6);
}

#[test]
fn time_spent_waiting_for_the_client_is_not_latency() {
    let (engine, clock) = engine("rules: [{name: adaptive, concurrent: adaptive}]");
    let limit = |engine: &Engine| decide(engine, &request()).checked_limits().next().unwrap().answer.status().limit;
    let upload = |millis: u64, is_reported: bool| {
        let mut verdict = decide(&engine, &request());
        verdict.begin();
        clock.advance(Duration::from_millis(20 + millis));
        if is_reported {
            verdict.waited_for_client(Duration::from_millis(millis));
        }
        verdict.answered(ResponseClass::Ok);
        now(verdict.finish());
    };
    (0..500).for_each(|_| upload(0, false));
    let before = limit(&engine);
    // Uploads of various lengths, which do not make the service slower.
    (0..500).for_each(|index| upload(index * 10, true));
    assert_eq!(limit(&engine), before);
    // Unreported, they lower it.
    (0..500).for_each(|index| upload(index * 10, false));
    assert!(limit(&engine) < before, "{} of {before}", limit(&engine));
}

#[test]
fn an_adaptive_limit_is_lowered_by_overload_responses() {
    let (engine, clock) = engine("rules: [{name: adaptive, concurrent: adaptive, store: local}]");
    for _ in 0..500 {
        let mut verdict = decide(&engine, &request());
        clock.advance(Duration::from_millis(20));
        verdict.answered(ResponseClass::Overloaded);
        now(verdict.finish());
    }
    let verdict = decide(&engine, &request());
    assert!(verdict.checked_limits().next().unwrap().answer.status().limit < 20, "{verdict}");
}

#[test]
fn an_adaptive_limit_is_local_even_if_others_are_shared() {
    let file = file(
        "store: {redis: 'redis://127.0.0.1'}
rules: [{name: a, concurrent: adaptive, limit: 5/h}, {name: b, concurrent: adaptive}]",
    );
    let shared = MemoryStore::default();
    let engine = diana::EngineOptions::of(&file).clock(crate::support::clock()).build_shared(&file, shared);
    let verdict = decide(&engine, &request());
    assert_eq!(verdict.checked_limits().count(), 3);
    assert_eq!((engine.local().len(), engine.shared::<MemoryStore>().unwrap().len()), (2, 1));
    assert!(!verdict.is_fallback());
}
