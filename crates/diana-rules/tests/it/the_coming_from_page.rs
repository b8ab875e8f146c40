//! The YAML of the page `docs/coming-from.md` is valid: `yaml` is a whole file, `yaml rule` the fields of one rule.
//!
//! Its Rust is run by `cargo test -p diana-limit --doc --all-features`, and its nginx is imported by `diana-server`'s tests.

use diana_rules::{Document, Registry, RuleFile};

const PAGE: &str = include_str!("../../../../docs/coming-from.md");

/// The fenced blocks: the line of the opening fence, its info string, and the text.
fn blocks() -> Vec<(usize, &'static str, String)> {
    let (mut blocks, mut open) = (Vec::new(), None);
    for (number, line) in PAGE.lines().enumerate() {
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
fn every_file_and_every_rule_is_good() {
    let mut read = 0;
    for (line, info, text) in blocks() {
        let text = match info {
            "yaml" => text,
            "yaml rule" => {
                let fields = text.lines().map(|field| format!("    {field}\n")).collect::<String>();
                format!("rules:\n  - name: example\n{fields}")
            }
            "java" | "nginx" | "rust" | "rust,no_run" | "text" => continue,
            _ => panic!("line {line}: nobody knows what to do with {info:?}"),
        };
        let file = RuleFile::read_with(&Document::new("diana.yaml", &text), &Registry::default(), |_| None);
        let file = file.unwrap_or_else(|problems| panic!("line {line} of the page:\n{problems}"));
        assert!(!file.rules.is_empty(), "line {line}: nothing is limited");
        read += 1;
    }
    assert!(read >= 13, "only {read} were found");
}

#[test]
fn all_rust_is_compiled() {
    assert!(!PAGE.contains("```rust,ignore"));
}
