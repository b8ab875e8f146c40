//! YAML, JSON and TOML become the same tree, and problems are reported clearly.

use diana_rules::Document;
use diana_rules::document::{Node, Value};

/// The tree as text, without locations.
fn shape(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(text) => format!("#{text}"),
        Value::Text(text) => format!("{text:?}"),
        Value::List(items) => format!("[{}]", items.iter().map(shape).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entries = entries.iter().map(|entry| format!("{}: {}", entry.key, shape(&entry.node)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

fn parsed(name: &str, text: &str) -> String {
    shape(&Document::new(name, text).parse().unwrap_or_else(|error| panic!("{error}")))
}

fn problems(name: &str, text: &str) -> String {
    Document::new(name, text).parse().unwrap_err().to_string()
}

#[test]
fn three_formats_parse_to_the_same_tree() {
    let yaml = "status: 503\nrules:\n  - name: a\n    limit: [100/s, {rate: 5/h, burst: 7}]\n    shadow: true\n";
    let json =
        r#"{"status": 503, "rules": [{"name": "a", "limit": ["100/s", {"rate": "5/h", "burst": 7}], "shadow": true}]}"#;
    let toml = "status = 503\n[[rules]]\nname = 'a'\nlimit = ['100/s', {rate = '5/h', burst = 7}]\nshadow = true\n";
    let tree = r#"{status: #503, rules: [{name: "a", limit: ["100/s", {rate: "5/h", burst: #7}], shadow: true}]}"#;
    assert_eq!(parsed("diana.yaml", yaml), tree);
    assert_eq!(parsed("diana.json", json), tree);
    assert_eq!(parsed("diana.toml", toml), tree);
}

#[test]
fn a_number_is_kept_as_it_is_written() {
    assert_eq!(
        parsed("a.yaml", "a: 007\nb: 1_000\nc: 1e3\nd: -5\ne: 99999999999999999999999\n007: x"),
        r#"{a: #007, b: #1_000, c: #1e3, d: #-5, e: #99999999999999999999999, 007: "x"}"#
    );
}

#[test]
fn yes_and_on_are_words() {
    assert_eq!(
        parsed("a.yaml", "[yes, no, on, off, true, false, null, ~]"),
        r#"["yes", "no", "on", "off", true, false, null, null]"#
    );
}

#[test]
fn aliases_are_expanded() {
    assert_eq!(parsed("a.yaml", "a: &x {n: 5}\nb: *x"), "{a: {n: #5}, b: {n: #5}}");
}

#[test]
fn reports_syntax_errors() {
    assert_eq!(
        problems("a.yaml", "rules:\n  - [1, 2\n"),
        "a.yaml:2:5: unclosed bracket '['\n  2 |   - [1, 2\n    |     ^\n"
    );
    assert!(problems("a.yaml", "a: 1\na: 2\n").starts_with("a.yaml:2:1: duplicate mapping key: a\n"));
    assert!(problems("a.toml", "a = \n").starts_with("a.toml:1:"));
    assert!(problems("a.toml", "a = 1\na = 2\n").starts_with("a.toml:2:1: "));
    assert_eq!(parsed("a.yaml", ""), "null");
}

#[test]
fn parses_thirty_thousand_rules_of_six_fields() {
    let fields = "by: account, limit: 5/s, cost: 2, wait: 1s, status: 429";
    let rules = (0..30_000).map(|index| format!("  - {{name: r{index}, {fields}}}\n"));
    let Value::Map(entries) =
        Document::new("a.yaml", format!("rules:\n{}", rules.collect::<String>())).parse().unwrap().value
    else {
        panic!("a map")
    };
    assert!(matches!(&entries[0].node.value, Value::List(rules) if rules.len() == 30_000));
}

#[test]
fn documents_over_the_limits_get_no_hint_about_quotes() {
    let many = format!("when: [{}]", ",".repeat(1 << 20).replace(',', "a,"));
    let reported = problems("a.yaml", &many);
    assert!(reported.contains("too many values") && !reported.contains("quotes"), "{reported}");
    let aliases = format!("a: &a [{}]\nwhen: [{}]", "a, ".repeat(10_000), "*a, ".repeat(90));
    let reported = problems("a.yaml", &aliases);
    assert!(reported.contains("aliases expand to too many values") && !reported.contains("quotes"), "{reported}");
    let deep = problems("a.yaml", &format!("when: {}{}", "[".repeat(100), "]".repeat(100)));
    assert!(deep.contains("nesting is too deep") && !deep.contains("quotes"), "{deep}");
}

#[test]
fn rejects_documents_that_expand_to_gigabytes() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    assert!(problems("a.yaml", &bomb).starts_with("a.yaml:"));
    let deep = "[".repeat(100_000);
    assert!(problems("a.yaml", &deep).starts_with("a.yaml:"));
    assert!(problems("a.toml", &format!("a = {deep}")).starts_with("a.toml:"));
    assert!(problems("a.yaml", &"#".repeat(20 << 20)).starts_with("a.yaml:1:1: the document is too large: "));
}
