//! A custom algorithm, key and matcher work like the built-in ones, and do not affect existing files.

#[path = "../../examples/custom_extensions/extensions/mod.rs"]
mod extensions;
use crate::support::{Decides, clock, decision_text, now, request};
use diana::ManualClock;
use diana::rules::attributes::SyntheticRequest;
use diana::rules::describe::table;
use diana::rules::{Document, Registry, RuleFile, describe, schema};
use diana::{Engine, EngineOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn registry(clock: &ManualClock) -> Registry {
    let mut registry = diana::registry();
    extensions::register(&mut registry, Arc::new(clock.clone()));
    registry
}

fn read(text: &str, registry: &Registry) -> Result<RuleFile, String> {
    let document = Document::new("diana.yaml", text);
    RuleFile::read_with(&document, registry, |_| None).map_err(|problems| problems.to_string())
}

fn engine(text: &str) -> (Engine, ManualClock) {
    let clock = clock();
    let file = read(text, &registry(&clock)).unwrap();
    (EngineOptions::of(&file).clock(clock.clone()).build(&file), clock)
}

const LOGIN: &str = "rules: [{name: login, by: ip, limit: 3/min, algorithm: strikes, pause: 10min}]";

#[test]
fn a_custom_algorithm_decides() {
    let (engine, clock) = engine(LOGIN);
    assert_eq!(decision_text(&engine, &request()), "granted, closest to `login` for 203.0.113.7: 2 of 3 left");
    assert_eq!(decision_text(&engine, &request()), "granted, closest to `login` for 203.0.113.7: 1 of 3 left");
    clock.advance(Duration::from_secs(59));
    assert_eq!(decision_text(&engine, &request()), "granted, closest to `login` for 203.0.113.7: 0 of 3 left");
    let denied = "denied by `login` for 203.0.113.7: 0 of 3 left, retry after ";
    assert_eq!(decision_text(&engine, &request()), format!("{denied}10min"));
    clock.advance(Duration::from_nanos(599_999_999_999));
    assert_eq!(decision_text(&engine, &request()), format!("{denied}1ns"));
    assert!(now(engine.explain(&request())).to_string().contains("✗ login: counted for 203.0.113.7"));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(decision_text(&engine, &request()), "granted, closest to `login` for 203.0.113.7: 2 of 3 left");
    // Each address has its own strikes, and they expire after a minute.
    clock.advance(Duration::from_secs(60));
    assert_eq!(decision_text(&engine, &request()), "granted, closest to `login` for 203.0.113.7: 2 of 3 left");
    assert!(now(engine.check(&request().ip([203, 0, 113, 8]))).is_granted());
}

#[test]
fn refunding_the_last_strike_ends_the_pause() {
    let (engine, _) = engine(LOGIN);
    assert!((0..2).all(|_| now(engine.check(&request())).is_granted()));
    let last = now(engine.check(&request()));
    assert!(!now(engine.check(&request())).is_granted());
    now(last.refund());
    assert_eq!(decision_text(&engine, &request()), "granted, closest to `login` for 203.0.113.7: 0 of 3 left");
}

#[test]
fn a_change_of_the_parameters_keeps_the_counts() {
    let (engine, clock) = engine(LOGIN);
    assert!((0..2).all(|_| now(engine.check(&request())).is_granted()));
    engine.set_rules(&read(&LOGIN.replace("3/min", "5/min"), &registry(&clock)).unwrap());
    assert_eq!(decision_text(&engine, &request()), "granted, closest to `login` for 203.0.113.7: 2 of 5 left");
    engine.set_rules(&read(&LOGIN.replace("3/min", "2/min"), &registry(&clock)).unwrap());
    assert_eq!(decision_text(&engine, &request()), "denied by `login` for 203.0.113.7: 0 of 2 left, retry after 10min");
}

#[test]
fn a_custom_key_is_counted_by() {
    let (engine, _) = engine("rules: [{name: tenants, by: subdomain, limit: 1/h, missing: deny}]");
    let of = |host: &str| SyntheticRequest::new("GET", "/").host(host);
    assert!(now(engine.check(&of("acme.example.com"))).is_granted());
    assert_eq!(
        decision_text(&engine, &of("Acme.example.com")),
        "denied by `tenants` for acme: 0 of 1 left, retry after 1h"
    );
    assert!(now(engine.check(&of("globex.example.com"))).is_granted());
    assert_eq!(decision_text(&engine, &of("example.com")), "denied by `tenants`: missing subdomain");
}

#[test]
fn a_custom_matcher_selects_requests() {
    // The clock of these tests starts at 22:13:20.
    let (engine, clock) = engine(
        "rules: [{name: night, match: {hours: 22-6}, deny: [203.0.113.7], by: ip}, \
         {name: day, match: {hours: 9-17}, deny: [203.0.113.7], by: ip, status: 429}]",
    );
    let status = |engine: &Engine| now(engine.check(&request())).status();
    assert_eq!(status(&engine), Some(503));
    clock.advance(Duration::from_secs(7 * 3_600));
    assert_eq!(status(&engine), Some(503), "at five");
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(status(&engine), None, "at six");
    let explained = now(engine.explain(&request())).to_string();
    assert!(explained.contains("- night: `hours`"), "{explained}");
    clock.advance(Duration::from_secs(3 * 3_600));
    assert_eq!(status(&engine), Some(429), "at nine");
}

#[test]
fn invalid_options_are_reported_with_their_location() {
    let registry = registry(&clock());
    let text = "\
rules:
  - name: without
    limit: 3/min
    algorithm: strikes
  - name: misread
    by: ip
    limit: 3/min
    algorithm: strikes
    pause: soon
  - name: misspelt
    match: {hours: late}
    by: subdomian
    limit: 3/min
    algorithm: strikes
    pause: 1min
    burst: 5
";
    let expected = "\
diana.yaml:3:12: `strikes` needs a `pause`
  3 |     limit: 3/min
    |            ^^^^^ add a `pause`, such as `pause: 10min`
diana.yaml:9:12: invalid value `soon` for `pause`
  9 |     pause: soon
    |            ^^^^ unknown unit of time `soon`; expected one of ns, us, ms, s, min, h, day, week or month
diana.yaml:11:20: invalid `hours`
 11 |     match: {hours: late}
    |                    ^^^^ expected two hours of the day, such as `9-17`
diana.yaml:12:9: unknown key `subdomian`
 12 |     by: subdomian
    |         ^^^^^^^^^ did you mean `subdomain`?
diana.yaml:16:12: `strikes` has no option `burst`
 16 |     burst: 5
    |            ^ expected one of `rate`, `algorithm`, `pause`
";
    assert_eq!(read(text, &registry).unwrap_err(), expected);
}

#[test]
fn a_custom_algorithm_cannot_be_shared() {
    let text = "\
store: {redis: redis://127.0.0.1:6379}
rules:
  - {name: login, by: ip, limit: 3/min, algorithm: strikes, pause: 10min}
";
    let registry = registry(&clock());
    let expected = "\
diana.yaml:3:34: the shared store does not support this limit: the algorithm has no Redis script; count it in process
  3 |   - {name: login, by: ip, limit: 3/min, algorithm: strikes, pause: 10min}
    |                                  ^^^^^ use `store: local`, or another algorithm
";
    assert_eq!(read(text, &registry).unwrap_err(), expected);
    // A custom key or matcher can be shared, and a custom algorithm can be counted locally.
    let text = text.replace("by: ip", "store: local, by: subdomain, match: {hours: 9-17}");
    assert_eq!(read(&text, &registry).unwrap().rules.len(), 1);
    let text = text.replace("store: local, ", "").replace("algorithm: strikes, pause: 10min", "status: 429");
    assert_eq!(read(&text, &registry).unwrap().rules.len(), 1);
}

#[test]
fn the_schema_and_the_description_include_them() {
    let registry = registry(&clock());
    let schema = schema::rule_file(&registry);
    let rule = &schema["$defs"]["rule"]["properties"];
    let algorithms = rule["algorithm"]["anyOf"].as_array().unwrap();
    let strikes = algorithms.iter().find(|one| one["const"] == "strikes").unwrap();
    assert_eq!(strikes["description"], "a number of requests per time, then a pause");
    assert_eq!(rule["pause"]["description"], "how long to deny requests after the last one (of `strikes`)");
    assert!(rule["match"]["properties"]["hours"].is_object());
    assert!(schema["$defs"]["by"]["anyOf"][0]["enum"].as_array().unwrap().iter().any(|word| word == "subdomain"));

    let file = read(LOGIN, &registry).unwrap();
    assert_eq!(describe::rule(&file.rules[0]).limit, "at most 3 in 60s, then a pause of 600s");
}

#[test]
fn existing_files_are_read_as_before() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rules");
    let (built_in, extended) = (diana::registry(), registry(&clock()));
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let document = Document::new(path.display().to_string(), std::fs::read_to_string(&path).unwrap());
        let variable = |_: &str| Some("a secret with at least 32 letters".to_owned());
        let read = |registry: &Registry| {
            let file = RuleFile::read_with(&document, registry, variable);
            let file = file.unwrap_or_else(|problems| panic!("{problems}"));
            format!("{file:?}\n{}", table(&file))
        };
        assert_eq!(read(&built_in), read(&extended), "{}", path.display());
        files += 1;
    }
    assert_eq!(files, 12);
    assert!(read(LOGIN, &built_in).is_err(), "unknown without the extensions");
}
