//! What the tests of importers share: comparing with the file beside, and reading what was written.
#![allow(dead_code, reason = "each test uses a part of it")]

use diana_rules::{Document, Registry, RuleFile};
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

/// Reads a rule file as `diana check` does, and returns the names of its rules.
pub(crate) fn read_again(text: &str) -> BTreeSet<String> {
    let document = Document::new("imported.yaml", text);
    let file = RuleFile::read_with(&document, &Registry::default(), |_| None);
    let file = file.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    assert!(file.rules.iter().all(|rule| rule.name.len() <= 64));
    file.rules.into_iter().map(|rule| rule.name).collect()
}
