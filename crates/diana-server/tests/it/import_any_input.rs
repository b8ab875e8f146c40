//! Importers accept any text: they write valid rules, or report problems.

use crate::support::{folder, rule_names};
use diana_import::{Imported, import_envoy, import_limitador, import_nginx};
use diana_server::registry;
use proptest::prelude::*;

/// Checks that the output is valid, and that no rule was omitted only because it was invalid.
fn assert_valid(imported: &Imported) {
    rule_names(&imported.rules);
    let rejected = imported.notes.iter().find(|note| note.what.contains("rejected by `diana check`"));
    assert!(rejected.is_none(), "{}", rejected.unwrap());
}

/// Imports with includes that are missing, empty, or another file.
fn nginx(text: &str) {
    let include = |pattern: &str| match pattern.len() % 3 {
        0 => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        1 => Ok(Vec::new()),
        _ => {
            Ok(vec![("other.conf".to_owned(), "limit_req_zone $uri zone=perip:1m rate=2r/m; location / {}".to_owned())])
        }
    };
    match import_nginx("any.conf", text, &registry(), &include) {
        Ok(imported) => assert_valid(&imported),
        Err(problems) => assert!(problems.to_string().starts_with("any.conf:"), "{problems}"),
    }
}

fn envoy(text: &str) {
    match import_envoy("any.yaml", text, &registry()) {
        Ok(imported) => assert_valid(&imported),
        Err(problems) => assert!(problems.to_string().starts_with("any.yaml:"), "{problems}"),
    }
}

fn limitador(text: &str) {
    match import_limitador("any.yaml", text, &registry()) {
        Ok(imported) => assert_valid(&imported),
        Err(problems) => assert!(problems.to_string().starts_with("any.yaml:"), "{problems}"),
    }
}

/// Returns the example files as texts.
fn examples(name: &str, ending: &str) -> Vec<String> {
    let mut paths = std::fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    paths.retain(|path| path.to_string_lossy().ends_with(ending) && !path.to_string_lossy().contains(".expected."));
    paths.sort();
    let texts = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect::<Vec<_>>();
    assert!(!texts.is_empty());
    texts
}

/// The pieces that are inserted into example files.
const PIECES: &str = "{ } ; \" ' \\ # $ ${ * ~ ^~ = \n 0 999999999999 ü \0 - : [ / limit_req location";

/// Example files with pieces removed, duplicated, or inserted.
fn mutated(name: &'static str, ending: &'static str) -> impl Strategy<Value = String> {
    let pieces = PIECES.split(' ').collect::<Vec<_>>();
    let change = (any::<prop::sample::Index>(), 0..40_usize, prop::sample::select(pieces), 0..3_u8);
    let file = prop::sample::select(examples(name, ending));
    (file, prop::collection::vec(change, 1..6)).prop_map(|(text, changes)| {
        let mut characters = text.chars().collect::<Vec<_>>();
        for (at, length, piece, kind) in changes {
            let start = at.index(characters.len() + 1);
            let end = (start + length).min(characters.len());
            match kind {
                0 => drop(characters.splice(start..end, [])),
                1 => drop(characters.splice(start..start, piece.chars())),
                _ => {
                    let doubled = characters[start..end].to_vec();
                    drop(characters.splice(end..end, doubled));
                }
            }
        }
        characters.into_iter().collect()
    })
}

/// Example files with lines duplicated, moved, removed and joined, which often stay valid.
fn rearranged(name: &'static str, ending: &'static str) -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..4_usize, 0..4_u8);
    let file = prop::sample::select(examples(name, ending));
    (file, prop::collection::vec(change, 1..12)).prop_map(|(text, changes)| {
        let mut lines = text.lines().map(str::to_owned).collect::<Vec<_>>();
        for (from, to, length, kind) in changes {
            let start = from.index(lines.len() + 1);
            let taken = lines[start..(start + length).min(lines.len())].to_vec();
            let to = to.index(lines.len() + 1);
            match kind {
                0 => drop(lines.splice(start..start + taken.len(), [])),
                1 => drop(lines.splice(to..to, taken)),
                // The value of another line.
                2 => {
                    let value = |line: &str| line.split_once(": ").map(|(_, value)| value.to_owned());
                    let value = taken.first().and_then(|line| value(line));
                    let line = lines.get_mut(to).filter(|line| line.contains(": "));
                    if let (Some(value), Some(line)) = (value, line) {
                        *line = format!("{}: {value}", line.split_once(": ").unwrap().0);
                    }
                }
                // Another digit.
                _ => {
                    let digit = char::from(b'0' + u8::try_from(length).unwrap() - 1);
                    if let Some(line) = lines.get_mut(to) {
                        *line = line.replacen(|c: char| c.is_ascii_digit(), &digit.to_string(), length);
                    }
                }
            }
        }
        lines.join("\n")
    })
}

/// Words of configurations.
const WORDS: &str = "http server location { } ; ; limit_req_zone limit_req limit_conn_zone limit_conn limit_rate \
    limit_rate_after zone=a zone=a:1m rate=5r/s burst=3 nodelay $binary_remote_addr $k map geo default \"\" 1 10.0.0.0/8 \
    server_name ~^(?!x) ~ ^~ = / /a /a/ *.x .x include x return if listen 80 set_real_ip_from limit_req_status \
    limit_req_dry_run on \n";

/// Words of the configuration in any order.
fn words() -> impl Strategy<Value = String> {
    let words = WORDS.split(' ').collect::<Vec<_>>();
    prop::collection::vec(prop::sample::select(words), 0..120).prop_map(|words| words.join(" "))
}

/// Statements of configurations.
const STATEMENTS: &str = r#"limit_req_zone $binary_remote_addr zone=a:1m rate=5r/s;
limit_req_zone $k zone=b:1m rate=5r/m;
limit_conn_zone $server_name zone=c:1m;
limit_req zone=a burst=3;
limit_req zone=a burst=4;
limit_req zone=b;
limit_conn c 3;
limit_rate 5k;
limit_rate_after 1m;
limit_req_status 429;
limit_conn_dry_run on;
map $http_x $k { default 1; '' ''; ~a$ $uri; }
geo $k { default 1; 10.0.0.0/8 ''; }
server_name a b;
server_name ~x{2} '${y}';
listen 81;
return 200;
set_real_ip_from 10.0.0.1;"#;

/// The blocks that contain such statements.
const BLOCKS: &str = r#"server
location /a
location /a/b/
location = /a
location ^~ /a/
location ~ a
location ~* '\.(b)"$'
location '/ {ü}*'
if ($x)"#;

/// Statements of the configuration, well formed, in any order and nesting.
fn statements() -> impl Strategy<Value = String> {
    let statement = prop::sample::select(STATEMENTS.lines().collect::<Vec<_>>()).prop_map(str::to_owned);
    statement.prop_recursive(4, 40, 6, |inner| {
        let block = prop::sample::select(BLOCKS.lines().collect::<Vec<_>>());
        let inner = prop::collection::vec(inner, 0..6);
        (block, inner).prop_map(|(block, inner)| format!("{block} {{ {} }}\n", inner.concat()))
    })
}

proptest! {
    // `PROPTEST_CASES` sets more.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(500),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_text(text in ".{0,200}") {
        nginx(&text);
        envoy(&text);
        limitador(&text);
    }

    #[test]
    fn changed_limitador_files(text in mutated("limitador", ".yaml")) {
        limitador(&text);
    }

    #[test]
    fn rearranged_limitador_files(text in rearranged("limitador", ".yaml")) {
        limitador(&text);
    }

    #[test]
    fn any_nginx_words(text in words()) {
        nginx(&text);
    }

    #[test]
    fn any_nginx_statements(texts in prop::collection::vec(statements(), 1..8)) {
        nginx(&texts.concat());
    }

    #[test]
    fn changed_lua_scripts(text in mutated("nginx_lua/lua", ".lua")) {
        nginx(&format!("server {{ access_by_lua_block {{ {text} }} }}"));
    }

    #[test]
    fn rearranged_lua_scripts(text in rearranged("nginx_lua/lua", ".lua")) {
        nginx(&format!("server {{ access_by_lua_block {{ {text} }} }}"));
    }

    #[test]
    fn changed_nginx_files(text in mutated("nginx", ".conf")) {
        nginx(&text);
    }

    #[test]
    fn changed_envoy_files(text in mutated("envoy", ".yaml")) {
        envoy(&text);
    }

    #[test]
    fn rearranged_nginx_files(text in rearranged("nginx", ".conf")) {
        nginx(&text);
    }

    #[test]
    fn rearranged_envoy_files(text in rearranged("envoy", ".yaml")) {
        envoy(&text);
    }
}

#[test]
fn output_of_large_files_is_bounded() {
    // Each prefix has its own limit, and each pattern has none: written out, each rule would name every pattern.
    let mut text = String::from("limit_req_zone $uri zone=a:1m rate=1r/s;\nserver {\n");
    for number in 0..4_000 {
        text.push_str(&format!(
            "location /p{number}/ {{ limit_req zone=a burst={number}; }}\nlocation ~ x{number} {{ return 200; }}\n"
        ));
    }
    text.push('}');
    let imported = import_nginx("large.conf", &text, &registry(), &|_| Ok(Vec::new())).unwrap();
    assert!(imported.rules.len() < 40 << 20, "{}", imported.rules.len());
    assert!(imported.notes.iter().any(|note| note.what.contains("the rules would be too large")));
    // So many open blocks would need a deep stack.
    let error =
        import_nginx("deep.conf", &"a {".repeat(100_000), &registry(), &|_| Ok(Vec::new())).unwrap_err().to_string();
    assert!(error.contains("nested deeper"), "{error}");
    let error = import_envoy("deep.yaml", &"[".repeat(100_000), &registry()).unwrap_err().to_string();
    assert!(error.starts_with("deep.yaml:"), "{error}");
}
