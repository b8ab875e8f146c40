//! Realistic configurations of envoyproxy/ratelimit become the expected rules.

use crate::support::{compare, folder, rule_names};
use diana::RuleSet;
use diana::ruleset::{Matches, Purpose};
use diana_import::{Imported, import_envoy};
use diana_rules::attributes::DescriptorEntry;
use diana_rules::{Attribute, Attributes, Document, RuleFile};
use diana_server::registry;
use proptest::prelude::*;
use std::borrow::Cow;

fn converts_to_the_expected_file(name: &str) {
    let path = folder("envoy").join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let imported = import_envoy(&format!("{name}.yaml"), &text, &registry()).unwrap_or_else(|error| panic!("{error}"));
    compare(&path.with_extension("expected.yaml"), &imported.rules);
    let notes = imported.notes.iter().map(|note| format!("{note}\n")).collect::<String>();
    compare(&path.with_extension("expected.notes"), &notes);
    assert!(!rule_names(&imported.rules).is_empty());
}

#[test]
fn each_address_at_the_edge() {
    converts_to_the_expected_file("edge_per_ip");
}

#[test]
fn messages_with_keys_of_their_own() {
    converts_to_the_expected_file("messages");
}

fn problems_of(text: &str) -> String {
    import_envoy("config.yaml", text, &registry()).unwrap_err().to_string()
}

#[test]
fn reports_problems() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let twice = problems_of(&format!("domain: d\ndescriptors:\n- key: a\n  {limit}\n- key: a\n  {limit}\n"));
    assert!(twice.starts_with("config.yaml:5:8: duplicate descriptor `a` with this value\n"), "{twice}");
    let typo = problems_of("domain: d\ndescriptors:\n- key: a\n  rate_limits: {}\n");
    assert!(typo.contains("config.yaml:4:3: unknown descriptor field `rate_limits`"), "{typo}");
    assert!(typo.contains("did you mean `rate_limit`?"), "{typo}");
    let unit =
        problems_of("domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: fortnight, requests_per_unit: 1}\n");
    assert!(unit.starts_with("config.yaml:4:22: unknown unit `fortnight`\n"), "{unit}");
    assert!(problems_of("descriptors: []\n").contains("missing `domain` in configuration"));
    assert!(problems_of("domain: [").starts_with("config.yaml:1:"));
    assert!(problems_of("").contains("invalid configuration: expected a map, found null"));
}

/// Imports descriptors, with `NOTHING` replaced by a limit of 0.
fn import_with_zero_limits(descriptors: &str) -> Imported {
    let nothing = "rate_limit: {unit: second, requests_per_unit: 0}";
    let text = format!("domain: d\ndescriptors: [{}]\n", descriptors.replace("NOTHING", nothing));
    let imported = import_envoy("config.yaml", &text, &registry()).unwrap_or_else(|error| panic!("{error}"));
    rule_names(&imported.rules);
    imported
}

#[test]
fn a_limit_of_zero_becomes_deny() {
    for (descriptors, matched) in [
        ("{key: user, value: bad, NOTHING}", "[{user: bad}]"),
        ("{key: user, value: 'batch-*', NOTHING}", "[{user: batch-*}]"),
        ("{key: method, value: POST, descriptors: [{key: user, NOTHING}]}", "[{method: POST}, user]"),
    ] {
        let imported = import_with_zero_limits(descriptors);
        let rule = format!("    by: domain\n    match:\n      domain: d\n      descriptor: {matched}\n    deny: [d]\n");
        assert!(imported.rules.ends_with(&rule), "{descriptors}: expected\n{rule}but got\n{}", imported.rules);
        assert_eq!(imported.notes, []);
    }
    let address = "domain: 10.0.0.1\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 0}}]\n";
    let imported = import_envoy("config.yaml", address, &registry()).unwrap();
    assert!(imported.notes[0].what.starts_with("not converted: the domain looks like an address"), "{imported:?}");
}

#[test]
fn keys_may_be_long_and_many() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    for length in [64, 65, 1_024, 1_025, 100_000] {
        let key = "k".repeat(length);
        let imported =
            import_with_zero_limits(&format!("{{key: {key}, {limit}}}, {{key: {key}x, value: '{key}', {limit}}}"));
        // A key in YAML has at most 1,024 characters.
        assert_eq!(imported.rules.matches("- name: ").count(), if length > 1_000 { 1 } else { 2 });
    }
    let many = (0..2_000).map(|number| format!("{{key: '{}', {limit}}}", char::from_u32(0x4E00 + number).unwrap()));
    let imported = import_with_zero_limits(&many.collect::<Vec<_>>().join(", "));
    assert_eq!(imported.rules.matches("- name: ").count(), 2_000);
}

#[test]
fn what_by_cannot_express_is_noted() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let imported =
        import_with_zero_limits(&format!("{{key: a, descriptors: [{{key: a, {limit}}}, {{key: ' b', {limit}}}]}}"));
    let notes = imported.notes.iter().map(|note| &*note.what).collect::<Vec<_>>();
    assert_eq!(
        notes,
        [
            "not converted: a key begins or ends with a space, or is empty",
            "not converted: it counts by two entries with the same key",
        ]
    );
}

#[test]
fn a_file_without_limits_gives_a_hint() {
    let imported = import_envoy("config.yaml", "domain: d\ndescriptors: [{key: a}]\n", &registry()).unwrap();
    assert_eq!(imported.hints[0], "config.yaml: there are no rules: it has no `rate_limit`");
    assert!(imported.hints[1].contains("`services: {envoy: 127.0.0.1:8081}`"), "{:?}", imported.hints);
}

#[test]
fn the_page_shows_valid_rules() {
    let page = include_str!("../../../../docs/coming-from/envoy.md");
    let blocks = page.split("```yaml\n").skip(1).map(|part| part.split_once("```").unwrap().0).collect::<Vec<_>>();
    assert!(blocks.len() >= 2);
    for block in &blocks {
        let start = if block.starts_with("  - ") { "rules:\n" } else { "" };
        rule_names(&format!("{start}{block}"));
    }
}

/// A descriptor of envoyproxy/ratelimit's configuration.
#[derive(Clone, Debug)]
struct Configured {
    key: usize,
    value: usize,
    limit: Option<u64>,
    below: Vec<Configured>,
}

const KEYS: [&str; 2] = ["a", "b"];
/// Nothing means any value.
const VALUES: [&str; 6] = ["", "x", "xy", "x*", "*y", "*"];
const ASKED: [&str; 5] = ["x", "xy", "xz", "zy", "q"];

fn configured() -> impl Strategy<Value = Vec<Configured>> {
    let one = |below: BoxedStrategy<Vec<Configured>>| {
        let limit = prop::option::weighted(0.7, 1..1_000_u64);
        (0..KEYS.len(), 0..VALUES.len(), limit, below).prop_map(|(key, value, limit, below)| Configured {
            key,
            value,
            limit,
            below,
        })
    };
    let several = move |below: BoxedStrategy<Vec<Configured>>| {
        prop::collection::vec(one(below), 0..6).prop_map(|mut all| {
            let mut known = std::collections::BTreeSet::new();
            all.retain(|one| known.insert((one.key, one.value)));
            all
        })
    };
    several(several(several(Just(Vec::new()).boxed()).boxed()).boxed())
}

fn yaml(all: &[Configured]) -> String {
    let each = all.iter().map(|Configured { key, value, limit, below }| {
        let limit = limit.map(|count| format!(", rate_limit: {{unit: hour, requests_per_unit: {count}}}"));
        let (limit, below) = (limit.unwrap_or_default(), yaml(below));
        format!("{{key: {}, value: '{}'{limit}, descriptors: {below}}}", KEYS[*key], VALUES[*value])
    });
    format!("[{}]", each.collect::<Vec<_>>().join(", "))
}

/// The limit that envoyproxy/ratelimit chooses: by the exact value, else the first pattern, else without a value; only for
/// the whole path.
fn chosen(all: &[Configured], entries: &[(usize, usize)]) -> Option<u64> {
    let [(key, asked), rest @ ..] = entries else { return None };
    let same = || all.iter().filter(|one| one.key == *key);
    let glob = |value: &str| match value.split_once('*') {
        Some((start, end)) => {
            ASKED[*asked].len() >= start.len() + end.len()
                && ASKED[*asked].starts_with(start)
                && ASKED[*asked].ends_with(end)
        }
        None => false,
    };
    let exact = same().find(|one| VALUES[one.value] == ASKED[*asked]);
    let pattern = || same().find(|one| glob(VALUES[one.value]));
    let any = || same().find(|one| VALUES[one.value].is_empty());
    let found = exact.or_else(pattern).or_else(any)?;
    if rest.is_empty() { found.limit } else { chosen(&found.below, rest) }
}

/// A request from Envoy.
struct Asked(Vec<DescriptorEntry>);

impl Attributes for Asked {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Domain => Some("d".into()),
            Attribute::Descriptor(key) => {
                self.0.iter().find(|entry| entry.key == **key).map(|entry| (&*entry.value).into())
            }
            _ => None,
        }
    }

    fn descriptor(&self) -> &[DescriptorEntry] {
        &self.0
    }

    fn passes_names(&self) -> bool {
        true
    }
}

proptest! {
    #[test]
    fn the_rules_choose_the_limit_that_envoy_would(
        all in configured(), entries in prop::collection::vec((0..KEYS.len(), 0..ASKED.len()), 1..4),
    ) {
        let imported = import_envoy("any.yaml", &format!("domain: d\ndescriptors: {}\n", yaml(&all)), &registry()).unwrap();
        // What the notes say is not compared.
        prop_assume!(imported.notes.is_empty());
        let document = Document::new("diana.yaml", imported.rules.clone());
        let rules = RuleSet::new(&RuleFile::read(&document, &registry()).unwrap());
        let entry = |(key, value): &(usize, usize)| DescriptorEntry { key: KEYS[*key].to_owned(), value: ASKED[*value].to_owned() };
        let mut found = Matches::default();
        rules.find(&[&Asked(entries.iter().map(entry).collect())], Purpose::Charge, &mut found);
        let limits = found.matched().iter().map(|matched| rules.rule(matched.rule).unwrap().limits(matched)[0].limit.quota().unwrap().permits());
        let expected = chosen(&all, &entries).into_iter().collect::<Vec<_>>();
        prop_assert_eq!(limits.collect::<Vec<_>>(), expected, "{}", imported.rules);
    }
}
