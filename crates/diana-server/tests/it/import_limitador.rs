//! The limits file of limitador becomes the expected rules, which answer as limitador would.

use crate::support::{compare, folder, rule_names};
use diana::Engine;
use diana_import::import_limitador;
use diana_rules::attributes::DescriptorEntry;
use diana_rules::{Attribute, Attributes, Document, RuleFile};
use diana_server::registry;
use proptest::prelude::*;
use std::borrow::Cow;
use std::collections::HashMap;

#[test]
fn limits_of_a_toy_store() {
    let path = folder("limitador").join("toystore.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let imported = import_limitador("toystore.yaml", &text, &registry()).unwrap_or_else(|error| panic!("{error}"));
    compare(&path.with_extension("expected.yaml"), &imported.rules);
    let notes = imported.notes.iter().map(|note| format!("{note}\n")).collect::<String>();
    compare(&path.with_extension("expected.notes"), &notes);
    assert_eq!(rule_names(&imported.rules).len(), 6);
}

#[test]
fn reports_problems() {
    let problems_of = |text: &str| import_limitador("limits.yaml", text, &registry()).unwrap_err().to_string();
    assert!(problems_of("namespace: a").starts_with("limits.yaml:1:1: invalid limits: expected a list, found a map"));
    let typo = problems_of("- namespace: a\n  max_valu: 1\n  seconds: 1\n");
    assert!(typo.contains("did you mean `max_value`?"), "{typo}");
    assert!(problems_of("- {namespace: a, max_value: 1, seconds: 0}").contains("limits.yaml:1:"));
    assert!(import_limitador("limits.yaml", "", &registry()).unwrap().hints[0].contains("it has no limits"));
}

/// A limit as limitador reads it.
#[derive(Clone, Debug)]
struct Model {
    max_value: u64,
    conditions: Vec<usize>,
    variables: Vec<usize>,
}

/// The entries of a descriptor; `None` if it does not have that key.
type Entries = [Option<&'static str>; 2];
/// An expression, and what limitador reads it as; `None` if an entry is missing.
type Modelled<T> = (&'static str, fn(Entries) -> Option<T>);

/// Conditions, and what limitador answers: an entry that is missing and is read makes a condition false, and the sides of
/// `||` and `&&` are read from the left as far as needed.
const CONDITIONS: [Modelled<bool>; 14] = [
    ("descriptors[0].a == 'x'", |[a, _]| Some(a? == "x")),
    ("descriptors[0].a != 'x'", |[a, _]| Some(a? != "x")),
    ("descriptors[0][\"b\"] == 'y'", |[_, b]| Some(b? == "y")),
    ("descriptors[0].b != \"\"", |[_, b]| Some(!b?.is_empty())),
    ("descriptors[0].a == ''", |[a, _]| Some(a?.is_empty())),
    ("descriptors[0].a in ['x', 'xy']", |[a, _]| Some(["x", "xy"].contains(&a?))),
    ("descriptors[0].a.startsWith('x')", |[a, _]| Some(a?.starts_with('x'))),
    ("!descriptors[0].a.startsWith('x')", |[a, _]| Some(!a?.starts_with('x'))),
    ("descriptors[0].a == descriptors[0].b", |[a, b]| Some(a? == b?)),
    ("size(descriptors[0].b) > 1", |[_, b]| Some(b?.len() > 1)),
    ("descriptors[0].a == 'x' && descriptors[0].b == 'y'", |[a, b]| Some(a? == "x" && b? == "y")),
    ("descriptors[0].a == 'x' || descriptors[0].b == 'y'", |[a, b]| Some(a? == "x" || b? == "y")),
    ("descriptors[0].a == 'y' || descriptors[0].a == 'x'", |[a, _]| Some(["x", "y"].contains(&a?))),
    ("descriptors[0].b == 'x || y' || descriptors[0].a != 'x' || descriptors[0].b.endsWith('y')", |[a, b]| {
        Some(b? == "x || y" || a? != "x" || b?.ends_with('y'))
    }),
];

/// Variables, and the texts that limitador counts by; `None` if the limit does not apply.
const VARIABLES: [Modelled<String>; 5] = [
    ("descriptors[0].a", |[a, _]| a.map(str::to_owned)),
    ("descriptors[0]['b']", |[_, b]| b.map(str::to_owned)),
    ("descriptors[0].a + '-' + descriptors[0].b", |[a, b]| Some(format!("{}-{}", a?, b?))),
    ("size(descriptors[0].b)", |[_, b]| Some(b?.len().to_string())),
    ("descriptors[0].a == 'x'", |[a, _]| Some((a? == "x").to_string())),
];

/// An empty value is none to Diana, and a value to limitador.
const VALUES: [&str; 5] = ["x", "y", "xy", "q", "x || y"];

fn models() -> impl Strategy<Value = Vec<Model>> {
    let some = |count: usize| prop::collection::btree_set(0..count, 0..3).prop_map(|set| set.into_iter().collect());
    let one = (0..4_u64, some(CONDITIONS.len()), some(VARIABLES.len()));
    let one = one.prop_map(|(max_value, conditions, variables)| Model { max_value, conditions, variables });
    prop::collection::vec(one, 1..4)
}

fn requests() -> impl Strategy<Value = Vec<Entries>> {
    let value = || prop::option::weighted(0.8, prop::sample::select(&VALUES[..]));
    prop::collection::vec((value(), value()).prop_map(|(a, b)| [a, b]), 1..12)
}

impl Model {
    /// The key of a request, if the limit applies to it.
    fn key(&self, entries: Entries) -> Option<Vec<String>> {
        let holds = self.conditions.iter().all(|index| CONDITIONS[*index].1(entries) == Some(true));
        let key = self.variables.iter().map(|index| VARIABLES[*index].1(entries)).collect::<Option<Vec<_>>>();
        key.filter(|_| holds)
    }

    fn yaml(&self) -> String {
        let quoted = |texts: Vec<&str>| serde_json::to_string(&texts).unwrap();
        let conditions = quoted(self.conditions.iter().map(|index| CONDITIONS[*index].0).collect());
        let variables = quoted(self.variables.iter().map(|index| VARIABLES[*index].0).collect());
        let max_value = self.max_value;
        format!(
            "- {{namespace: d, max_value: {max_value}, seconds: 86400, conditions: {conditions}, variables: {variables}}}\n"
        )
    }
}

/// A request from Envoy with one descriptor.
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
    fn the_rules_answer_as_limitador_would(models in models(), requests in requests()) {
        let text = models.iter().map(Model::yaml).collect::<String>();
        let imported = import_limitador("any.yaml", &text, &registry()).unwrap_or_else(|error| panic!("{error}"));
        // A second limit like another one is not converted, and changes no answer.
        let notes = imported.notes.iter().filter(|note| !note.what.contains("it is identical to"));
        prop_assert_eq!(notes.count(), 0, "{:?}\n{}", imported.notes, text);
        let document = Document::new("diana.yaml", imported.rules.clone());
        let file = RuleFile::read(&document, &registry()).unwrap_or_else(|error| panic!("{error}"));
        let engine = Engine::new(&file);
        let mut counts = HashMap::<(usize, Vec<String>), u64>::new();
        for entries in requests {
            let keys = models.iter().enumerate().filter_map(|(index, model)| Some((index, model.key(entries)?)));
            let keys = keys.collect::<Vec<_>>();
            let is_free = |key: &(usize, Vec<String>)| counts.get(key).copied().unwrap_or(0) < models[key.0].max_value;
            let expected = keys.iter().all(is_free);
            if expected {
                keys.into_iter().for_each(|key| *counts.entry(key).or_default() += 1);
            }
            let entry = |(key, value): (&str, Option<&str>)| {
                Some(DescriptorEntry { key: key.to_owned(), value: value?.to_owned() })
            };
            let asked = Asked(["a", "b"].into_iter().zip(entries).filter_map(entry).collect());
            let decided = engine.acquire(&asked).now().expect("nothing waits");
            prop_assert_eq!(decided.is_ok(), expected, "{:?}\n{}{}", entries, text, imported.rules);
        }
    }
}
