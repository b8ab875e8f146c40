//! Rules that count by the status of the response: looked at before the request, charged or refunded after it; in this
//! process and in the shared store.

use crate::support::{Decides, account, clock, file, now, request};
use diana::rules::attributes::SyntheticRequest;
use diana::store::MemoryStore;
use diana::{ActualCost, Engine, EngineOptions, ManualClock};
use std::time::Duration;

/// The engines of a rule list: with all counts in this process, and with all in a shared store.
fn engines(rules: &str) -> [(Engine, ManualClock); 2] {
    let local = crate::support::engine(&format!("rules: {rules}"));
    let (file, clock) = (file(&format!("store: {{redis: 'redis://127.0.0.1'}}\nrules: {rules}")), clock());
    let shared = EngineOptions::of(&file).clock(clock.clone()).build_shared(&file, MemoryStore::default());
    [local, (shared, clock)]
}

fn status(status: u16) -> ActualCost {
    ActualCost::new().status(status)
}

/// Sends a request whose response has a status; returns `false` if it is denied.
fn send(engine: &Engine, request: &SyntheticRequest, response: u16) -> bool {
    let mut verdict = now(engine.check(request));
    verdict.settle(&status(response));
    verdict.is_granted()
}

fn remaining(engine: &Engine) -> Vec<u64> {
    let explained = now(engine.explain(&account("alice")));
    explained.rules.iter().flat_map(|rule| rule.limits.iter().map(|(_, answer)| answer.status().remaining)).collect()
}

const FAILED: &str = "[{name: failed, by: account, limit: 3/h, algorithm: fixed_window, opens: first_request, \
                      count: {status: [401, 403]}}]";

#[test]
fn only_responses_with_the_status_are_charged_and_requests_are_denied_while_the_count_is_used_up() {
    for (engine, clock) in engines(FAILED) {
        let alice = account("alice");
        for response in [200, 404, 500, 302, 200] {
            assert!(send(&engine, &alice, response));
        }
        assert_eq!(remaining(&engine), [3]);
        for response in [401, 403, 200, 401] {
            assert!(send(&engine, &alice, response));
        }
        assert_eq!(remaining(&engine), [0]);
        let denied = now(engine.check(&alice));
        assert_eq!(denied.to_string(), "denied by `failed` for alice: 0 of 3 left, retry after 1h");
        assert_eq!(denied.denied_by().map(|rule| &*rule.name), Some("failed"));
        assert!(send(&engine, &account("bob"), 401));
        assert_eq!(remaining(&engine), [0], "denials are not charged");
        clock.advance(Duration::from_secs(3_600));
        assert!(send(&engine, &alice, 401));
        assert_eq!(remaining(&engine), [2]);
    }
}

#[test]
fn requests_in_flight_pass_together_and_all_of_them_are_charged() {
    const IN_FLIGHT: usize = 10;
    for (engine, clock) in engines("[{name: failed, by: account, total: 3, count: {status: 401}}]") {
        assert!(send(&engine, &account("alice"), 401));
        let mut running = (0..IN_FLIGHT).map(|_| now(engine.check(&account("alice")))).collect::<Vec<_>>();
        assert!(running.iter().all(|decided| decided.is_granted()), "nothing was charged yet");
        for verdict in &mut running {
            verdict.settle(&status(401));
        }
        clock.advance(Duration::from_secs(1));
        assert!(!send(&engine, &account("alice"), 401));
    }
}

#[test]
fn a_debt_of_requests_in_flight_is_paid_before_the_next_one() {
    for (engine, clock) in engines("[{name: failed, by: account, limit: 60/h, count: {status: 401}}]") {
        let mut running = (0..90).map(|_| now(engine.check(&account("alice")))).collect::<Vec<_>>();
        for verdict in &mut running {
            verdict.settle(&status(401));
        }
        // 90 of 60: 30 minutes until the count is at the limit, and one more for a permit.
        clock.advance(Duration::from_secs(31 * 60 - 1));
        assert!(!send(&engine, &account("alice"), 200));
        clock.advance(Duration::from_secs(1));
        assert!(send(&engine, &account("alice"), 200));
    }
}

#[test]
fn a_response_is_charged_once() {
    for (engine, _) in engines(FAILED) {
        let mut verdict = now(engine.check(&account("alice")));
        for response in [401, 403, 401] {
            verdict.settle(&status(response));
        }
        assert_eq!(remaining(&engine), [2]);
        now(verdict.finish());
        assert_eq!(remaining(&engine), [2]);
    }
}

#[test]
fn without_a_response_a_count_is_not_charged_and_a_refund_stays_charged() {
    let rules = "[{name: failed, by: account, limit: 5/h, count: {status: 5xx}}, \
                 {name: quota, by: account, limit: 5/h, count: {status: 5xx, refund: true}}]";
    for (engine, _) in engines(rules) {
        drop(now(engine.check(&account("alice"))));
        assert_eq!(remaining(&engine), [5, 4]);
        assert!(send(&engine, &account("alice"), 200));
        assert_eq!(remaining(&engine), [5, 3]);
        assert!(send(&engine, &account("alice"), 502));
        assert_eq!(remaining(&engine), [4, 3]);
        // A request that is not carried out at all is refunded, as ever.
        now(now(engine.check(&account("alice"))).refund());
        assert_eq!(remaining(&engine), [4, 3]);
    }
}

#[test]
fn all_limits_of_a_rule_are_charged_at_its_cost_or_at_the_actual_one() {
    let rules = "[{name: failed, by: account, limit: [10/h, 100/day], cost: 3, count: {status: 401}}, \
                 {name: quota, by: account, limit: 100/h, cost: 3, count: {status: 5xx, refund: true}}]";
    for (engine, _) in engines(rules) {
        let costs = |costs: ActualCost| {
            let mut verdict = now(engine.check(&account("alice")));
            assert!(verdict.is_granted());
            verdict.settle(&costs);
        };
        costs(status(401));
        assert_eq!(remaining(&engine), [7, 97, 97]);
        costs(ActualCost::all(1).status(401));
        assert_eq!(remaining(&engine), [6, 96, 96]);
        costs(ActualCost::all(0).status(401));
        assert_eq!(remaining(&engine), [6, 96, 96], "an actual cost of 0");
        costs(ActualCost::all(5).status(200));
        assert_eq!(remaining(&engine), [6, 96, 91], "the status is not meant");
        costs(ActualCost::all(5));
        assert_eq!(remaining(&engine), [6, 96, 86], "no status");
        costs(ActualCost::all(5).status(500));
        assert_eq!(remaining(&engine), [6, 96, 86], "refunded, whatever it cost");
        costs(status(401));
        costs(status(401));
        // What is left does not suffice for the cost of another one.
        assert!(now(engine.check(&account("alice"))).is_granted() == (remaining(&engine)[0] >= 3));
        assert_eq!(remaining(&engine)[0], 0);
    }
}

#[test]
fn a_shadow_rule_is_charged_but_denies_no_request() {
    for (engine, _) in engines("[{name: failed, by: account, total: 2, shadow: true, count: {status: 401}}]") {
        for response in [200, 401, 401, 401, 200] {
            assert!(send(&engine, &account("alice"), response));
        }
        assert_eq!(remaining(&engine), [0]);
        let counts = engine.rules().named("failed").unwrap().counted();
        assert_eq!((counts.allowed, counts.shadow_denied), (3, 2));
    }
}

#[test]
fn other_rules_are_charged_only_if_the_look_grants_the_request() {
    for store in ["", ", store: local"] {
        let rules = format!(
            "[{{name: failed, by: account, total: 1, count: {{status: 401}}}}, {{name: all, by: account, total: 9{store}}}]"
        );
        for (engine, _) in engines_with(&rules, store) {
            assert!(send(&engine, &account("alice"), 401));
            for _ in 0..3 {
                assert!(!send(&engine, &account("alice"), 401));
            }
            assert_eq!(remaining(&engine), [0, 8]);
        }
    }
}

/// Without a shared store, `store: local` is the default.
fn engines_with(rules: &str, store: &str) -> Vec<(Engine, ManualClock)> {
    engines(rules).into_iter().skip(usize::from(store.is_empty()) ^ 1).collect()
}

#[test]
fn a_permit_charges_when_the_head_of_the_response_is_there() {
    let rules = "[{name: failed, by: account, limit: 3/h, count: {status: 401}}, \
                 {name: running, by: account, concurrent: 9}]";
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for (engine, _) in engines(rules) {
            let mut permit = engine.acquire(&account("alice")).await.unwrap();
            permit.settle(status(401));
            engine.background_tasks_finished().await;
            assert_eq!(remaining(&engine), [2, 8], "the body is still being sent");
            let left = permit.checked_limits().find(|asked| asked.rule.name == "failed").unwrap();
            assert_eq!(left.answer.status().remaining, 2, "as the headers report");
            drop(permit);
            engine.background_tasks_finished().await;
            assert_eq!(remaining(&engine), [2, 9]);
        }
    });
}

#[test]
fn a_peek_and_several_requests_are_denied_while_the_count_is_used_up() {
    for (engine, _) in engines("[{name: failed, by: account, total: 1, count: {status: 401}}]") {
        let alice = account("alice");
        assert!(now(engine.peek(&[&alice])).is_granted());
        assert!(now(engine.acquire_all(&[&alice])).is_ok());
        assert_eq!(remaining(&engine), [1], "nobody reported a response");
        assert!(send(&engine, &alice, 401));
        assert!(!now(engine.peek(&[&alice])).is_granted());
        assert!(now(engine.acquire_all(&[&alice])).is_err());
        now(engine.refund_all(&[&alice])).unwrap();
        assert_eq!(remaining(&engine), [0], "a request that was not charged is not refunded");
    }
}

#[test]
fn another_rule_charges_it_where_responses_are_reported_otherwise() {
    let rules = "[{name: failed, by: account, total: 1, match: {path: /login}, count: {status: 401}}, \
                 {name: report, match: {path: /failed}, by: account, charges: failed}]";
    for (engine, _) in engines(rules) {
        let login = || SyntheticRequest::new("GET", "/login").named("account", "alice");
        assert!(now(engine.check(&login())).is_granted());
        assert!(now(engine.check(&login())).is_granted());
        let report = SyntheticRequest::new("GET", "/failed").named("account", "alice");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(engine.check(&report)).is_granted());
        assert!(!now(engine.check(&login())).is_granted());
    }
}

#[test]
fn top_keys_are_those_that_were_charged() {
    for (engine, _) in engines("[{name: failed, by: account, limit: 50/h, count: {status: 401}}]") {
        for (name, response) in [("alice", 401), ("alice", 401), ("bob", 200), ("carol", 401), ("bob", 200)] {
            assert!(send(&engine, &account(name), response));
        }
        let rules = engine.rules();
        let rule = rules.named("failed").unwrap();
        let (outcome, window) = (diana::ruleset::KeyOutcome::Allowed, diana::ruleset::Window::Minute);
        let top = rule.top_keys(outcome, window, 10, engine.now());
        let keys = top.keys.iter().map(|top| (String::from_utf8_lossy(&top.key).into_owned(), top.count));
        assert_eq!(keys.collect::<Vec<_>>(), [("alice".to_owned(), 2), ("carol".to_owned(), 1)]);
    }
}

#[test]
fn an_explanation_names_the_statuses_and_charges_nothing() {
    let rules = "[{name: failed, by: account, total: 5, count: {status: [403, 401]}}, \
                 {name: quota, total: 5, count: {status: 5xx, refund: true}}]";
    for (engine, _) in engines(rules) {
        let text = now(engine.explain(&account("alice"))).to_string();
        assert_eq!(
            text,
            "✓ failed: counted for alice, if the response is 401 or 403\n    failed: 5 of 5 left, granted\n\
             ✓ quota: counted with all requests, refunded if the response is 5xx\n    quota: 5 of 5 left, granted\n\
             => granted\n"
        );
    }
}

#[test]
fn a_request_without_the_key_is_neither_looked_at_nor_charged() {
    for (engine, _) in engines(FAILED) {
        assert!((0..9).all(|_| send(&engine, &request(), 401)));
        assert_eq!(remaining(&engine), [3]);
    }
}
