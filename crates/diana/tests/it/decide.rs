//! One decision over all rules that match a request.

use crate::support::{Decides, account, decide, decision_text, engine, now, request};
use diana::Retry;
use diana::rules::rule::OverLimit;
use diana::ruleset::DenyReason;
use diana::{Engine, Reason};
use std::time::Duration;

#[test]
fn all_rules_grant_or_none_is_charged() {
    let (engine, _) = engine(
        "rules:
  - {name: everyone, limit: 3/h}
  - {name: each-account, by: account, limit: 1/h, status: 429}
",
    );
    assert_eq!(decision_text(&engine, &account("alice")), "granted, closest to `each-account` for alice: 0 of 1 left");
    let denied = decide(&engine, &account("alice"));
    assert_eq!(denied.to_string(), "denied by `each-account` for alice: 0 of 1 left, retry after 1h");
    assert_eq!((denied.status(), denied.over_limit()), (Some(429), Some(&OverLimit::Deny)));
    // Alice's denials cost the others nothing.
    assert_eq!(decision_text(&engine, &account("bob")), "granted, closest to `each-account` for bob: 0 of 1 left");
    assert_eq!(decision_text(&engine, &account("carol")), "granted, closest to `everyone`: 0 of 3 left");
    assert_eq!(decision_text(&engine, &account("dave")), "denied by `everyone`: 0 of 3 left, retry after 20min");
    assert_eq!(decide(&engine, &account("dave")).status(), Some(503));
}

#[test]
fn a_request_that_no_rule_matches_is_granted() {
    let (engine, _) = engine("rules: [{name: sms, match: {path: /sms}, limit: 1/h}]");
    assert_eq!(decision_text(&engine, &request()), "granted: no rule matches");
}

#[test]
fn several_limits_of_one_rule_hold_together() {
    let (engine, clock) = engine("rules: [{name: a, by: account, limit: [{rate: 1/s, burst: 2}, 3/h]}]");
    assert_eq!(decision_text(&engine, &account("x")), "granted, closest to `a` for x: 1 of 2 left");
    assert_eq!(decision_text(&engine, &account("x")), "granted, closest to `a` for x: 0 of 2 left");
    assert_eq!(decision_text(&engine, &account("x")), "denied by `a` for x: 0 of 2 left, retry after 1s");
    clock.advance(Duration::from_secs(10));
    assert_eq!(decision_text(&engine, &account("x")), "granted, closest to `a#2` for x: 0 of 3 left");
    assert_eq!(decision_text(&engine, &account("x")), "denied by `a#2` for x: 0 of 3 left, retry after 19.834min");
}

#[test]
fn an_override_replaces_the_limit_of_its_key() {
    let (engine, _) = engine(
        "rules:
  - {name: a, by: account, limit: 1/h, algorithm: fixed_window, overrides: {vip: 2/h, none: {total: 1}}}
  - name: pair
    by: [account, ip]
    limit: 100/h
    overrides: [{key: [vip, 203.0.113.7], limit: 1/h}]
",
    );
    assert_eq!(decision_text(&engine, &account("bob")), "granted, closest to `a` for bob: 0 of 1 left");
    assert_eq!(
        decision_text(&engine, &account("vip")),
        "granted, closest to `pair@vip, 203.0.113.7` for vip, 203.0.113.7: 0 of 1 left"
    );
    assert!(decision_text(&engine, &account("vip")).starts_with("denied by `pair@vip, 203.0.113.7`"));
    assert!(decide(&engine, &account("none")).is_granted());
    assert_eq!(decide(&engine, &account("none")).retry(), Some(Retry::Never));
}

#[test]
fn lists_allow_and_deny_before_anything_is_counted() {
    let (engine, _) = engine(
        "rules:
  - {name: a, by: account, limit: 1/h, allow: [10.0.0.0/8, vip], deny: [203.0.113.0/24, mallory]}
  - {name: everyone, limit: 100/h}
",
    );
    for _ in 0..3 {
        assert!(decide(&engine, &account("vip").ip([192, 0, 2, 1])).is_granted());
        assert!(decide(&engine, &account("bob").ip([10, 1, 2, 3])).is_granted());
    }
    let denied = decide(&engine, &account("mallory").ip([192, 0, 2, 1]));
    assert_eq!(denied.to_string(), "denied by `a`: listed in `deny`");
    assert!(matches!(denied.reason(), Some(Reason::Rule { why: DenyReason::Listed, .. })));
    assert_eq!(denied.retry(), Some(Retry::Never));
    assert_eq!(decision_text(&engine, &account("bob")), "denied by `a`: listed in `deny`");
    // Six were counted, and the two that were denied were not.
    assert_eq!(decision_text(&engine, &request().ip([192, 0, 2, 1])), "granted, closest to `everyone`: 93 of 100 left");
}

#[test]
fn a_request_without_the_key_is_skipped_denied_or_counted_together() {
    for (missing, first, second) in [
        ("skip", "granted: no rule matches", "granted: no rule matches"),
        ("deny", "denied by `a`: missing account", "denied by `a`: missing account"),
        ("shared", "granted, closest to `a`: 0 of 1 left", "denied by `a`: 0 of 1 left, retry after 1h"),
    ] {
        let (engine, _) = engine(&format!("rules: [{{name: a, by: account, limit: 1/h, missing: {missing}}}]"));
        assert_eq!(decision_text(&engine, &request()), first, "{missing}");
        assert_eq!(decision_text(&engine, &request()), second, "{missing}");
        assert!(decide(&engine, &account("alice")).is_granted());
    }
}

#[test]
fn a_cost_is_a_number_or_an_expression() {
    let (engine, _) = engine(
        r#"rules:
  - {name: fixed, match: {path: /fixed}, limit: 10/h, cost: 4}
  - {name: tokens, match: {path: /tokens}, limit: 1000/h, cost: 'int(request.headers["x-tokens"])'}
"#,
    );
    let get = |path: &str| diana::rules::attributes::SyntheticRequest::new("GET", path);
    assert_eq!(decision_text(&engine, &get("/fixed")), "granted, closest to `fixed`: 6 of 10 left");
    let tokens = |count: &str| decision_text(&engine, &get("/tokens").header("x-tokens", count));
    assert_eq!(tokens("600"), "granted, closest to `tokens`: 400 of 1000 left");
    assert_eq!(tokens("600"), "denied by `tokens`: 400 of 1000 left, retry after 12min");
    assert_eq!(tokens("0"), "granted, closest to `tokens`: 399 of 1000 left");
    assert_eq!(tokens("5000"), "denied by `tokens`: 399 of 1000 left, retrying does not help");
    let failed = "denied by `tokens`: its cost can't be computed, and there is no `cost_default`";
    assert_eq!(tokens("many"), failed);
    assert_eq!(engine.rules().rules()[1].failures(), 1);
}

#[test]
fn a_when_that_fails_matches() {
    let (engine, _) = engine("rules: [{name: a, match: {when: 'int(request.query.n) > 5'}, limit: 1/h}]");
    let get = |path: &str| diana::rules::attributes::SyntheticRequest::new("GET", path);
    assert_eq!(decision_text(&engine, &get("/?n=5")), "granted: no rule matches");
    assert!(decision_text(&engine, &get("/?n=six")).starts_with("granted, closest to `a`"));
    assert_eq!(engine.rules().rules()[0].failures(), 1);
}

#[test]
fn shadow_rules_count_and_deny_no_request() {
    let (engine, _) = engine(
        "rules:
  - {name: real, limit: 3/h}
  - {name: shadow, limit: 1/h, shadow: true}
  - {name: list, by: ip, deny: [203.0.113.0/24], shadow: true}
",
    );
    let shadows =
        |verdict: &diana::Verdict| verdict.shadow_denials().map(|by| by.rule.name.clone()).collect::<Vec<_>>();
    let verdict = decide(&engine, &request());
    assert!(verdict.is_granted());
    assert_eq!(shadows(&verdict), ["list"]);
    assert_eq!(shadows(&decide(&engine, &request())), ["list", "shadow"]);
    assert!(decide(&engine, &request()).is_granted());
    // Requests that active rules deny are not counted by shadow rules.
    let denied = decide(&engine, &request());
    assert!(!denied.is_granted());
    let shadow_denials =
        engine.rules().rules().iter().map(diana::ruleset::CompiledRule::shadow_denials).collect::<Vec<_>>();
    assert_eq!(shadow_denials, [0, 2, 3]);
}

#[test]
fn each_rule_waits_up_to_its_own_maximum() {
    let (engine, _) = engine(
        "rules:
  - {name: waits, by: account, limit: 1/s, wait: 2s}
  - {name: queue, match: {path: /queue}, limit: 10/s, algorithm: leaky_bucket, burst: 2}
  - {name: immediate, match: {path: /immediate}, limit: 100/s, burst: 1}
",
    );
    assert_eq!(decide(&engine, &account("a")).wait(), Some(Duration::ZERO));
    assert_eq!(decide(&engine, &account("a")).wait(), Some(Duration::from_secs(1)));
    assert_eq!(decide(&engine, &account("a")).wait(), Some(Duration::from_secs(2)));
    assert_eq!(decide(&engine, &account("a")).retry(), Some(Retry::After(Duration::from_secs(1))));
    let queue = diana::rules::attributes::SyntheticRequest::new("GET", "/queue");
    let waits = [(); 4].map(|()| decide(&engine, &queue).wait().map(|wait| wait.as_millis()));
    assert_eq!(waits, [Some(0), Some(100), Some(200), None]);
    // A rule without `wait` denies immediately, even if another rule would wait.
    let immediate = diana::rules::attributes::SyntheticRequest::new("GET", "/immediate").named("account", "b");
    assert!(decide(&engine, &immediate).is_granted());
    assert_eq!(decision_text(&engine, &immediate), "denied by `immediate`: 0 of 1 left, retry after 10ms");
    assert_eq!(
        decide(&engine, &account("b")).wait(),
        Some(Duration::from_secs(1)),
        "the denied request was not charged"
    );
}

#[test]
fn permits_are_released_when_the_request_finishes() {
    let (engine, _) = engine("rules: [{name: uploads, by: ip, concurrent: 1}, {name: rate, limit: 3/h}]");
    let first = decide(&engine, &request());
    assert!(first.is_granted());
    assert_eq!(
        decision_text(&engine, &request()),
        "denied by `uploads` for 203.0.113.7: 0 of 1 left, retry when a permit is released"
    );
    now(first.finish());
    let second = decide(&engine, &request());
    assert!(second.is_granted(), "the permit is released, and the rate was charged once");
    now(second.refund());
    let third = decide(&engine, &request());
    assert_eq!(third.to_string(), "granted, closest to `uploads` for 203.0.113.7: 0 of 1 left");
    let remaining = third.checked_limits().find(|asked| asked.rule.name == "rate").unwrap().answer.status().remaining;
    assert_eq!(remaining, 1, "two of three are used: the refunded one is not");
}

#[test]
fn an_explanation_has_the_result_of_each_rule() {
    let (engine, _) = engine(
        r#"rules:
  - {name: everyone, limit: 3/h}
  - {name: each-account, by: account, limit: [1/h, 5/day]}
  - {name: post, match: {method: POST}, limit: 1/h}
  - {name: search, match: {path: /search/**}, limit: 1/h}
  - {name: vip, by: account, limit: 1/h, allow: [alice]}
  - {name: device, by: device, limit: 1/h}
  - {name: strict, by: device, limit: 1/h, missing: deny, shadow: true}
  - {name: plan, match: {header: {x-plan: free}}, limit: 1/h}
  - {name: free, limit: 1/h, cost: 'int(request.query.n)', cost_min: 0, match: {when: 'request.query.n == "0"'}}
"#,
    );
    let alice = diana::rules::attributes::SyntheticRequest::new("GET", "/?n=0").named("account", "alice");
    let text = now(engine.explain(&alice)).to_string();
    assert_eq!(
        text,
        "\
✓ everyone: counted with all requests
    everyone: 3 of 3 left, granted
✓ each-account: counted for alice
    each-account: 1 of 1 left, granted
    each-account#2: 5 of 5 left, granted
- post: the method does not match
- search: the path does not match
- vip: listed in `allow`, not counted
- device: not counted: missing device
✗ strict (shadow): denied: missing device
- plan: header(x-plan) is missing or does not match
- free: cost 0, not counted
=> granted
"
    );
    // Nothing was charged by explaining.
    assert!(decide(&engine, &alice).is_granted());
    let text = now(engine.explain(&alice)).to_string();
    assert!(text.contains("each-account: 0 of 1 left, denied, retry after 1h"), "{text}");
    assert!(text.ends_with("=> denied by `each-account`\n"), "{text}");
}

#[test]
fn an_engine_can_be_shared_by_threads() {
    fn is_shared<T: Send + Sync + 'static>() {}
    fn is_sent<T: Send>(_: T) {}
    is_shared::<Engine>();
    let (engine, _) = engine("rules: [{name: a, limit: 1/h}]");
    is_sent(engine.check(&request()));
    is_sent(engine.explain(&request()));
}

/// As two zones of nginx: a flood of one rule's keys leaves the other rule its memory.
#[test]
fn the_memory_of_a_rule_bounds_its_keys() {
    let rules = |memory: &str| {
        format!(
            "store: {{memory: 8MiB, on_full: deny}}
rules:
  - {{name: flooded, by: header(x), memory: {memory}, limit: [2/h, 20/day], overrides: {{vip: 5/h}}}}
  - {{name: other, by: account, limit: 2/h}}
"
        )
    };
    let (engine, _) = engine(&rules("1MiB"));
    let flood = |from: u32| {
        for number in from..from + 100_000 {
            let _ = decide(&engine, &request().header("x", format!("{number}")));
        }
        let usage = engine.local().usage();
        let of = |name: &str| {
            engine.with_rules(|rules| {
                rules
                    .named(name)
                    .unwrap()
                    .all_limits()
                    .map(|limit| usage.get(&limit.id()).map_or(0, |usage| usage.bytes))
                    .sum::<usize>()
            })
        };
        (of("flooded"), of("other"))
    };
    let (flooded, _) = flood(0);
    assert!((800_000..=1 << 20).contains(&flooded), "{flooded}");
    assert!(!decide(&engine, &request().header("x", "new")).is_granted(), "`on_full: deny`");
    assert!((0..1_000).all(|number| decide(&engine, &account(&format!("{number}"))).is_granted()));
    // A reload enlarges it, and keeps the counts.
    engine.set_rules(&crate::support::file(&rules("2MiB")));
    assert_eq!(flood(200_000).0 / (1 << 20), 1);
    assert!(decide(&engine, &request().header("x", "0")).is_granted());
    assert!(!decide(&engine, &request().header("x", "0")).is_granted());
}
