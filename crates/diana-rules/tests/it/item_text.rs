//! The text of one rule of a file.

use diana_rules::{Document, Registry, RuleFile};

fn texts(name: &str, text: &str) -> Vec<String> {
    let document = Document::new(name, text);
    let (file, _) = RuleFile::read_without_environment(&document, &Registry::default()).unwrap();
    file.rules.iter().map(|rule| document.item_text(rule.span)).collect()
}

#[test]
fn a_rule_keeps_its_layout_its_comments_and_its_variables() {
    let text = "rules:\n\
                - name: a\n\x20 # why\n\x20 limit: 5/s\n\n\x20 deny:\n\x20   - ${BAD}\n\
                # about b\n\
                - by: ip\n\x20 name: b\n\x20 limit: {rate: 9/s,\n\x20   burst: 20}\n\n\
                status: 429\n";
    assert_eq!(
        texts("diana.yaml", text),
        [
            "- name: a\n  # why\n  limit: 5/s\n\n  deny:\n    - ${BAD}",
            "- by: ip\n  name: b\n  limit: {rate: 9/s,\n    burst: 20}",
        ]
    );
}

#[test]
fn flow_style_and_json_end_at_their_brace() {
    let text = "rules: [{name: a, limit: 5/s}, {name: b, by: account, match: {path: /it's}, deny: [\"x}\", 'y{'], limit: 1/s}]";
    assert_eq!(
        texts("a.yaml", text),
        ["- {name: a, limit: 5/s}", "- {name: b, by: account, match: {path: /it's}, deny: [\"x}\", 'y{'], limit: 1/s}"]
    );
    let json = "{\"rules\": [\n  {\n    \"name\": \"a\",\n    \"limit\": \"5/s\"\n  }\n]}";
    assert_eq!(texts("a.json", json), ["- {\n    \"name\": \"a\",\n    \"limit\": \"5/s\"\n  }"]);
}

#[test]
fn a_toml_table_has_its_subtables() {
    let text = "status = 429\n\n[[rules]]\nname = \"a\"\nlimit = \"5/s\"\n[rules.match]\npath = \"/a\"\n\n\
                # b\n[[rules]]\nname = \"b\"\nlimit = \"1/s\"\n\n[identity]\naccount = \"header(x)\"\n";
    assert_eq!(
        texts("a.toml", text),
        [
            "[[rules]]\nname = \"a\"\nlimit = \"5/s\"\n[rules.match]\npath = \"/a\"",
            "[[rules]]\nname = \"b\"\nlimit = \"1/s\"",
        ]
    );
}

#[test]
fn a_long_rule_is_shortened() {
    let keys = (0..20_000).map(|key| format!("k{key}")).collect::<Vec<_>>().join(", ");
    let text = texts("a.yaml", &format!("rules:\n  - name: a\n    by: account\n    deny: [{keys}]\n"));
    assert!(text[0].len() < (32 << 10) + 16 && text[0].ends_with("\n# [...]"));
}
