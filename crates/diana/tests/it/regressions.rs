//! Bugs that were fixed, each with its symptom.

use crate::support::{account, decide, engine, file, now, request, said};
use diana::Verdict;
use diana::rules::attributes::SyntheticRequest;
use std::time::Duration;

/// `by: resource` gave each spelling of a path its own count.
#[test]
fn slashes_give_nobody_another_count() {
    let (engine, _) = engine("rules: [{name: sms, by: [ip, resource], match: {path: /sms}, limit: 1/h}]");
    let get = |path: &str| SyntheticRequest::new("GET", path).ip([203, 0, 113, 7]);
    let granted = (1..50).filter(|slashes| decide(&engine, &get(&format!("{}sms", "/".repeat(*slashes)))).is_granted());
    assert_eq!(granted.count(), 1);
    let (engine, _) =
        crate::support::engine(r#"rules: [{name: sms, match: {when: 'request.path == "/sms"'}, limit: 1/h}]"#);
    assert!(decide(&engine, &get("/sms")).is_granted() && !decide(&engine, &get("//sms")).is_granted());
}

/// Limits were identified by their index alone, so that adding or removing one reset the others.
#[test]
fn a_limit_that_comes_or_goes_beside_others_forgives_nobody() {
    let left = |engine: &diana::Engine| {
        let explained = now(engine.explain(&account("x")));
        explained.rules[0].limits.iter().map(|(_, answer)| answer.status.remaining).collect::<Vec<_>>()
    };
    let (engine, _) = engine("rules: [{name: r, by: account, limit: [100/s, 10/h]}]");
    for _ in 0..10 {
        assert!(decide(&engine, &account("x")).is_granted());
    }
    engine.set_rules(&file("rules: [{name: r, by: account, limit: [10/h, 100/s]}]"));
    assert_eq!(left(&engine), [0, 90]);
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 20/h}]"));
    assert_eq!(left(&engine), [10]);

    let (engine, _) = crate::support::engine("rules: [{name: r, by: account, total: 3}]");
    let held = [(); 3].map(|()| decide(&engine, &account("x")));
    assert!(held.iter().all(Verdict::is_granted));
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 100/s, total: 3}]"));
    assert_eq!(left(&engine), [100, 0]);
}

/// An override was a new limit, and reset its key.
#[test]
fn an_override_that_comes_or_goes_forgives_nobody() {
    let (engine, _) = engine("rules: [{name: r, by: account, limit: 10/h}]");
    for _ in 0..8 {
        assert!(decide(&engine, &account("a")).is_granted());
    }
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 10/h, overrides: {a: 5/h}}]"));
    assert!(!decide(&engine, &account("a")).is_granted(), "eight are used, and five are allowed");
    let left = || now(engine.explain(&account("a"))).rules[0].limits[0].1.status.remaining;
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 10/h}]"));
    assert_eq!(left(), 2, "what was used before the override is neither forgiven nor counted twice");
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 10/h, overrides: {a: 12/h}}]"));
    assert_eq!(left(), 4);
    assert!(decide(&engine, &account("a")).is_granted());
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 10/h}]"));
    assert_eq!(left(), 1, "nine are used");
}

/// A verdict that was dropped, by a panic or a cancellation, never released its permits.
#[test]
fn a_verdict_that_is_dropped_gives_back_its_places() {
    let (engine, _) = engine("rules: [{name: places, concurrent: 1}, {name: shadow, concurrent: 1, shadow: true}]");
    for _ in 0..5 {
        let verdict = decide(&engine, &request());
        assert!(verdict.is_granted() && verdict.shadows().count() == 0);
        assert!(!decide(&engine, &request()).is_granted());
        drop(verdict);
    }
    let verdict = decide(&engine, &request());
    now(engine.finish(verdict));
    let (first, second) = (decide(&engine, &request()), decide(&engine, &request()));
    assert!(first.is_granted() && !second.is_granted(), "what is finished is given back once");
}

/// `finish` released a permit that a denying shadow rule had never acquired.
#[test]
fn a_shadow_that_refuses_gives_nothing_back() {
    let (engine, _) = engine("rules: [{name: s, limit: 1/h, concurrent: 2, shadow: true}]");
    let running = decide(&engine, &request());
    for _ in 0..3 {
        let verdict = decide(&engine, &request());
        assert_eq!(verdict.shadows().count(), 1);
        now(engine.finish(verdict));
    }
    let left = now(engine.explain(&request())).rules[0].limits[1].1.status.remaining;
    assert_eq!(left, 1);
    drop(running);
}

/// A request whose key expression failed was granted, and not counted.
#[test]
fn a_key_that_fails_is_counted_with_the_others_that_fail() {
    let (engine, _) = engine(r#"rules: [{name: r, by: 'cel("string(int(request.query.id) % 10)")', limit: 1/h}]"#);
    let get = |id: &str| SyntheticRequest::new("GET", &format!("/?id={id}"));
    assert!(decide(&engine, &get("x")).is_granted());
    assert_eq!(said(&engine, &get("y")), "denied by `r`: 0 of 1 left, again in 1h");
    assert_eq!(engine.rules().rules()[0].failures(), 2);
    assert!(decide(&engine, &get("13")).is_granted());
    // To look changes nothing.
    let _ = now(engine.explain(&get("z")));
    assert_eq!(engine.rules().rules()[0].failures(), 2);
}

/// Named attributes of `identity` used hosts and addresses without normalisation.
#[test]
fn identity_sees_hosts_and_addresses_as_they_are_compared() {
    let (engine, _) = engine(
        "identity: {shop: 'cel(\"request.host\")', client: ip}
rules: [{name: a, by: shop, limit: 1/h}, {name: b, by: client, limit: 10/h}]",
    );
    let host = |host: &str| request().host(host);
    assert!(decide(&engine, &host("a.com")).is_granted());
    for other in ["A.com", "a.com:80", "a.com."] {
        assert!(!decide(&engine, &host(other)).is_granted(), "{other}");
    }
    let from = |ip: &str| request().ip(ip.parse::<std::net::IpAddr>().unwrap());
    let verdict = decide(&engine, &from("2001:db8::7"));
    assert_eq!(verdict.asked().next().unwrap().key, b"2001:db8::");
    let verdict = decide(&engine, &from("::ffff:203.0.113.9"));
    assert_eq!(verdict.asked().next().unwrap().key, b"203.0.113.9");
}

/// The bound of a queue was validated but not applied.
#[test]
fn a_queue_bounds_those_who_wait() {
    let (engine, _) = engine("rules: [{name: r, limit: 1/s, burst: 1, wait: 100s, queue: 2}]");
    let waits = [(); 4].map(|()| decide(&engine, &request()).wait());
    assert_eq!(waits, [Some(Duration::ZERO), Some(Duration::from_secs(1)), Some(Duration::from_secs(2)), None]);
}

/// Reserved times of cancelled requests stayed, and blocked others.
#[test]
fn who_gives_up_makes_room_in_a_queue() {
    for rule in ["every: 5s", "limit: 1/s, algorithm: smooth_bursty"] {
        let (engine, _) = engine(&format!("rules: [{{name: r, {rule}, wait: 60s, queue: 2}}]"));
        let wait = || decide(&engine, &request());
        // All that need not wait, and the two that may.
        let mut granted = std::iter::repeat_with(wait).take_while(Verdict::is_granted).collect::<Vec<_>>();
        assert!(granted.len() > 2 && !wait().is_granted(), "{rule}");
        for _ in 0..3 {
            for verdict in granted.split_off(granted.len() - 2) {
                now(engine.refund(verdict));
            }
            granted.extend([wait(), wait()]);
            assert!(granted.iter().all(Verdict::is_granted), "{rule}: nobody waits any more");
            assert!(!wait().is_granted(), "{rule}: now two wait again");
        }
        // A decision that nobody takes is given up as well.
        let last = granted.pop().unwrap();
        now(engine.refund(last));
        drop(engine.decide(&request()));
        assert!(wait().is_granted() && !wait().is_granted(), "{rule}");
        // One that has begun has not given up.
        now(engine.finish(granted.pop().unwrap()));
        assert!(!wait().is_granted(), "{rule}");
    }
}
