//! Reading and changing single keys through the admin functions.

use crate::support::{account, decide, engine, now, request};
use diana::rules::rule::CountedIn;
use diana::{Cost, Retry};
use diana::{Engine, KeyStatus};

/// `remaining/limit` of each limit.
fn format_status(status: &KeyStatus) -> String {
    let limits = status.limits.iter().map(|limit| format!("{} {}/{}", limit.name, limit.remaining, limit.limit));
    limits.collect::<Vec<_>>().join(", ")
}

fn peek(engine: &Engine, rule: &str, key: &[&str]) -> String {
    now(engine.peek_key(rule, key)).map_or_else(|error| error.to_string(), |status| format_status(&status))
}

#[test]
fn peek_shows_the_counts_of_requests_and_changes_nothing() {
    let (engine, _clock) = engine("rules: [{name: a, by: account, limit: [5/h, 100/day], overrides: {vip: 9/h}}]");
    for _ in 0..2 {
        assert!(decide(&engine, &account("alice")).is_granted());
    }
    assert!(decide(&engine, &account("vip")).is_granted());
    assert_eq!(peek(&engine, "a", &["alice"]), "a 3/5, a#2 98/100");
    assert_eq!(peek(&engine, "a", &["bob"]), "a 5/5, a#2 100/100");
    assert_eq!(peek(&engine, "a", &["vip"]), "a@vip 8/9");
    // Peeking changes nothing.
    assert_eq!(peek(&engine, "a", &["alice"]), "a 3/5, a#2 98/100");
    let status = now(engine.peek_key("a", &["alice"])).unwrap();
    assert_eq!((status.counted_in, status.limits[0].retry), (CountedIn::Local, None));
}

#[test]
fn keys_are_derived_like_those_of_requests() {
    let text = "
rules:
  - {name: everyone, limit: 5/h}
  - {name: net, by: ip/24, limit: 5/h}
  - {name: both, by: [account, ip], limit: 5/h}
  - {name: none, by: device, missing: shared, limit: 5/h}";
    let (engine, _clock) = engine(text);
    assert!(decide(&engine, &account("alice")).is_granted());
    assert_eq!(peek(&engine, "everyone", &[]), "everyone 4/5");
    assert_eq!(peek(&engine, "net", &["203.0.113.99"]), "net 4/5");
    assert_eq!(peek(&engine, "both", &["alice", "203.0.113.7"]), "both 4/5");
    assert_eq!(peek(&engine, "none", &[]), "none 4/5");
    assert_eq!(peek(&engine, "none", &["d1"]), "none 5/5");
}

#[test]
fn invalid_keys_are_reported() {
    let text = "
rules:
  - {name: everyone, limit: 5/h}
  - {name: both, by: [account, ip], limit: 5/h}
  - {name: ip, by: ip, limit: 5/h}
  - {name: each, by: request, bandwidth: 1KiB/s}
  - {name: slow, by: ip, bandwidth: 1KiB/s}";
    let (engine, _clock) = engine(text);
    let error = |rule, key: &[&str]| peek(&engine, rule, key);
    assert_eq!(error("missing", &[]), "unknown rule `missing`");
    assert_eq!(
        error("everyone", &["alice"]),
        "found one value `alice`; expected no key: `everyone` counts all requests together"
    );
    assert_eq!(error("both", &["alice"]), "found one value `alice`; expected 2 values: `both` counts by account, ip");
    assert_eq!(error("ip", &[]), "missing key; expected one value: `ip` counts by ip");
    assert!(error("ip", &["not-an-ip"]).contains("not-an-ip"), "{}", error("ip", &["not-an-ip"]));
    assert_eq!(error("each", &[]), "rule `each` counts each request separately; expected a rule that counts by key");
    assert_eq!(error("slow", &["203.0.113.7"]), "rule `slow` has no limit that is counted");
}

#[test]
fn resets_charges_and_refunds_change_one_key() {
    let algorithms = [
        "limit: 5/h",
        "limit: 5/h, algorithm: fixed_window",
        "limit: 5/h, algorithm: fixed_window, opens: first_request",
        "limit: 5/h, algorithm: sliding_window",
        "limit: 5/h, algorithm: sliding_log",
        "limit: 5/h, algorithm: leaky_bucket, burst: 4, nodelay: true",
        "total: 5",
    ];
    for algorithm in algorithms {
        let (engine, _clock) = engine(&format!("rules: [{{name: a, by: account, {algorithm}}}]"));
        for _ in 0..5 {
            assert!(decide(&engine, &account("alice")).is_granted(), "{algorithm}");
        }
        assert!(decide(&engine, &account("bob")).is_granted(), "{algorithm}");
        assert_eq!(peek(&engine, "a", &["alice"]), "a 0/5", "{algorithm}");
        assert!(now(engine.peek_key("a", &["alice"])).unwrap().limits[0].retry.is_some(), "{algorithm}");

        let refunded = now(engine.refund_key("a", &["alice"], Cost::new(2).unwrap())).unwrap();
        assert_eq!(format_status(&refunded), "a 2/5", "{algorithm}");
        let charged = now(engine.charge_key("a", &["alice"], Cost::ONE)).unwrap();
        assert_eq!(format_status(&charged), "a 1/5", "{algorithm}");
        assert!(decide(&engine, &account("alice")).is_granted(), "{algorithm}");
        assert!(!decide(&engine, &account("alice")).is_granted(), "{algorithm}");
        let all = now(engine.refund_key("a", &["alice"], Cost::MAX)).unwrap();
        assert_eq!(format_status(&all), "a 5/5", "{algorithm}");
        now(engine.charge_key("a", &["alice"], Cost::new(3).unwrap())).unwrap();
        assert_eq!(format_status(&now(engine.reset_key("a", &["alice"])).unwrap()), "a 5/5", "{algorithm}");
        assert_eq!(peek(&engine, "a", &["bob"]), "a 4/5", "{algorithm}");
    }
}

#[test]
fn permits_of_running_requests_cannot_be_refunded() {
    let (engine, _clock) = engine("rules: [{name: a, by: ip, concurrent: 1}]");
    let running = decide(&engine, &request());
    assert_eq!(now(engine.peek_key("a", &["203.0.113.7"])).unwrap().limits[0].retry, Some(Retry::WhenReleased));
    let error = now(engine.refund_key("a", &["203.0.113.7"], Cost::ONE)).unwrap_err();
    assert!(error.to_string().starts_with("`a` can't be refunded: "), "{error}");
    assert_eq!(format_status(&now(engine.reset_key("a", &["203.0.113.7"])).unwrap()), "a 1/1");
    drop(running);
    assert_eq!(peek(&engine, "a", &["203.0.113.7"]), "a 1/1");
}
