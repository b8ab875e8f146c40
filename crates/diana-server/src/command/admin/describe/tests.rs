use super::*;
use crate::command::admin::model::{KeyLimit, RuleList, Source, TopKey};

#[test]
fn numbers_are_grouped() {
    for (count, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(number(count), text);
    }
    assert_eq!(number(u64::MAX), "18,446,744,073,709,551,615");
}

#[test]
fn times_have_two_units_at_most() {
    let times = [
        (0.0, "0s"),
        (0.0001, "1ms"),
        (0.25, "250ms"),
        (0.9999, "1s"),
        (1.5, "1.5s"),
        (59.0, "59s"),
        (59.99, "1m 0s"),
        (123.0, "2m 3s"),
        (3_599.9, "1h 0m"),
        (3_900.0, "1h 5m"),
        (f64::NAN, "unknown"),
        (-1.0, "unknown"),
    ];
    for (time, text) in times {
        assert_eq!(seconds(time), text, "{time}");
    }
}

#[test]
fn a_key_is_described_with_its_limits() {
    let limit = |allowed| KeyLimit {
        name: "each".to_owned(),
        limit: 1_000,
        remaining: 3,
        reset: 90.0,
        allowed,
        retry_after: Some(0.5),
    };
    let status = KeyStatus {
        rule: "each".to_owned(),
        key: vec!["alice\u{1b}[2J".to_owned(), "b".to_owned()],
        counted: "shared".to_owned(),
        listed: None,
        limits: vec![limit(true), limit(false)],
    };
    assert_eq!(
        status.describe(),
        "each for alice\u{fffd}[2J, b, counted in Redis\n\
         \u{20} each: 3 of 1,000 left, allowed, full again in 1m 30s\n\
         \u{20} each: 3 of 1,000 left, denied, retry after 500ms, full again in 1m 30s\n"
    );
    let listed = KeyStatus { rule: "r".to_owned(), listed: Some("deny".to_owned()), ..KeyStatus::default() };
    assert_eq!(listed.describe(), "r for everyone\n  listed in `deny`: always denied\n");
}

#[test]
fn a_server_without_the_list_of_degraded_parts_is_understood() {
    let response = r#"{"store": {"up": false, "down_since": "T1", "reason": "connection refused"},
        "source": {"failing": [{"origin": "remote", "what": "no response", "when": "T2"},
                               {"origin": "local", "what": "invalid", "when": "T3"}]}}"#;
    let status = serde_json::from_str::<Status>(response).unwrap();
    let degraded = status.degraded().iter().map(Degraded::describe).collect::<Vec<_>>();
    assert_eq!(
        degraded,
        [
            "Redis unreachable since T1: connection refused",
            "config server failing since T2: no response",
            "rule file invalid since T3: invalid"
        ]
    );
}

#[test]
fn responses_with_missing_and_unknown_fields_are_read() {
    assert_eq!(serde_json::from_str::<Status>("{}").unwrap(), Status::default());
    assert_eq!(serde_json::from_str::<RuleList>(r#"{"new": 1, "rules": [{}]}"#).unwrap().rules.len(), 1);
    let top = r#"{"window": "hour", "rules": [{"rule": "a", "denied": {"keys": [{"key": null, "text": "x…"}]}}]}"#;
    let top = serde_json::from_str::<Top>(top).unwrap();
    assert_eq!(top.rules[0].denied.keys, [TopKey { key: None, text: "x…".to_owned(), ..TopKey::default() }]);
}

#[test]
fn the_status_is_one_line_for_each_part() {
    let status = Status {
        version: "1.0".to_owned(),
        phase: "ready".to_owned(),
        started: "T0".to_owned(),
        requests: [("forwarded".to_owned(), 1_200), ("denied".to_owned(), 3), ("disconnected".to_owned(), 0)].into(),
        keys: 7,
        key_bytes: 2_048,
        rules: 1,
        source: Some(Source {
            active: "remote".to_owned(),
            name: "http://c".to_owned(),
            since: "T1".to_owned(),
            ..Source::default()
        }),
        ..Status::default()
    };
    assert_eq!(
        status.describe("http://127.0.0.1:9090"),
        "diana        1.0 at http://127.0.0.1:9090, ready, started T0\n\
         rules        1 rule from config server http://c, since T1\n\
         requests     3 denied, 1,200 forwarded\n\
         keys         7 in 2 KiB\n\
         connections  0\n"
    );
}

#[test]
fn the_status_has_the_metrics_that_are_shown() {
    let response = r#"{"connections": 1200, "bytes_in": 7, "upstreams": [
        {"address": "http://u", "healthy": true, "requests": 3, "failures": 1, "retries": 5, "p50_ms": 2}]}"#;
    let text = serde_json::from_str::<Status>(response).unwrap().describe("");
    assert!(
        text.contains("\nconnections  1,200\nupstream     http://u healthy, 3 requests, 1 failures, p50 2.0 ms\n"),
        "{text}"
    );
    assert!(!text.contains("bytes_in") && !text.contains('7') && !text.contains("retries"), "{text}");
}
