//! Reading and changing single keys through the admin functions.

use crate::support::{account, decide, engine, now, request};
use diana::rules::rule::CountedIn;
use diana::{Cost, Retry};
use diana::{Engine, KeyStatus};

/// `remaining/limit` of each limit.
fn shown(status: &KeyStatus) -> String {
    let each = status.limits.iter().map(|limit| format!("{} {}/{}", limit.name, limit.remaining, limit.limit));
    each.collect::<Vec<_>>().join(", ")
}

fn peek(engine: &Engine, rule: &str, key: &[&str]) -> String {
    now(engine.peek_key(rule, key)).map_or_else(|error| error.to_string(), |status| shown(&status))
}

#[test]
fn a_key_is_seen_as_requests_left_it() {
    let (engine, _clock) = engine("rules: [{name: a, by: account, limit: [5/h, 100/day], overrides: {vip: 9/h}}]");
    for _ in 0..2 {
        assert!(decide(&engine, &account("alice")).is_granted());
    }
    assert!(decide(&engine, &account("vip")).is_granted());
    assert_eq!(peek(&engine, "a", &["alice"]), "a 3/5, a#2 98/100");
    assert_eq!(peek(&engine, "a", &["bob"]), "a 5/5, a#2 100/100");
    assert_eq!(peek(&engine, "a", &["vip"]), "a@vip 8/9");
    // Looking changes nothing.
    assert_eq!(peek(&engine, "a", &["alice"]), "a 3/5, a#2 98/100");
    let status = now(engine.peek_key("a", &["alice"])).unwrap();
    assert_eq!((status.home, status.limits[0].retry), (CountedIn::Local, None));
}

#[test]
fn keys_are_those_that_requests_have() {
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
fn what_is_no_key_is_told() {
    let text = "
rules:
  - {name: everyone, limit: 5/h}
  - {name: both, by: [account, ip], limit: 5/h}
  - {name: ip, by: ip, limit: 5/h}
  - {name: each, by: request, bandwidth: 1KiB/s}
  - {name: slow, by: ip, bandwidth: 1KiB/s}";
    let (engine, _clock) = engine(text);
    let said = |rule, key: &[&str]| peek(&engine, rule, key);
    assert_eq!(said("nobody", &[]), "no active rule is named `nobody`");
    assert_eq!(
        said("everyone", &["alice"]),
        "`alice` is one value; expected no key: `everyone` counts everyone together"
    );
    assert_eq!(said("both", &["alice"]), "`alice` is one value; expected 2 values: `both` counts by account, ip");
    assert_eq!(said("ip", &[]), "no key was named; expected one value: `ip` counts by ip");
    assert!(said("ip", &["somebody"]).contains("somebody"), "{}", said("ip", &["somebody"]));
    assert_eq!(said("each", &[]), "each request is its own key in `each`; expected a rule that counts somebody");
    assert_eq!(said("slow", &["203.0.113.7"]), "rule `slow` counts nothing");
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
        assert_eq!(shown(&refunded), "a 2/5", "{algorithm}");
        let charged = now(engine.charge_key("a", &["alice"], Cost::ONE)).unwrap();
        assert_eq!(shown(&charged), "a 1/5", "{algorithm}");
        assert!(decide(&engine, &account("alice")).is_granted(), "{algorithm}");
        assert!(!decide(&engine, &account("alice")).is_granted(), "{algorithm}");
        let all = now(engine.refund_key("a", &["alice"], Cost::MAX)).unwrap();
        assert_eq!(shown(&all), "a 5/5", "{algorithm}");
        now(engine.charge_key("a", &["alice"], Cost::new(3).unwrap())).unwrap();
        assert_eq!(shown(&now(engine.reset_key("a", &["alice"])).unwrap()), "a 5/5", "{algorithm}");
        assert_eq!(peek(&engine, "a", &["bob"]), "a 4/5", "{algorithm}");
    }
}

#[test]
fn what_requests_hold_is_not_refunded_by_hand() {
    let (engine, _clock) = engine("rules: [{name: a, by: ip, concurrent: 1}]");
    let under_way = decide(&engine, &request());
    assert_eq!(now(engine.peek_key("a", &["203.0.113.7"])).unwrap().limits[0].retry, Some(Retry::WhenReturned));
    let error = now(engine.refund_key("a", &["203.0.113.7"], Cost::ONE)).unwrap_err();
    assert!(error.to_string().starts_with("`a` gives back by itself"), "{error}");
    assert_eq!(shown(&now(engine.reset_key("a", &["203.0.113.7"])).unwrap()), "a 1/1");
    drop(under_way);
    assert_eq!(peek(&engine, "a", &["203.0.113.7"]), "a 1/1");
}
