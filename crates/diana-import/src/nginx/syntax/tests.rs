use super::*;

/// Directives as one line, to compare.
fn shape(directives: &[Directive]) -> String {
    let one = |directive: &Directive| {
        let words = std::iter::once(&directive.name).chain(&directive.args).map(|word| format!("<{word}>"));
        let words = words.collect::<String>();
        match &directive.block {
            Some(block) => format!("{words}{{{}}}", shape(block)),
            None => format!("{words};"),
        }
    };
    directives.iter().map(one).collect()
}

fn parsed(text: &str) -> String {
    shape(&parse(text, 0).unwrap_or_else(|problem| panic!("{problem:?}")))
}

fn problem(text: &str) -> String {
    let document = diana_rules::Document::new("nginx.conf", text);
    document.problems([parse(text, 0).unwrap_err()]).to_string()
}

#[test]
fn words_blocks_and_comments() {
    assert_eq!(parsed("a b  c; # d;\n#e\nf{g h;}i { }"), "<a><b><c>;<f>{<g><h>;}<i>{}");
    assert_eq!(parsed("a b#c;"), "<a><b#c>;");
    assert_eq!(parsed(""), "");
}

#[test]
fn quotes_escapes_and_variables() {
    assert_eq!(parsed(r#"a "b; {c}" 'd "e"';"#), r#"<a><b; {c}><d "e">;"#);
    assert_eq!(parsed(r#"a "x\"y" \.php$ 'it\'s' \\ \;b;"#), r#"<a><x"y><\.php$><it's><\><\;b>;"#);
    assert_eq!(parsed("a ${b}c x${d};"), "<a><${b}c><x${d}>;");
    assert_eq!(parsed("if ($a = \"b\") { c; }"), "<if><($a><=><b)>{<c>;}");
    assert_eq!(parsed("a a\"b\"c;"), "<a><a\"b\"c>;");
    assert_eq!(parsed("\"\" x;"), "<><x>;");
}

#[test]
fn lines_are_counted() {
    let directives = parse("a\n  b;\n\nc 'x\ny';\nd;", 3).unwrap();
    let lines =
        directives.iter().map(|directive| (directive.position.file, directive.position.line)).collect::<Vec<_>>();
    assert_eq!(lines, [(3, 1), (3, 4), (3, 6)]);
}

#[test]
fn lua_blocks_are_skipped() {
    let text = "content_by_lua_block {\n  local t = { a = '}' } -- }\n  s = [[ } ]]\n}\nb;";
    assert_eq!(parsed(text), "<content_by_lua_block>{}<b>;");
    assert_eq!(parse(text, 0).unwrap()[1].position.line, 5);
}

#[test]
fn reports_syntax_errors() {
    assert_eq!(
        problem("a b\n"),
        "nginx.conf:1:1: unexpected end of file in `a`\n  1 | a b\n    | ^ expected `;` at its end\n"
    );
    assert!(problem("a {\n b;\n").starts_with("nginx.conf:1:1: unclosed block `a`\n"));
    assert!(problem("a;\n}").starts_with("nginx.conf:2:1: unexpected `}`\n"));
    assert!(problem("a { b }").starts_with("nginx.conf:1:5: missing `;` after `b`\n"));
    assert!(problem("a \"b").starts_with("nginx.conf:1:3: unclosed quote\n"));
    assert!(problem("a \"b\"c;").starts_with("nginx.conf:1:6: unexpected `c` after a closing quote\n"));
    assert!(problem(";").starts_with("nginx.conf:1:1: unexpected `;`\n"));
    assert!(problem("{}").starts_with("nginx.conf:1:1: unexpected `{`\n"));
    assert!(problem(&"a {".repeat(MAX_DEPTH + 1)).contains("nested deeper than 64"));
    assert!(problem("x_by_lua_block { '").starts_with("nginx.conf:1:16: unclosed Lua block\n"));
}
