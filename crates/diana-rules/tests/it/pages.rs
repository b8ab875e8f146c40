//! The user documentation: all links are valid (the file and the heading exist), and so is the YAML of
//! `docs/coming-from.md`: `yaml` is a whole file, `yaml rule` the fields of one rule.
//!
//! Its Rust is run by `cargo test -p diana-limit --doc --all-features`, and its nginx is imported by `diana-server`'s tests.

use diana_rules::{Document, Registry, RuleFile};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const COMING_FROM: &str = include_str!("../../../../docs/coming-from.md");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README in both languages, and everything in `docs`.
fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages.chain(["README.md", "README.zh.md"].map(|page| repository().join(page))).collect()
}

/// A page without its fenced blocks, where `#` and `](` have other meanings.
fn prose(page: &Path) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    text.split("```").step_by(2).collect()
}

/// The anchors of the headings of a page.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = prose(page);
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let called = headings.map(|heading| {
        let called = heading.to_lowercase().replace(' ', "-");
        called.chars().filter(|character| character.is_alphanumeric() || matches!(character, '-' | '_')).collect()
    });
    called.collect()
}

#[test]
fn every_link_has_a_target() {
    let mut count = 0;
    for page in pages() {
        let text = prose(&page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(to.exists(), "{}: {link} does not exist", page.display());
            let has_anchor = || anchors(&to).contains(anchor);
            assert!(anchor.is_empty() || has_anchor(), "{}: {link} has no heading: {:?}", page.display(), anchors(&to));
            count += 1;
        }
    }
    assert!(count > 40, "only {count} links were found");
}

/// The fenced blocks: the line of the opening fence, its info string, and the text.
fn blocks() -> Vec<(usize, &'static str, String)> {
    let (mut blocks, mut open) = (Vec::new(), None);
    for (number, line) in COMING_FROM.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => open = Some((number + 1, info, String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, _, text))) => text.push_str(&format!("{line}\n")),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

#[test]
fn every_file_and_every_rule_is_valid() {
    let mut count = 0;
    for (line, info, text) in blocks() {
        let text = match info {
            "yaml" => text,
            "yaml rule" => {
                let fields = text.lines().map(|field| format!("    {field}\n")).collect::<String>();
                format!("rules:\n  - name: example\n{fields}")
            }
            "java" | "nginx" | "rust" | "rust,no_run" | "text" => continue,
            _ => panic!("line {line}: unknown info string {info:?}"),
        };
        let file = RuleFile::read_with(&Document::new("diana.yaml", &text), &Registry::default(), |_| None);
        let file = file.unwrap_or_else(|problems| panic!("line {line} of the page:\n{problems}"));
        assert!(!file.rules.is_empty(), "line {line}: no rules");
        count += 1;
    }
    assert!(count >= 13, "only {count} were found");
}

#[test]
fn all_rust_is_compiled() {
    assert!(!COMING_FROM.contains("```rust,ignore"));
}
