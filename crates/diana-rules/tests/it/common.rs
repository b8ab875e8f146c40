//! Reading files in tests, and the problems in them. The tests of `diana-server` use this file too.
#![allow(dead_code, clippy::panic, reason = "each test takes what it needs, and one that can't go on should stop")]

use diana_rules::{Document, RuleFile};

/// Reads a file, or returns all its problems as printed.
pub(crate) fn read_as(name: &str, text: &str) -> Result<RuleFile, String> {
    let document = Document::new(name, text);
    RuleFile::read_with(&document, &crate::registry(), |_| None).map_err(|problems| problems.to_string())
}

pub(crate) fn read(text: &str) -> Result<RuleFile, String> {
    read_as("diana.yaml", text)
}

pub(crate) fn good(text: &str) -> RuleFile {
    read(text).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

/// A rule `a` with these lines.
pub(crate) fn rule(lines: &str) -> String {
    let lines = lines.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!("rules:\n  - name: a\n{lines}")
}

/// All problems, each on one line: the marked text, the problem and the expected value.
pub(crate) fn problems_of(text: &str) -> Vec<String> {
    let Err(printed) = read(text) else { return vec!["nothing".to_owned()] };
    let lines = printed.lines().collect::<Vec<_>>();
    lines
        .chunks(3)
        .map(|chunk| {
            let [head, line, marks] = chunk else { panic!("{printed}") };
            let what = head.splitn(4, ':').nth(3).unwrap_or_default().trim();
            let from = marks.find('^').unwrap_or_else(|| panic!("{printed}"));
            let length = marks[from..].chars().take_while(|mark| *mark == '^').count();
            let at = line.chars().skip(from).take(length).collect::<String>();
            let hint = marks[from + length..].trim();
            if hint.is_empty() { format!("[{at}] {what}") } else { format!("[{at}] {what}: {hint}") }
        })
        .collect()
}

/// Checks the exact problems: the marked text, the problem and the expected value.
pub(crate) fn check(cases: &[(&str, &[&str])], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(problems_of(&file(text)), *expected, "{text}");
    }
}
