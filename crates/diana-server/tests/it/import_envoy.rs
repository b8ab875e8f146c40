//! Configurations of envoyproxy/ratelimit as people have them become the rules beside them.

use crate::support::{compare, folder, read_again};
use diana_server::import::import_envoy;

fn becomes_what_is_beside_it(name: &str) {
    let path = folder("envoy").join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let imported = import_envoy(&format!("{name}.yaml"), &text).unwrap_or_else(|error| panic!("{error}"));
    compare(&path.with_extension("expected.yaml"), &imported.rules);
    let notes = imported.notes.iter().map(|note| format!("{note}\n")).collect::<String>();
    compare(&path.with_extension("expected.notes"), &notes);
    assert!(!read_again(&imported.rules).is_empty());
}

#[test]
fn each_address_at_the_edge() {
    becomes_what_is_beside_it("edge_per_ip");
}

#[test]
fn messages_with_keys_of_their_own() {
    becomes_what_is_beside_it("messages");
}

fn wrong(text: &str) -> String {
    import_envoy("config.yaml", text).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_is_shown() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let twice = wrong(&format!("domain: d\ndescriptors:\n- key: a\n  {limit}\n- key: a\n  {limit}\n"));
    assert!(twice.starts_with("config.yaml:5:8: `a` with this value is there already\n"), "{twice}");
    let typo = wrong("domain: d\ndescriptors:\n- key: a\n  rate_limits: {}\n");
    assert!(typo.contains("config.yaml:4:3: `rate_limits` is no field of a descriptor"), "{typo}");
    assert!(typo.contains("did you mean `rate_limit`?"), "{typo}");
    let unit = wrong("domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: fortnight, requests_per_unit: 1}\n");
    assert!(unit.starts_with("config.yaml:4:22: `fortnight` is no unit\n"), "{unit}");
    assert!(wrong("descriptors: []\n").contains("has no `domain`"));
    assert!(wrong("domain: [").starts_with("config.yaml:1:"));
    assert!(wrong("").contains("the configuration is a map"));
}

#[test]
fn keys_that_would_get_the_same_name_stay_apart() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let text = format!(
        "domain: d\ndescriptors:\n- key: a-b\n  {limit}\n- key: a_b\n  {limit}\n- key: a-b\n  value: x\n  {limit}\n"
    );
    let rules = import_envoy("config.yaml", &text).unwrap().rules;
    assert!(rules.contains("\n    by: a_b\n") && rules.contains("\n    by: a_b_\n"), "{rules}");
    assert!(rules.contains("when: 'a_b == \"x\"'"), "{rules}");
    read_again(&rules);
}

#[test]
fn an_address_that_is_none_is_told() {
    let text = "domain: d\ndescriptors:\n- key: remote_address\n  value: office\n  rate_limit: {unit: second, requests_per_unit: 1}\n";
    let imported = import_envoy("config.yaml", text).unwrap();
    assert!(imported.rules.ends_with("rules: []\n"), "{}", imported.rules);
    assert!(
        imported.notes[0].to_string().starts_with("config.yaml:5: rate_limit: not carried over"),
        "{:?}",
        imported.notes
    );
}

#[test]
fn any_method_and_any_host_can_be_asked_for() {
    let rules = |key: &str, value: &str| {
        let limit = "rate_limit: {unit: second, requests_per_unit: 5}";
        let text = format!("domain: d\ndescriptors: [{{key: '{key}', value: '{value}', {limit}}}]\n");
        let rules = import_envoy("any.yaml", &text).unwrap_or_else(|error| panic!("{error}")).rules;
        read_again(&rules);
        rules
    };
    assert!(rules("method", "GET").contains("\n      method: GET\n"));
    assert!(rules(":authority", "api.example.com").contains("\n      host: api.example.com\n"));
    for (key, value) in [("method", "get"), ("method", "$POST"), (":authority", "a b"), (":authority", "x..y")] {
        let rules = rules(key, value);
        assert!(rules.contains(&format!(" == \"{value}\"'\n")), "{rules}");
    }
}
