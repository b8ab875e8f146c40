//! Bugs that were fixed, each with its symptom.

use crate::support::{Decides, account, decide, decision_text, engine, file, now, request};
use diana::rules::attributes::SyntheticRequest;
use std::time::Duration;

/// `by: resource` gave each spelling of a path its own count.
#[test]
fn repeated_slashes_do_not_create_another_count() {
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
fn adding_or_removing_a_limit_keeps_the_counts_of_the_others() {
    let remaining = |engine: &diana::Engine| {
        let explained = now(engine.explain(&account("x")));
        explained.rules[0].limits.iter().map(|(_, answer)| answer.status().remaining).collect::<Vec<_>>()
    };
    let (engine, _) = engine("rules: [{name: r, by: account, limit: [100/s, 10/h]}]");
    for _ in 0..10 {
        assert!(decide(&engine, &account("x")).is_granted());
    }
    engine.set_rules(&file("rules: [{name: r, by: account, limit: [10/h, 100/s]}]"));
    assert_eq!(remaining(&engine), [0, 90]);
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 20/h}]"));
    assert_eq!(remaining(&engine), [10]);

    let (engine, _) = crate::support::engine("rules: [{name: r, by: account, total: 3}]");
    let held = [(); 3].map(|()| decide(&engine, &account("x")));
    assert!(held.iter().all(|decided| decided.is_granted()));
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 100/s, total: 3}]"));
    assert_eq!(remaining(&engine), [100, 0]);
}

/// An override was a new limit, and reset its key.
#[test]
fn adding_or_removing_an_override_keeps_the_counts() {
    let (engine, _) = engine("rules: [{name: r, by: account, limit: 10/h}]");
    for _ in 0..8 {
        assert!(decide(&engine, &account("a")).is_granted());
    }
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 10/h, overrides: {a: 5/h}}]"));
    assert!(!decide(&engine, &account("a")).is_granted(), "eight are used, and the limit is five");
    let remaining = || now(engine.explain(&account("a"))).rules[0].limits[0].1.status().remaining;
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 10/h}]"));
    assert_eq!(remaining(), 2, "usage before the override is neither lost nor counted twice");
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 10/h, overrides: {a: 12/h}}]"));
    assert_eq!(remaining(), 4);
    assert!(decide(&engine, &account("a")).is_granted());
    engine.set_rules(&file("rules: [{name: r, by: account, limit: 10/h}]"));
    assert_eq!(remaining(), 1, "nine are used");
}

/// A verdict that was dropped, by a panic or a cancellation, never released its permits.
#[test]
fn dropping_a_verdict_releases_its_permits() {
    let (engine, _) = engine("rules: [{name: permits, concurrent: 1}, {name: shadow, concurrent: 1, shadow: true}]");
    for _ in 0..5 {
        let verdict = decide(&engine, &request());
        assert!(verdict.is_granted() && verdict.shadow_denials().count() == 0);
        assert!(!decide(&engine, &request()).is_granted());
        drop(verdict);
    }
    let verdict = decide(&engine, &request());
    now(verdict.finish());
    let (first, second) = (decide(&engine, &request()), decide(&engine, &request()));
    assert!(first.is_granted() && !second.is_granted(), "finish releases the permit once");
}

/// `finish` released a permit that a denying shadow rule had never acquired.
#[test]
fn a_denying_shadow_rule_releases_nothing() {
    let (engine, _) = engine("rules: [{name: s, limit: 1/h, concurrent: 2, shadow: true}]");
    let running = decide(&engine, &request());
    for _ in 0..3 {
        let verdict = decide(&engine, &request());
        assert_eq!(verdict.shadow_denials().count(), 1);
        now(verdict.finish());
    }
    let remaining = now(engine.explain(&request())).rules[0].limits[1].1.status().remaining;
    assert_eq!(remaining, 1);
    drop(running);
}

/// A request whose key expression failed was granted, and not counted.
#[test]
fn failed_keys_are_counted_together() {
    let (engine, _) = engine(r#"rules: [{name: r, by: 'cel("string(int(request.query.id) % 10)")', limit: 1/h}]"#);
    let get = |id: &str| SyntheticRequest::new("GET", &format!("/?id={id}"));
    assert!(decide(&engine, &get("x")).is_granted());
    assert_eq!(decision_text(&engine, &get("y")), "denied by `r`: 0 of 1 left, retry after 1h");
    assert_eq!(engine.rules().rules()[0].failures(), 2);
    assert!(decide(&engine, &get("13")).is_granted());
    // Explaining changes nothing.
    let _ = now(engine.explain(&get("z")));
    assert_eq!(engine.rules().rules()[0].failures(), 2);
}

/// Named attributes of `identity` used hosts and addresses without normalisation.
#[test]
fn identity_uses_normalised_hosts_and_addresses() {
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
    assert_eq!(verdict.checked_limits().next().unwrap().key, b"2001:db8::");
    let verdict = decide(&engine, &from("::ffff:203.0.113.9"));
    assert_eq!(verdict.checked_limits().next().unwrap().key, b"203.0.113.9");
}

/// The bound of a queue was validated but not applied.
#[test]
fn a_queue_bounds_waiting_requests() {
    let (engine, _) = engine("rules: [{name: r, limit: 1/s, burst: 1, wait: 100s, queue: 2}]");
    let waits = [(); 4].map(|()| decide(&engine, &request()).wait());
    assert_eq!(waits, [Some(Duration::ZERO), Some(Duration::from_secs(1)), Some(Duration::from_secs(2)), None]);
}

/// Reserved times of cancelled requests stayed, and blocked others.
#[test]
fn a_cancelled_request_frees_its_reservation() {
    for rule in ["every: 5s", "limit: 1/s, algorithm: smooth_bursty"] {
        let (engine, _) = engine(&format!("rules: [{{name: r, {rule}, wait: 60s, queue: 2}}]"));
        let next = || decide(&engine, &request());
        // All requests that need not wait, and the two that may.
        let mut granted = std::iter::repeat_with(next).take_while(|decided| decided.is_granted()).collect::<Vec<_>>();
        assert!(granted.len() > 2 && !next().is_granted(), "{rule}");
        for _ in 0..3 {
            for verdict in granted.split_off(granted.len() - 2) {
                now(verdict.refund());
            }
            granted.extend([next(), next()]);
            assert!(granted.iter().all(|decided| decided.is_granted()), "{rule}: no request waits");
            assert!(!next().is_granted(), "{rule}: now two wait again");
        }
        // A decision that is dropped before it is polled is cancelled, too.
        let last = granted.pop().unwrap();
        now(last.refund());
        drop(engine.check(&request()));
        assert!(next().is_granted() && !next().is_granted(), "{rule}");
        // A finished request keeps its reservation.
        now(granted.pop().unwrap().finish());
        assert!(!next().is_granted(), "{rule}");
    }
}
