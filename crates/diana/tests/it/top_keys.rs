//! The heaviest keys of each rule, and which denials are to be logged.

use crate::support::{account, decide, engine, file};
use diana::Engine;
use diana::ruleset::{KeyOutcome, MAX_LOGGED, TopKeys, Window};
use std::time::Duration;

fn top(engine: &Engine, rule: &str, outcome: KeyOutcome) -> TopKeys {
    engine.rules().named(rule).unwrap().top_keys(outcome, Window::Minute, 10, engine.now())
}

/// Returns the keys and counts.
fn counts(top: &TopKeys) -> Vec<(String, u64)> {
    top.keys.iter().map(|top| (String::from_utf8_lossy(&top.key).into_owned(), top.count)).collect()
}

fn key(name: &str, count: u64) -> (String, u64) {
    (name.to_owned(), count)
}

#[test]
fn the_denied_and_allowed_keys_of_a_rule_are_counted() {
    let (engine, _) = engine("rules: [{name: each-account, by: account, limit: 2/h}]");
    for (name, requests) in [("alice", 7), ("bob", 4), ("carol", 1)] {
        for _ in 0..requests {
            let _ = decide(&engine, &account(name));
        }
    }
    let denied = top(&engine, "each-account", KeyOutcome::Denied);
    assert_eq!(counts(&denied), [key("alice", 5), key("bob", 2)]);
    assert_eq!((denied.total, denied.max_error), (7, 0));
    let allowed = top(&engine, "each-account", KeyOutcome::Allowed);
    assert_eq!(counts(&allowed), [key("alice", 2), key("bob", 2), key("carol", 1)]);
}

#[test]
fn a_shadow_rule_has_the_keys_that_it_would_have_denied() {
    let (engine, _) = engine("rules: [{name: watched, by: account, limit: 1/h, shadow: true}]");
    let verdicts = (0..3).map(|_| decide(&engine, &account("alice"))).collect::<Vec<_>>();
    assert!(verdicts.iter().all(|decided| decided.is_granted()));
    assert_eq!(counts(&top(&engine, "watched", KeyOutcome::Denied)), [key("alice", 2)]);
    let by = verdicts[2].shadow_denials().map(|by| (by.rule.name.clone(), by.key.to_vec())).collect::<Vec<_>>();
    assert_eq!(by, [("watched".to_owned(), b"alice".to_vec())]);
}

#[test]
fn a_listed_key_is_counted_and_named() {
    let (engine, _) = engine("rules: [{name: listed, by: account, limit: 5/h, deny: [mallory]}]");
    let verdict = decide(&engine, &account("mallory"));
    let by = verdict.limited_by().unwrap();
    assert_eq!((by.rule.name.as_str(), by.key), ("listed", &b"mallory"[..]));
    assert_eq!(counts(&top(&engine, "listed", KeyOutcome::Denied)), [key("mallory", 1)]);
}

#[test]
fn a_delayed_key_is_counted_and_named() {
    let (engine, _) = engine("rules: [{name: paced, by: account, limit: 1/s, algorithm: leaky_bucket, burst: 5}]");
    let verdicts = (0..3).map(|_| decide(&engine, &account("alice"))).collect::<Vec<_>>();
    assert_eq!(counts(&top(&engine, "paced", KeyOutcome::Delayed)), [key("alice", 2)]);
    assert!(verdicts[0].limited_by().is_none());
    assert_eq!(verdicts[2].limited_by().unwrap().key, b"alice");
}

#[test]
fn of_several_rules_the_one_that_denies_has_the_key() {
    let (engine, _) =
        engine("rules: [{name: each-account, by: account, limit: 100/h}, {name: each-path, by: resource, limit: 1/h}]");
    for _ in 0..3 {
        let _ = decide(&engine, &account("alice"));
    }
    assert_eq!(counts(&top(&engine, "each-path", KeyOutcome::Denied)), [key("/", 2)]);
    assert_eq!(top(&engine, "each-account", KeyOutcome::Denied).total, 0);
}

#[test]
fn the_first_denial_of_a_key_is_to_be_logged() {
    let (engine, _) = engine("rules: [{name: each-account, by: account, limit: 1/h}]");
    let logged = |name: &str| decide(&engine, &account(name)).has_log_entries();
    assert_eq!([(); 4].map(|()| logged("alice")), [false, true, false, false], "the first is allowed");
    assert_eq!([(); 3].map(|()| logged("bob")), [false, true, false]);
}

#[test]
fn a_key_that_is_denied_all_the_time_is_logged_once_a_minute() {
    let (engine, clock) = engine("rules: [{name: each-account, by: account, limit: 1/day}]");
    let mut logged = 0;
    for _ in 0..300 {
        clock.advance(Duration::from_secs(1));
        logged += u32::from(decide(&engine, &account("alice")).has_log_entries());
    }
    assert!((5..=6).contains(&logged), "in five minutes: {logged}");
    let minute = engine.rules().named("each-account").unwrap().denied_minute(engine.now()).unwrap();
    let heaviest = minute.heaviest.unwrap();
    assert_eq!((heaviest.key.as_slice(), heaviest.count), (&b"alice"[..], 60), "all denials of the last whole minute");
}

#[test]
fn delays_do_not_use_up_the_lines_of_denials() {
    let (engine, _) = engine("rules: [{name: paced, by: account, limit: 1/h, algorithm: leaky_bucket, burst: 1}]");
    for number in 0..20 {
        let name = number.to_string();
        let _ = (decide(&engine, &account(&name)), decide(&engine, &account(&name)));
    }
    assert!(decide(&engine, &account("0")).has_log_entries(), "the first denial, after twenty delayed keys");
}

#[test]
fn a_flood_of_denied_keys_is_to_be_logged_a_few_times() {
    let (engine, clock) = engine("rules: [{name: closed, by: account, limit: 1/h, cost: 2}]");
    let logged = (0..10_000).filter(|number| decide(&engine, &account(&number.to_string())).has_log_entries()).count();
    assert_eq!(logged, MAX_LOGGED);
    let minute = || engine.rules().named("closed").unwrap().denied_minute(engine.now());
    assert_eq!(minute(), None, "the minute is not over");
    clock.advance(Duration::from_secs(60));
    let over = minute().unwrap();
    assert_eq!(over.denied, 10_000);
    assert_eq!(minute(), None, "it is reported once");
}

#[test]
fn log_off_is_silent_and_top_keys_off_records_nothing() {
    let (silent, _) =
        engine("log: off\nrules: [{name: a, by: account, limit: 1/h}, {name: b, by: ip, limit: 1/h, log: warn}]");
    let _ = decide(&silent, &account("alice"));
    assert!(!decide(&silent, &account("alice")).has_log_entries());
    assert_eq!(counts(&top(&silent, "a", KeyOutcome::Denied)), [key("alice", 1)], "they are counted all the same");
    let (off, _) = engine("log: off\ntop_keys: off\nrules: [{name: a, by: account, limit: 1/h}]");
    let _ = (decide(&off, &account("alice")), decide(&off, &account("alice")));
    assert_eq!(top(&off, "a", KeyOutcome::Denied), TopKeys::default());
}

#[test]
fn a_reload_keeps_the_keys() {
    let (engine, _) = engine("rules: [{name: each-account, by: account, limit: 1/h}]");
    let _ = (decide(&engine, &account("alice")), decide(&engine, &account("alice")));
    engine.set_rules(&file("rules: [{name: each-account, by: account, limit: 2/h}]"));
    assert_eq!(counts(&top(&engine, "each-account", KeyOutcome::Denied)), [key("alice", 1)]);
    engine.set_rules(&file("rules: [{name: each-account, by: ip, limit: 2/h}]"));
    assert_eq!(top(&engine, "each-account", KeyOutcome::Denied).total, 0, "another key, other counts");
}

#[test]
fn keys_leave_the_minute_and_the_hour() {
    let (engine, clock) = engine("rules: [{name: each-account, by: account, limit: 1/day}]");
    let _ = (decide(&engine, &account("alice")), decide(&engine, &account("alice")));
    let total = |window| {
        let top = engine.rules().named("each-account").unwrap().top_keys(KeyOutcome::Denied, window, 10, engine.now());
        top.total
    };
    assert_eq!((total(Window::Minute), total(Window::Hour)), (1, 1));
    clock.advance(Duration::from_secs(60));
    assert_eq!((total(Window::Minute), total(Window::Hour)), (0, 1));
    clock.advance(Duration::from_secs(3_600));
    assert_eq!((total(Window::Minute), total(Window::Hour)), (0, 0));
}
