//! The reference of the rule file is complete: no field and no value is missing.

use diana_rules::limit::LimitRule;
use diana_rules::{Document, RuleFile};
use std::collections::BTreeSet;

const REFERENCE: &str = concat!(
    include_str!("../../../../../docs/reference/rule-file.md"),
    include_str!("../../../../../docs/reference/requests-and-keys.md"),
    include_str!("../../../../../docs/reference/limits.md"),
    include_str!("../../../../../docs/reference/algorithms.md"),
    include_str!("../../../../../docs/reference/over-the-limit.md"),
    include_str!("../../../../../docs/reference/counts.md"),
    include_str!("../../../../../docs/reference/gateway-section.md"),
    include_str!("../../../../../docs/tasks/config-server.md"),
);

/// The names that the parser expects in place of the unknown name `~`, from the hints of its errors.
fn expected(yaml: &str) -> Vec<String> {
    let nonsense = yaml.replace('~', "qqqqqqqqqqqqqqqq");
    let read = RuleFile::read(&Document::new("diana.yaml", &*nonsense), &diana_server::registry());
    let problems = read.err().unwrap_or_else(|| panic!("{yaml} is valid")).to_string();
    let lists = problems.split("expected one of ").skip(1).flat_map(|list| list.lines().next());
    let names = lists.flat_map(|list| list.split(", ")).map(|name| name.trim_matches('`').to_owned());
    let names = names.collect::<Vec<_>>();
    assert!(!names.is_empty(), "no names for {yaml}:\n{problems}");
    names
}

#[test]
fn the_reference_lists_every_field_and_value() {
    let registry = diana_server::registry();
    let mut names = LimitRule::fields(&registry).into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    names.extend(registry.algorithms().map(str::to_owned));
    for fields in [
        "{~: 1, rules: []}",
        "{gateway: {listen: '127.0.0.1:1', upstream: http://a, ~: 1}, rules: []}",
        "{gateway: {tls: {listen: '127.0.0.1:1', certificates: {certificate: a, key: b}, ~: 1}}, rules: []}",
        "{gateway: {tls: {listen: '127.0.0.1:1', certificates: {certificate: a, key: b, ~: 1}}}, rules: []}",
        "{gateway: {routes: [{match: {path: /a}, upstream: http://a, ~: 1}]}, rules: []}",
        "{gateway: {routes: [{match: {path: /a, ~: 1}, upstream: http://a}]}, rules: []}",
        "{gateway: {upstream: {url: http://a, ~: 1}}, rules: []}",
        "{gateway: {upstream: http://a, health: {path: /a, ~: 1}}, rules: []}",
        "{gateway: {upstream: http://a, retries: {~: 1}}, rules: []}",
        "{gateway: {signature: {secret: s, ~: 1}}, rules: []}",
        "{gateway: {timeouts: {~: 1}}, rules: []}",
        "{gateway: {bounds: {~: 1}}, rules: []}",
        "{gateway: {paths: {~: 1}}, rules: []}",
        "{gateway: {methods: {~: 1}}, rules: []}",
        "{answer: {type: text/plain, text: a, ~: 1}, rules: []}",
        "{services: {~: 1}, rules: []}",
        "{services: {resp: {listen: '127.0.0.1:1', ~: 1}}, rules: []}",
        "{admin: {listen: '127.0.0.1:1', ~: 1}, rules: []}",
        "{admin: {tokens: [{name: a, token: b, role: read, ~: 1}]}, rules: []}",
        "{identity: {jwt: {secret: s, ~: 1}}, rules: []}",
        "{store: {~: 1}, rules: []}",
        "{remote: {from: http://a/b, ~: 1}}",
        "rules: [{name: a, limit: 1/s, ~: 1}]",
        "rules: [{name: a, limit: {rate: 1/s, ~: 1}}]",
        "rules: [{name: a, limit: 1/s, match: {~: 1}}]",
        "rules: [{name: a, concurrent: {limit: 1, ~: 1}}]",
        "rules: [{name: a, bandwidth: {rate: 1MB/s, ~: 1}}]",
        "rules: [{name: a, load: {~: 1}}]",
        "rules: [{name: a, limit: 1/s, over: {reroute: http://a, ~: 1}}]",
        "rules: [{name: a, by: ip, missing: {deny: 401, ~: 1}}]",
        "rules: [{name: a, concurrent: {limit: 1, ~: 1}}]",
        "rules: [{name: a, limit: 1/s, refill: {tokens: 1, every: 1s, ~: 1}}]",
        "rules: [{name: a, by: ip, limit: 1/s, overrides: [{key: b, limit: 1/s, ~: 1}]}]",
    ] {
        names.extend(expected(fields));
    }
    for words in [
        "rules: [{name: a, by: ip, limit: 1/s, missing: ~}]",
        "rules: [{name: a, limit: 1/s, store: ~}]",
        "rules: [{name: a, limit: 1/s, over: ~}]",
        "rules: [{name: a, limit: 1/s, algorithm: fixed_window, opens: ~}]",
        "rules: [{name: a, limit: 1/s, algorithm: smooth_bursty, starts: ~}]",
        "rules: [{name: a, concurrent: {limit: 1, until: ~}}]",
        "rules: [{name: a, bandwidth: {rate: 1MB/s, of: ~}}]",
        "{gateway: {rate_limit_headers: ~}, rules: []}",
        "{gateway: {access_log: ~}, rules: []}",
        "{gateway: {upstream: http://a, balance: ~}, rules: []}",
        "{gateway: {upstream: http://a, retries: {on: ~}}, rules: []}",
        "{gateway: {paths: {escaped_slash: ~}}, rules: []}",
        "{gateway: {methods: {any_case: ~}}, rules: []}",
        "{admin: {tokens: [{name: a, token: b, role: ~}]}, rules: []}",
        "{store: {on_full: ~}, rules: []}",
        "{store: {redis: 'redis://a', when_down: ~}, rules: []}",
        "{remote: {from: http://a/b, format: ~}}",
        "{remote: {from: http://a/b, when_down: ~}}",
    ] {
        names.extend(expected(words));
    }
    names.extend(["account", "device", "jwt"].map(str::to_owned));
    let is_mentioned = |name: &String| REFERENCE.contains(&format!("`{name}`"));
    let missing = names.iter().filter(|name| !is_mentioned(name)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "the reference does not mention {missing:?}");
    assert!(names.len() > 110, "only {} names were found: {names:?}", names.len());
}
