//! Any file is either read or reported: never a panic, and never a location outside of the text.

use super::valid::VALID;
use diana_rules::{Document, RuleFile};
use proptest::prelude::*;

/// Reads a text in each format, and checks the reported problems.
fn is_valid_or_reported(text: &str) -> Result<(), TestCaseError> {
    for name in ["diana.yaml", "diana.toml"] {
        let document = Document::new(name, text);
        let variable = |name: &str| (name != "NONE").then(|| "redis://a".to_owned());
        if let Err(problems) = RuleFile::read_with(&document, &diana_server::registry(), variable) {
            prop_assert!(!problems.is_empty());
            for problem in problems.iter() {
                let span = problem.span();
                prop_assert!(span.start <= span.end && span.end <= text.len(), "{span:?} of {}", text.len());
                prop_assert!(text.is_char_boundary(span.start) && text.is_char_boundary(span.end), "{span:?}: {text}");
                prop_assert!(!problem.what().is_empty());
            }
            prop_assert!(problems.to_string().starts_with(name));
        }
    }
    Ok(())
}

/// A replacement for a part of the text.
fn piece() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "null",
        "true",
        "{}",
        "[]",
        "-1",
        "0",
        "1e999",
        ".nan",
        "''",
        "~",
        "*a",
        "&a ",
        "!!str ",
        "? ",
        ": ",
        "- ",
        "| ",
        "> ",
        "100/s",
        "5/0s",
        "limit",
        "rules",
        "ip",
        "ip/24",
        "header(x)",
        "cel(\"",
        "${NONE}",
        "${",
        "é",
        "\u{1f980}",
        "\t",
        "\r\n",
        "\u{feff}",
        "\0",
        "#",
        "'",
        "\"",
        "\\",
        "%",
        "@",
        "[[",
        "]]",
        "{{",
        "}}",
        "0.0.0.0/0",
        "::/0",
        "6553.9%",
        "99999999999999999999",
        "/**/{id}/**",
        "--- ",
        "...\n",
        "<<: ",
    ]);
    prop_oneof![words.prop_map(str::to_owned), any::<char>().prop_map(String::from), "[ -~]{0,12}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_with_changed_bytes(
        index in 0..VALID.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..12, piece()), 1..5),
    ) {
        let mut text = VALID[index].to_owned();
        for (at, length, piece) in changes {
            let boundary = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let start = boundary(at.index(text.len() + 1));
            let end = boundary(start + length).max(start);
            text.replace_range(start..end, &piece);
        }
        is_valid_or_reported(&text)?;
    }

    #[test]
    fn files_with_lines_of_other_files(lines in prop::collection::vec((0..VALID.len(), any::<prop::sample::Index>(), 0_usize..3), 0..20)) {
        let mut text = String::new();
        for (index, line, indent) in lines {
            let all = VALID[index].lines().collect::<Vec<_>>();
            text.push_str(&"  ".repeat(indent));
            text.push_str(all[line.index(all.len())]);
            text.push('\n');
        }
        is_valid_or_reported(&text)?;
    }

    #[test]
    fn any_text(text in any::<String>()) {
        is_valid_or_reported(&text)?;
    }
}
