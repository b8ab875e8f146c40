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

fn wrong(name: &str, text: &str) -> String {
    Document::new(name, text).parse().unwrap_err().to_string()
}

#[test]
fn three_formats_say_the_same() {
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
fn an_alias_is_what_it_stands_for() {
    assert_eq!(parsed("a.yaml", "a: &x {n: 5}\nb: *x"), "{a: {n: #5}, b: {n: #5}}");
}

#[test]
fn what_cant_be_read_is_shown() {
    assert_eq!(
        wrong("a.yaml", "rules:\n  - [1, 2\n"),
        "a.yaml:2:5: unclosed bracket '['\n  2 |   - [1, 2\n    |     ^\n"
    );
    assert!(wrong("a.yaml", "a: 1\na: 2\n").starts_with("a.yaml:2:1: duplicate mapping key: a\n"));
    assert!(wrong("a.toml", "a = \n").starts_with("a.toml:1:"));
    assert!(wrong("a.toml", "a = 1\na = 2\n").starts_with("a.toml:2:1: "));
    assert_eq!(parsed("a.yaml", ""), "null");
}

#[test]
fn thirty_thousand_rules_of_six_fields_are_read() {
    let fields = "by: account, limit: 5/s, cost: 2, wait: 1s, status: 429";
    let rules = (0..30_000).map(|nth| format!("  - {{name: r{nth}, {fields}}}\n"));
    let Value::Map(entries) =
        Document::new("a.yaml", format!("rules:\n{}", rules.collect::<String>())).parse().unwrap().value
    else {
        panic!("a map")
    };
    assert!(matches!(&entries[0].node.value, Value::List(rules) if rules.len() == 30_000));
}

#[test]
fn what_is_too_much_needs_no_quotes() {
    let many = format!("when: [{}]", ",".repeat(1 << 20).replace(',', "a,"));
    let said = wrong("a.yaml", &many);
    assert!(said.contains("there are too many values") && !said.contains("quotes"), "{said}");
    let aliases = format!("a: &a [{}]\nwhen: [{}]", "a, ".repeat(10_000), "*a, ".repeat(90));
    let said = wrong("a.yaml", &aliases);
    assert!(said.contains("aliases unfold into too much") && !said.contains("quotes"), "{said}");
    let deep = wrong("a.yaml", &format!("when: {}{}", "[".repeat(100), "]".repeat(100)));
    assert!(deep.contains("this is nested too deep") && !deep.contains("quotes"), "{deep}");
}

#[test]
fn a_document_that_unfolds_into_gigabytes_is_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    assert!(wrong("a.yaml", &bomb).starts_with("a.yaml:"));
    let deep = "[".repeat(100_000);
    assert!(wrong("a.yaml", &deep).starts_with("a.yaml:"));
    assert!(wrong("a.toml", &format!("a = {deep}")).starts_with("a.toml:"));
    assert!(wrong("a.yaml", &"#".repeat(20 << 20)).starts_with("a.yaml:1:1: it has "));
}
