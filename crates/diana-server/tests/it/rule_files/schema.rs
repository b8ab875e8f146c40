//! The schema and the parser agree.

use super::valid::VALID;
use crate::common::read;
use diana_rules::document::{Node, Value as Tree};
use diana_rules::{Document, RuleFile, schema};
use jsonschema::Validator;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeSet;

fn validator() -> Validator {
    jsonschema::draft202012::new(&schema::rule_file(&diana_server::registry()))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A document as an editor sees it.
fn as_json(node: &Node) -> Value {
    match &node.value {
        Tree::Null => Value::Null,
        Tree::Bool(value) => json!(value),
        Tree::Number(text) => {
            let number = text
                .parse::<u64>()
                .map(|number| json!(number))
                .or_else(|_| text.parse::<f64>().map(|number| json!(number)));
            number.ok().filter(|number| !number.is_null()).unwrap_or_else(|| json!(text))
        }
        Tree::Text(text) => json!(text),
        Tree::List(items) => items.iter().map(as_json).collect(),
        Tree::Map(entries) => {
            Value::Object(entries.iter().map(|entry| (entry.key.clone(), as_json(&entry.node))).collect())
        }
    }
}

fn valid_files() -> impl Iterator<Item = Value> {
    VALID.iter().map(|text| {
        as_json(&Document::new("valid.yaml", *text).parse().unwrap_or_else(|problems| panic!("{problems}")))
    })
}

#[test]
fn the_schema_is_valid() {
    let schema = schema::rule_file(&diana_server::registry());
    jsonschema::draft202012::meta::validate(&schema).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn valid_files_are_accepted_by_both() {
    let validator = validator();
    for file in valid_files() {
        let errors =
            validator.iter_errors(&file).map(|error| format!("{}: {error}", error.instance_path())).collect::<Vec<_>>();
        assert!(errors.is_empty(), "{errors:#?}\n{file}");
    }
}

/// A location of a field, as `@`, and its fields in the schema.
const MAPS: &[(&str, &str)] = &[
    ("{rules: [], @: 5}", "/properties"),
    ("{rules: [], gateway: {@: 5}}", "/properties/gateway/properties"),
    ("{rules: [], gateway: {tls: {@: 5}}}", "/properties/gateway/properties/tls/properties"),
    (
        "{rules: [], gateway: {tls: {certificates: {@: 5}}}}",
        "/properties/gateway/properties/tls/properties/certificates/anyOf/0/properties",
    ),
    ("{rules: [], gateway: {routes: [{@: 5}]}}", "/properties/gateway/properties/routes/items/properties"),
    (
        "{rules: [], gateway: {routes: [{match: {@: 5}}]}}",
        "/properties/gateway/properties/routes/items/properties/match/properties",
    ),
    ("{rules: [], gateway: {upstream: {@: 5}}}", "/properties/gateway/properties/upstream/anyOf/0/anyOf/1/properties"),
    ("{rules: [], gateway: {health: {@: 5}}}", "/properties/gateway/properties/health/anyOf/1/properties"),
    ("{rules: [], gateway: {retries: {@: 5}}}", "/properties/gateway/properties/retries/properties"),
    ("{rules: [], gateway: {signature: {@: 5}}}", "/properties/gateway/properties/signature/properties"),
    ("{rules: [], gateway: {timeouts: {@: 5}}}", "/properties/gateway/properties/timeouts/properties"),
    ("{rules: [], gateway: {bounds: {@: 5}}}", "/properties/gateway/properties/bounds/properties"),
    ("{rules: [], gateway: {paths: {@: 5}}}", "/properties/gateway/properties/paths/properties"),
    ("{rules: [], gateway: {methods: {@: 5}}}", "/properties/gateway/properties/methods/properties"),
    ("{rules: [], answer: {@: 5}}", "/$defs/answer/properties"),
    ("{rules: [], admin: {@: 5}}", "/properties/admin/properties"),
    ("{rules: [], admin: {tokens: [{@: 5}]}}", "/properties/admin/properties/tokens/items/properties"),
    ("{rules: [], identity: {jwt: {@: 5}}}", "/properties/identity/properties/jwt/properties"),
    ("{rules: [], store: {@: 5}}", "/properties/store/properties"),
    ("{rules: [], remote: {@: 5}}", "/properties/remote/properties"),
    ("{rules: [{@: 5}]}", "/$defs/rule/properties"),
    ("{rules: [{name: a, concurrent: {@: 5}}]}", "/$defs/rule/properties/concurrent/anyOf/2/properties"),
    ("{rules: [{name: a, match: {@: 5}}]}", "/$defs/rule/properties/match/properties"),
    ("{rules: [{name: a, bandwidth: {@: 5}}]}", "/$defs/rule/properties/bandwidth/anyOf/1/properties"),
    ("{rules: [{name: a, load: {@: 5}}]}", "/$defs/rule/properties/load/properties"),
    ("{rules: [{name: a, over: {@: 5}}]}", "/$defs/rule/properties/over/anyOf/2/properties"),
    ("{rules: [{name: a, by: account, missing: {@: 5}}]}", "/$defs/rule/properties/missing/anyOf/2/properties"),
    ("{rules: [{name: a, limit: 5/s, refill: {@: 5}}]}", "/$defs/rule/properties/refill/properties"),
    ("{rules: [{name: a, by: ip, limit: 5/s, overrides: [{@: 5}]}]}", "/$defs/override_of_key/properties"),
];

#[test]
fn parser_and_schema_have_the_same_fields() {
    let schema = schema::rule_file(&diana_server::registry());
    for (map, fields) in MAPS {
        let schema_fields = schema.pointer(fields).and_then(Value::as_object).unwrap_or_else(|| panic!("{fields}"));
        let schema_fields = schema_fields.keys().cloned().collect::<BTreeSet<_>>();
        for field in &schema_fields {
            let problems = read(&map.replace('@', field)).err().unwrap_or_default();
            let is_unknown = |line: &str| line.contains(": unknown ") && line.contains(&format!(" field `{field}`"));
            assert!(!problems.lines().any(is_unknown), "{map}: {problems}");
        }
        // The parser lists the known fields when it reports an unknown one.
        let problems = read(&map.replace('@', "zzzzzzzz")).unwrap_err();
        let known =
            problems.split("expected one of ").nth(1).unwrap_or_else(|| panic!("{problems}")).lines().next().unwrap();
        let known = known.split(", ").map(|word| word.trim_matches('`').to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(known, schema_fields, "{map}");
    }
}

#[test]
fn parser_and_schema_have_the_same_limit_options() {
    let schema = schema::rule_file(&diana_server::registry());
    let schema_fields = schema.pointer("/$defs/limit/anyOf/1/properties").and_then(Value::as_object).unwrap();
    let mut known = BTreeSet::new();
    for algorithm in diana_server::registry().algorithms() {
        let problems =
            read(&format!("rules: [{{name: a, limit: {{rate: 5/s, algorithm: {algorithm}, zzzzzzzz: 5}}}}]"))
                .unwrap_err();
        let options =
            problems.split("expected one of ").nth(1).unwrap_or_else(|| panic!("{problems}")).lines().next().unwrap();
        known.extend(options.split(", ").map(|word| word.trim_matches('`').to_owned()));
    }
    assert_eq!(known, schema_fields.keys().cloned().collect());
}

#[test]
fn every_field_is_described() {
    fn visit(schema: &Value, pointer: &str) {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            assert!(property.get("description").is_some(), "{pointer}/{name}");
        }
        match schema {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| visit(value, &format!("{pointer}/{name}"))),
            Value::Array(items) => items.iter().for_each(|value| visit(value, pointer)),
            _ => {}
        }
    }
    visit(&schema::rule_file(&diana_server::registry()), "");
}

#[test]
fn registered_extensions_are_in_the_schema() {
    let mut registry = diana_server::registry();
    registry.algorithm("mine", &["colour", "burst"], |_, _| None);
    registry.key("first_segment", |_| None);
    registry.matcher("weekday", |_, _| None);
    let validator = jsonschema::draft202012::new(&schema::rule_file(&registry)).unwrap();
    let file = json!({"rules": [{"name": "a", "by": "first_segment", "match": {"weekday": [1]}, "limit": "5/s",
        "algorithm": "mine", "colour": {"any": "thing"}, "burst": "anything"}]});
    assert!(validator.is_valid(&file));
    assert!(!self::validator().is_valid(&file));
}

/// All locations in a document, as JSON pointers.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| pointers(value, &format!("{at}/{name}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| pointers(value, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

#[test]
fn invalid_types_are_rejected_by_both() {
    let validator = validator();
    let assert_rejected = |file: &Value, what: &str| {
        assert!(read(&file.to_string()).is_err(), "the parser accepts {what}");
        assert!(!validator.is_valid(file), "the schema accepts {what}");
    };
    let mut checked = 0;
    for valid in valid_files() {
        let mut found = Vec::new();
        pointers(&valid, "", &mut found);
        for pointer in found {
            // An entry of a descriptor may have no value.
            let is_entry =
                pointer.contains("/match/descriptor/") && !pointer.ends_with(|last: char| last.is_ascii_digit());
            for errors in [json!({"zzz": []}), json!(null), json!([[true]])] {
                if is_entry && errors.is_null() {
                    continue;
                }
                let mut file = valid.clone();
                *file.pointer_mut(&pointer).unwrap() = errors.clone();
                assert_rejected(&file, &format!("{pointer}: {errors} in {valid}"));
            }
            let mut file = valid.clone();
            let value = file.pointer_mut(&pointer).unwrap();
            if let Value::Object(fields) = value {
                fields.insert("zzz".to_owned(), json!({"zzz": []}));
                assert_rejected(&file, &format!("zzz in {pointer} of {valid}"));
            // `call` may be `true`; only other fields of the rule can make that invalid.
            } else if !value.is_boolean() && !pointer.ends_with("/match/call") {
                *value = json!(true);
                assert_rejected(&file, &format!("{pointer}: true in {valid}"));
            }
            checked += 1;
        }
    }
    assert!(checked > 300, "{checked}");
}

/// Values of all types, each valid somewhere.
const VALUES: &str = r#"null | true | false | 0 | 1 | 5 | -1 | 1.5 | 429 | 1e3 | "" | "5" | "007" | "1_000" | "_" | "+5" | "429" | "x" | "é"
 | "100/s" | "0.5/s" | "1.5/s" | "5/10min" | "1 per 200ms" | " 5 / s " | "5/s burst 7" | "0/s" | "5/S" | "200ms" | " 5 min" | "s" | "5µs" | "0s" | "10MiB" | "1 b"
 | "512KiB/s" | "1Mbit/ 5 s" | "85%" | "99.5 %" | "ip" | " ip/24 " | "ip/+24" | "header (x)" | "cel(\"a\nb\")" | "account" | "global"
 | "/a" | "/{id}/**" | "GET" | "a.b" | "10.0.0.0/8" | "::1" | "::ffff:10.0.0.1" | "http://a" | "https://a:1/" | "redis://a" | "etcd://a"
 | "0.0.0.0:80" | "127.0.0.1:80" | "h2c://a" | "HTTP://a" | "both" | "off" | "json" | {"type": "text/plain", "text": 5} | {"secret": "s"}
 | {"listen": "0.0.0.0:443", "certificates": {"certificate": "a", "key": "b"}} | [{"match": {"path": "/a"}, "upstream": "http://a"}]
 | {"limit": 5, "until": "upstream_done"} | {"limit": 0} | {"until": "upstream_done"} | {"header": "64KiB", "streams": 5} | {"header": "5s", "idle": "1h"} | "deny" | "reroute" | "divert" | "skip" | "shared" | "local" | "auto" | "adaptive" | "fixed_window" | "leaky_bucket" | "clock" | "UTC"
 | [] | {} | ["a"] | ["ip", "host"] | ["5/s", "7/h"] | [["a"]] | {"a": "5/s"} | {"rate": "5/s"} | {"rate": "5/s", "burst": 5}
 | {"tokens": 5, "every": "1s"} | {"cpu": "5%"} | {"path": "/a"} | {"header": {"x": [1, "b*"]}} | {"reroute": "http://a"} | {"divert": "http://a"} | {"reroute": "http://a", "divert": "http://a"} | {"rate": "5B/s"}
 | "header(x)" | "jwt(sub)" | "cel('request.host')" | "true" | {"verify": false} | {"verify": "false", "from": "query(t)"}
 | {"secret": 5, "leeway": "5s", "issuer": ["a"], "audience": "b", "algorithm": "HS384"} | "ip/24/48" | {"every": "1s"}
 | [{"key": "a", "total": 5}] | {"a": {"limit": "5/s", "burst": 7}} | {"a": ["5/s"]} | "${FIVE}" | "${RATE}" | ["${RATE}"]"#;

/// A rule file with a few fields, most of them with a valid value.
fn files() -> impl Strategy<Value = Value> {
    let values = VALUES.split(" | ").map(|text| {
        serde_json::from_str::<Value>(&text.trim().replace('\n', "\\n"))
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    });
    let any_value = prop::sample::select(values.collect::<Vec<_>>());
    let fields_of = |pointer: &str| -> Vec<String> {
        schema::rule_file(&diana_server::registry())
            .pointer(pointer)
            .and_then(Value::as_object)
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    // Fields of rules from valid files, so that many are valid, and all existing fields with any value.
    let valid_fields = valid_files()
        .flat_map(|file| file["rules"].as_array().cloned().unwrap_or_default())
        .flat_map(|rule| rule.as_object().cloned().unwrap_or_default())
        .filter(|(name, _)| name != "name")
        .collect::<Vec<_>>();
    let rule_fields = fields_of("/$defs/rule/properties");
    let rule = prop::collection::btree_map(prop::sample::select(rule_fields), any_value.clone(), 0..3);
    let rule = (rule, prop::collection::vec(prop::sample::select(valid_fields), 0..3), any::<bool>()).prop_map(
        |(random, valid, simple)| {
            let mut rule = serde_json::Map::new();
            rule.insert("name".to_owned(), json!("a"));
            if simple {
                rule.insert("limit".to_owned(), json!("5/s"));
            }
            rule.extend(valid);
            rule.extend(random);
            Value::Object(rule)
        },
    );
    let top = fields_of("/properties");
    let section = prop_oneof![Just("store"), Just("remote"), Just("gateway"), Just("admin"), Just("identity")];
    let section = section.prop_flat_map(move |section| {
        let names = fields_of(&format!("/properties/{section}/properties"));
        (Just(section), prop::collection::btree_map(prop::sample::select(names), any_value.clone(), 0..4))
    });
    let random = prop::collection::btree_map(
        prop::sample::select(top),
        prop::sample::select(vec![json!(1), json!("429"), json!([]), json!({})]),
        0..2,
    );
    (rule, prop::option::weighted(0.3, section), prop::option::weighted(0.2, random)).prop_map(
        |(rule, section, random)| {
            let mut file = json!({"rules": [rule]});
            if let Some((name, section)) = section {
                file[name] = json!(section);
            }
            for (name, value) in random.into_iter().flatten() {
                file[name] = value;
            }
            file
        },
    )
}

#[test]
fn the_schema_accepts_what_the_parser_accepts() {
    let (validator, accepted) = (validator(), Cell::new(0_u32));
    let config = Config { cases: 20_000, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&files(), |file| {
        let document = Document::new("diana.json", file.to_string());
        let variable = |name: &str| Some(if name == "RATE" { "5/s" } else { "5" }.to_owned());
        if RuleFile::read_with(&document, &diana_server::registry(), variable).is_ok() {
            accepted.set(accepted.get() + 1);
            let errors = validator
                .iter_errors(&file)
                .map(|error| format!("{}: {error}", error.instance_path()))
                .collect::<Vec<_>>();
            prop_assert!(errors.is_empty(), "{errors:#?}");
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failed| panic!("{failed}"));
    assert!(accepted.get() > 2_000, "only {} of 20,000 were valid", accepted.get());
}
