//! Configurations of nginx as people have them become the rules beside them.

use crate::support::{compare, folder, read_again};
use diana_rules::{Document, Registry, RuleFile, Span};
use diana_server::import::{Imported, import_nginx};
use std::path::Path;
use std::process::Command;

/// Imports a file as the program does.
fn diana(file: &str) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_diana"))
        .args(["import", "nginx", file])
        .current_dir(folder("nginx"))
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    (String::from_utf8(output.stdout).unwrap(), told)
}

/// nginx itself must take the file, else it would be no example.
fn nginx_takes(file: &Path) {
    let scratch = std::env::temp_dir().join(format!(
        "diana-nginx-{}-{}",
        std::process::id(),
        file.file_stem().unwrap().display()
    ));
    std::fs::create_dir_all(&scratch).unwrap();
    // Debian has it where only root looks.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/sbin";
    let output = Command::new("nginx")
        .env("PATH", path)
        .args(["-t", "-q", "-e", "stderr", "-p"])
        .arg(&scratch)
        .arg("-c")
        .arg(file)
        .args(["-g", "pid nginx.pid;"])
        .output()
        .unwrap_or_else(|error| panic!("nginx can't be started: {error}; `cargo xtask test` installs it"));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    std::fs::remove_dir_all(&scratch).unwrap();
    // Who is not root can't open logs and caches of the system; the syntax is looked at before that.
    let is_only_permission =
        told.lines().all(|line| line.contains("Permission denied") || line.contains("test failed"));
    assert!(output.status.success() || (is_only_permission && !told.is_empty()), "{told}");
}

fn becomes_what_is_beside_it(name: &str) {
    let conf = folder("nginx").join(format!("{name}.conf"));
    nginx_takes(&conf);
    let (rules, told) = diana(&format!("{name}.conf"));
    compare(&conf.with_extension("expected.yaml"), &rules);
    compare(&conf.with_extension("expected.notes"), &told);
    assert!(!read_again(&rules).is_empty());
}

#[test]
fn each_address_and_each_server() {
    becomes_what_is_beside_it("per_ip_and_per_server");
}

#[test]
fn guessing_of_passwords() {
    becomes_what_is_beside_it("login_brute_force");
}

#[test]
fn downloads() {
    becomes_what_is_beside_it("downloads");
}

#[test]
fn networks_that_are_spared() {
    becomes_what_is_beside_it("spared_networks");
}

#[test]
fn several_servers_in_several_files() {
    becomes_what_is_beside_it("several_servers");
}

#[test]
fn servers_on_several_ports() {
    becomes_what_is_beside_it("several_ports");
}

fn imported(text: &str) -> Imported {
    let imported = import_nginx("nginx.conf", text, &|_| Ok(Vec::new())).unwrap_or_else(|error| panic!("{error}"));
    read_again(&imported.rules);
    imported
}

/// Notes as they are printed.
fn told(imported: &Imported) -> Vec<String> {
    imported.notes.iter().map(ToString::to_string).collect()
}

const ZONES: &str = "limit_req_zone $remote_addr zone=a:1m rate=1r/s; limit_conn_zone $remote_addr zone=c:1m;\n";

#[test]
fn a_level_inherits_only_where_it_has_none_of_its_own() {
    let imported = imported(&format!(
        "{ZONES}limit_req zone=a; limit_conn c 1;
         server {{ location /x/ {{ limit_conn c 2; }} location /y/ {{ limit_req zone=a burst=1; }} }}"
    ));
    let rules = imported.rules;
    // The connections of /x/ are its own, and its requests are those of all.
    assert!(rules.contains("when: '!request.path.startsWith(\"/x/\")'\n    concurrent: 1\n"), "{rules}");
    assert!(rules.contains("path: /x/**\n    concurrent: 2\n"), "{rules}");
    assert!(rules.contains("when: '!request.path.startsWith(\"/y/\")'\n    limit: 1/s\n"), "{rules}");
}

#[test]
fn a_default_server_gets_what_no_other_is_called() {
    let imported = imported(&format!(
        "{ZONES}server {{ server_name a.example; limit_req zone=a; }}
         server {{ server_name b.example; }}
         server {{ listen 81; server_name old.example; return 301 http://a.example; }}"
    ));
    assert!(imported.rules.contains("when: '!(request.host == \"b.example\")'"), "{}", imported.rules);
    assert_eq!(
        told(&imported),
        ["nginx.conf:1: limit_conn_zone: not carried over: no `limit_conn` that was carried over uses zone `c`"]
    );
}

#[test]
fn a_limit_that_all_ports_have_needs_no_names() {
    let imported = imported(
        "limit_req_zone $remote_addr zone=a:1m rate=1r/s;
         server { server_name a.example; location /x/ { limit_req zone=a; } }
         server { server_name b.example; }
         server { listen 443; server_name a.example; location /x/ { limit_req zone=a; } }
         server { listen 443; server_name c.example; }",
    );
    let rules = &imported.rules;
    assert!(rules.contains("when: '!(request.host in [\"b.example\", \"c.example\"])'"), "{rules}");
    assert!(imported.notes.is_empty(), "{:?}", told(&imported));
}

#[test]
fn a_server_that_is_not_the_default_has_its_names() {
    let imported = imported(&format!(
        "{ZONES}server {{ server_name b.example; }}
         server {{ server_name a.example .A2.example; limit_req zone=a; }}"
    ));
    assert!(imported.rules.contains("host: ['*.a2.example', a.example, a2.example]\n"), "{}", imported.rules);
}

#[test]
fn a_name_may_be_any_text() {
    for (name, is_field) in [("a_b.example", true), ("'a b'", false), ("a=b.example", false), (".a=b.example", false)] {
        let rules = imported(&format!("{ZONES}server {{ }} server {{ server_name {name}; limit_req zone=a; }}")).rules;
        assert_eq!(rules.contains("\n      host: "), is_field, "{rules}");
        assert_eq!(rules.contains("\n      when: 'request.host == "), !is_field, "{rules}");
    }
}

#[test]
fn what_has_no_counterpart_is_told_with_its_line() {
    let imported = imported(
        "limit_zone old $remote_addr 1m;
limit_req_zone $connection zone=b:1m rate=1r/s;
limit_req_zone $remote_addr zone=a:1m rate=fast;
server {
    limit_req zone=b;
    limit_req zone=nowhere;
    limit_speed 5;
    location @named { limit_conn c 1; }
    include mime.types;
}
stream { server { limit_conn c 1; } }
",
    );
    assert_eq!(
        told(&imported),
        [
            "nginx.conf:1: limit_zone: not carried over: Diana does not know it",
            "nginx.conf:2: limit_req_zone: not carried over: rules can't tell requests apart by `$connection`; choose another `by`",
            "nginx.conf:3: limit_req_zone: not carried over: `rate=fast` is no rate",
            "nginx.conf:5: limit_req: not carried over, since its zone is not",
            "nginx.conf:6: limit_req: not carried over: no `limit_req_zone` here defines zone `nowhere`; import the main file",
            "nginx.conf:7: limit_speed: not carried over: Diana does not know it",
            "nginx.conf:8: limit_conn: not carried over: a named location is reached from within only; limit those that lead to it",
            "nginx.conf:11: limit_conn: not carried over: it is about streams of TCP or UDP, and Diana limits HTTP requests",
        ]
    );
}

#[test]
fn what_limits_by_another_name_is_told_with_its_line() {
    let imported = imported(
        "proxy_limit_rate 1m;
server {
    set $limit_rate 10k;
    set $other 10k;
    location /x/ { if ($slow) { set $limit_rate 5k; } fastcgi_limit_rate 1k; }
}
stream { server { proxy_download_rate 1m; proxy_upload_rate 1m; } }
",
    );
    let upstream = "it slows down reading from the upstream; `bandwidth` with `by: request` limits what a client gets";
    let streams = "it is about streams of TCP or UDP, and Diana limits HTTP requests";
    assert_eq!(
        told(&imported),
        [
            format!("nginx.conf:1: proxy_limit_rate: not carried over: {upstream}"),
            "nginx.conf:3: set: not carried over: a rate that is set as a variable; write a rule with `by: request` and `bandwidth`".to_owned(),
            "nginx.conf:5: set: not carried over: it holds only under the `if`; write the condition as `when` of a rule".to_owned(),
            format!("nginx.conf:5: fastcgi_limit_rate: not carried over: {upstream}"),
            format!("nginx.conf:7: proxy_download_rate: not carried over: {streams}"),
            format!("nginx.conf:7: proxy_upload_rate: not carried over: {streams}"),
        ]
    );
}

#[test]
fn rewrites_that_lead_to_other_limits_are_told_with_their_lines() {
    let server = |limit: &str| {
        format!(
            "limit_req_zone $remote_addr zone=a:1m rate=1r/s;
server {{
    rewrite ^/old/ /new/ break;
    if ($x) {{
        rewrite ^/a/ /b/;
    }}
    rewrite ^/gone/ https://example.com/ permanent;
    location /x/ {{
        rewrite ^ /y/ last;
        rewrite ^ /x/z break;
        rewrite ^ http://example.com/;
    }}
    location /y/ {{ {limit} }}
}}
"
        )
    };
    let lines = |text: &str| {
        let notes = imported(text).notes;
        notes.iter().filter(|note| note.directive == "rewrite").map(|note| note.line).collect::<Vec<_>>()
    };
    assert_eq!(lines(&server("limit_req zone=a;")), [3, 5, 9]);
    // Without limits there is nothing to lead to.
    assert!(lines(&server("")).is_empty());
}

#[test]
fn a_file_that_includes_itself_is_an_error() {
    let include = |name: &str| Ok(vec![(name.to_owned(), "\ninclude self.conf;\n".to_owned())]);
    let error = import_nginx("self.conf", "include self.conf;", &include).unwrap_err().to_string();
    assert!(
        error.starts_with("self.conf:2:1: includes are nested deeper than 16; does a file include itself?\n"),
        "{error}"
    );
}

#[test]
fn too_many_files_and_bytes_are_errors() {
    let many = |_: &str| Ok(vec![("x.conf".to_owned(), String::new()); 2_000]);
    let error = import_nginx("n.conf", "include *;", &many).unwrap_err().to_string();
    assert!(error.contains("more than 1000 files"), "{error}");
    let large = |_: &str| Ok(vec![("x.conf".to_owned(), "#".repeat(9 << 20)); 2]);
    let error = import_nginx("n.conf", "include *;", &large).unwrap_err().to_string();
    assert!(error.contains("more than 16777216 bytes"), "{error}");
}

#[test]
fn an_include_that_is_missing_is_told() {
    let missing = |_: &str| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    let imported = import_nginx("n.conf", "events {}\ninclude mime.types;", &missing).unwrap();
    let notes = told(&imported);
    assert!(notes[0].starts_with("n.conf:2: include: `mime.types` can't be read"), "{notes:?}");
}

#[test]
fn methods_are_compared_without_case_and_need_not_be_the_usual_ones() {
    let rules = |method: &str| {
        let map = format!("map $request_method $k {{ default ''; {method} $binary_remote_addr; }}\n");
        imported(&format!("{map}limit_req_zone $k zone=a:1m rate=1r/s;\nserver {{ limit_req zone=a; }}\n")).rules
    };
    assert!(rules("post").contains("\n      method: POST\n"), "{}", rules("post"));
    for (method, when) in [("'$POST'", "$POST"), ("purge", "PURGE"), ("'a b'", "A B")] {
        let rules = rules(method);
        assert!(rules.contains(&format!("\n      when: 'request.method == \"{when}\"'\n")), "{rules}");
    }
}

#[test]
fn a_location_may_be_any_text() {
    let deep = "/a".repeat(70);
    for (location, is_field) in
        [("/a/b", true), ("/a#b", false), ("'/a b'", false), ("/a/../b", false), (&*deep, false)]
    {
        let text = format!("{ZONES}server {{ location {location} {{ limit_req zone=a; }} }}");
        let rules = imported(&text).rules;
        assert_eq!(rules.contains("\n      path: "), is_field, "{rules}");
        assert_eq!(rules.contains("\n      when: "), !is_field, "{rules}");
    }
}

/// The page shows what is imported: each of its blocks of nginx becomes the rules of the block behind it.
#[test]
fn the_page_coming_from_shows_what_is_imported() {
    let page = include_str!("../../../../docs/coming-from.md");
    // What they say, wherever it stands.
    let rules = |text: &str| {
        let file = RuleFile::read_with(&Document::new("diana.yaml", text), &Registry::default(), |_| None);
        let mut rules = file.unwrap_or_else(|problems| panic!("{problems}\n{text}")).rules;
        for rule in &mut rules {
            rule.span = Span::default();
            rule.limits.iter_mut().for_each(|limit| limit.span = Span::default());
        }
        rules
    };
    let mut compared = 0;
    for part in page.split("```nginx\n").skip(1) {
        let (conf, rest) = part.split_once("```\n").unwrap();
        let shown = rest.strip_prefix("\n```yaml\n").unwrap_or_else(|| panic!("no rules behind\n{conf}"));
        let shown = shown.split_once("```\n").unwrap().0;
        compared += 1;

        let whole = std::env::temp_dir().join(format!("diana-page-{}-{compared}.conf", std::process::id()));
        std::fs::write(&whole, format!("events {{}}\nhttp {{\n{conf}}}\n")).unwrap();
        nginx_takes(&whole);
        std::fs::remove_file(&whole).unwrap();

        let imported = imported(conf);
        assert_eq!(told(&imported), [""; 0]);
        assert_eq!(rules(&imported.rules), rules(shown), "the page should show:\n{}", imported.rules);
    }
    assert!(compared >= 5, "only {compared} were found");
}
