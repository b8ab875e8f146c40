//! Shared by the tests: running the program, comparing with expected files, and reading its output; and for the
//! gateway, a running program, an upstream, and clients.

pub(crate) mod client;
pub(crate) mod fake_admin;
pub(crate) mod frames;
pub(crate) mod http2;
pub(crate) mod program;
pub(crate) mod scheme;
pub(crate) mod upstream;

use diana_rules::document::{Node, Value};
use diana_rules::{Document, RuleFile};
use serde_json::{Map, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Returns a folder next to the tests.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Runs the program in a folder, with this standard input and these variables.
pub(crate) fn diana_in(folder: &Path, args: &[&str], input: &str, variables: &[(&str, &str)]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_diana"))
        .args(args)
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that ends before it reads closes the pipe, which is fine.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Returns its standard output.
pub(crate) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns its standard error.
pub(crate) fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns the sample files, by their names, and the variables that they need.
pub(crate) fn samples() -> (PathBuf, Vec<String>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rules");
    let names = names_in(&folder, ".yaml");
    assert_eq!(names.len(), 12);
    (folder, names)
}

pub(crate) const SECRETS: [(&str, &str); 2] =
    [("JWT_SECRET", "a secret for tests, which nobody else has"), ("REDIS_PASSWORD", "opensesame")];

/// Returns the sorted files in a folder whose names have this ending.
pub(crate) fn names_in(folder: &Path, end: &str) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names = names.filter(|name| name.ends_with(end)).collect::<Vec<_>>();
    names.sort_unstable();
    names
}

/// Returns the first code block with this info string after a mark on a page.
pub(crate) fn block(page: &'static str, mark: &str, info: &str) -> &'static str {
    let rest = page.split_once(mark).unwrap_or_else(|| panic!("no {mark:?} on the page")).1;
    let rest = rest.split_once(&format!("\n```{info}\n")).unwrap_or_else(|| panic!("no {info} after {mark:?}")).1;
    rest.split("```").next().unwrap()
}

/// Compares with an expected file, or rewrites it if `DIANA_WRITE_EXPECTED` is set.
pub(crate) fn compare(path: &Path, actual: &str) {
    if std::env::var_os("DIANA_WRITE_EXPECTED").is_some() {
        std::fs::write(path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    let name = path.file_name().unwrap_or_default().display().to_string();
    assert_eq!(actual, expected, "{name} differs; if that is intended, run again with DIANA_WRITE_EXPECTED=1");
}

/// Reads a rule file as `diana check` does, and returns the names of its rules.
pub(crate) fn rule_names(text: &str) -> BTreeSet<String> {
    let document = Document::new("imported.yaml", text);
    let file = RuleFile::read_with(&document, &diana_server::registry(), |_| None);
    let file = file.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    assert!(file.rules.iter().all(|rule| rule.name.len() <= 64));
    file.rules.into_iter().map(|rule| rule.name).collect()
}

/// Returns a parsed YAML document as JSON.
pub(crate) fn json_of(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => json!(value),
        Value::Number(text) => text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number)),
        Value::Text(text) => json!(text),
        Value::List(items) => items.iter().map(json_of).collect(),
        Value::Map(entries) => {
            let entries = entries.iter().map(|entry| (entry.key.clone(), json_of(&entry.node)));
            entries.collect::<Map<_, _>>().into()
        }
    }
}
