//! Rules that change while requests are decided: counts are kept, and no request sees a half-applied change.

use crate::support::{account, decide, decision_text, engine, file, now};
use diana::rules::attributes::SyntheticRequest;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn unchanged_limits_keep_their_counts() {
    let (engine, _) = engine("rules: [{name: a, by: account, limit: 3/h}, {name: b, limit: 100/h}]");
    assert!(decide(&engine, &account("alice")).is_granted());
    assert!(decide(&engine, &account("alice")).is_granted());
    let before = engine.rules().rules()[0].rule().name.clone();
    engine.set_rules(&file(
        "rules: [{name: new, limit: 100/h}, {name: a, by: account, limit: 3/h, status: 429, match: {path: /**}}]",
    ));
    assert_eq!(before, "a");
    assert_eq!(decision_text(&engine, &account("alice")), "granted, closest to `a` for alice: 0 of 3 left");
    assert_eq!(decide(&engine, &account("alice")).status(), Some(429));
}

#[test]
fn a_changed_limit_keeps_the_usage_of_each_key_clamped() {
    let (engine, _) = engine("rules: [{name: a, by: account, limit: 10/h}]");
    for _ in 0..6 {
        assert!(decide(&engine, &account("alice")).is_granted());
    }
    assert!(decide(&engine, &account("bob")).is_granted());
    let remaining = |name: &str| {
        let explained = now(engine.explain(&account(name)));
        explained.rules[0].limits[0].1.status().remaining
    };
    engine.set_rules(&file("rules: [{name: a, by: account, limit: 20/h}]"));
    assert_eq!((remaining("alice"), remaining("bob"), remaining("carol")), (14, 19, 20));
    engine.set_rules(&file("rules: [{name: a, by: account, limit: 3/h}]"));
    assert_eq!((remaining("alice"), remaining("bob"), remaining("carol")), (0, 2, 3));
    engine.set_rules(&file("rules: [{name: a, by: account, limit: 3/h, algorithm: fixed_window}]"));
    assert_eq!((remaining("alice"), remaining("bob"), remaining("carol")), (0, 2, 3));
}

#[test]
fn a_rule_with_another_key_starts_with_new_counts() {
    let (engine, _) = engine("rules: [{name: a, by: account, limit: 1/h}]");
    assert!(decide(&engine, &account("x")).is_granted());
    engine.set_rules(&file("rules: [{name: a, by: device, limit: 1/h}]"));
    assert!(decide(&engine, &account("x").named("device", "x")).is_granted());
}

#[test]
fn a_removed_rule_leaves_no_counts() {
    let (engine, _) = engine("rules: [{name: a, by: account, total: 5}, {name: b, limit: 1/h}]");
    for index in 0..100 {
        let _ = decide(&engine, &account(&index.to_string()));
    }
    assert!(engine.local().len() > 1);
    engine.set_rules(&file("rules: [{name: b, limit: 1/h}]"));
    assert_eq!(engine.local().len(), 1);
}

#[test]
fn an_in_flight_request_is_released_under_its_own_rules() {
    let (engine, _) = engine("rules: [{name: a, by: account, concurrent: 2}]");
    let (first, second) = (decide(&engine, &account("x")), decide(&engine, &account("x")));
    engine.set_rules(&file("rules: [{name: a, by: account, concurrent: 1}]"));
    assert!(!decide(&engine, &account("x")).is_granted());
    now(first.finish());
    assert!(!decide(&engine, &account("x")).is_granted(), "one is still in flight, and the limit is one");
    now(second.finish());
    assert!(decide(&engine, &account("x")).is_granted());
}

/// A thousand changes while two threads decide. The clock does not advance, so each limit grants exactly its capacity;
/// refunded permits are granted once more.
#[test]
fn a_thousand_changes_under_load_keep_exact_counts() {
    const CHANGES: usize = 1_000;
    // The limits of `total` and `bucket` never change; everything else does. `pair` detects a half-applied change: its
    // two rules are always replaced together.
    let text = |index: usize| {
        let other = index % 7 + 1;
        let pair = if index.is_multiple_of(2) { ("one", "two") } else { ("three", "four") };
        format!(
            "rules:
  - {{name: filler-{other}, match: {{path: /never/{other}}}, limit: {other}/h}}
  - {{name: total, by: account, total: 20000, status: {}}}
  - {{name: bucket, by: account, limit: 30000/day}}
  - {{name: changing, limit: {}/h}}
  - {{name: {}, match: {{path: /pair}}, limit: 1000000/h}}
  - {{name: {}, match: {{path: /pair}}, limit: 1000001/h}}
",
            400 + other,
            1_000_000 + index,
            pair.0,
            pair.1,
        )
    };
    let files = (0..14).map(|index| file(&text(index))).collect::<Vec<_>>();
    let (engine, _) = engine(&text(0));
    let (granted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (alice, pair) = (account("alice"), SyntheticRequest::new("GET", "/pair"));
                while !done.load(Ordering::Relaxed) {
                    let verdict = decide(&engine, &alice);
                    granted.fetch_add(u64::from(verdict.is_granted()), Ordering::Relaxed);
                    let verdict = decide(&engine, &pair);
                    let names =
                        verdict.checked_limits().map(|asked| asked.rule.name.clone()).filter(|name| name != "changing");
                    let names = names.collect::<Vec<_>>().join(" and ");
                    assert!(["one and two", "three and four"].contains(&&*names), "half of a change: {names}");
                    now(verdict.refund());
                }
            });
        }
        for index in 1..=CHANGES {
            engine.set_rules(&files[index % files.len()]);
        }
        // The rest is granted under the last rules.
        while granted.load(Ordering::Relaxed) < 20_000 {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(granted.load(Ordering::Relaxed), 20_000);
    let explanation = now(engine.explain(&account("alice")));
    let remaining = explanation
        .rules
        .iter()
        .flat_map(|rule| rule.limits.iter().map(|(name, answer)| (name.as_str(), answer.status().remaining)));
    let remaining = remaining.filter(|(name, _)| ["total", "bucket"].contains(name)).collect::<Vec<_>>();
    assert_eq!(remaining, [("total", 0), ("bucket", 10_000)]);
}
