//! What the tests of importers share: comparing with the file beside, and reading what was written.
#![allow(dead_code, reason = "each test uses a part of it")]

use diana_rules::{By, Document, Fields, LimitRule, Node, Registry, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A folder beside the tests.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Compares with a file beside the test's, or writes it anew where `DIANA_WRITE_EXPECTED` is set.
pub(crate) fn compare(path: &Path, actual: &str) {
    if std::env::var_os("DIANA_WRITE_EXPECTED").is_some() {
        std::fs::write(path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    let name = path.file_name().unwrap_or_default().display().to_string();
    assert_eq!(actual, expected, "{name} differs; if that is meant, run again with DIANA_WRITE_EXPECTED=1");
}

/// The fields of a rule that are not about its limits.
const OTHERS: [&str; 9] = ["name", "by", "match", "allow", "deny", "shadow", "status", "bandwidth", "missing"];

/// Reads a rule file as far as there is something to read it with, and returns the names of its rules.
pub(crate) fn read_again(text: &str) -> BTreeSet<String> {
    let document = Document::new("imported.yaml", text);
    let tree = document.parse_with(|_| None).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut problems = Vec::new();
    let mut file = Fields::of(&tree, "the file", ["gateway", "identity", "status", "rules"], &mut problems).unwrap();
    let names = file.take("identity").map(map_keys).unwrap_or_default();
    for field in ["gateway", "status"] {
        file.take(field);
    }
    let rules = file.take("rules").unwrap();
    file.finish(&mut problems);
    let Value::List(rules) = &rules.value else { panic!("{rules:?}") };
    let mut found = BTreeSet::new();
    for rule in rules {
        let registry = Registry::default();
        let known = LimitRule::fields(&registry).into_iter().chain(OTHERS).collect::<Vec<_>>();
        let mut fields = Fields::of(rule, "a rule", known, &mut problems).unwrap();
        let name = fields.require("name", &mut problems).and_then(|node| node.text()).unwrap().to_owned();
        let may_have = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        assert!(name.len() <= 64 && !name.is_empty() && name.chars().all(may_have), "{name}");
        assert!(found.insert(name.clone()), "{name} is there twice");
        let limits = LimitRule::read(&mut fields, &registry, &mut problems);
        let others = ["deny", "bandwidth"].map(|field| fields.take(field).is_some());
        assert!(!limits.is_empty() || others.contains(&true), "{name} limits nothing");
        // Names under `identity` are parts of `by` only where a whole file is read.
        let by = fields.require("by", &mut problems).unwrap();
        if !mentions(by, &names) {
            By::read(by, &mut problems);
        }
        for field in ["match", "allow", "shadow", "status"] {
            fields.take(field);
        }
        fields.finish(&mut problems);
    }
    assert!(problems.is_empty(), "{}\n{text}", document.problems(problems));
    found
}

fn map_keys(node: &Node) -> BTreeSet<String> {
    let Value::Map(entries) = &node.value else { panic!("{node:?}") };
    entries.iter().map(|entry| entry.key.clone()).collect()
}

fn mentions(by: &Node, names: &BTreeSet<String>) -> bool {
    match &by.value {
        Value::List(items) => items.iter().any(|item| mentions(item, names)),
        _ => by.text().is_some_and(|text| names.contains(text)),
    }
}
