//! Realistic configurations of nginx become the expected rules.

use crate::support::{compare, folder, rule_names};
use diana_gateway::section::GatewaySection;
use diana_import::{Imported, NoteKind, import_nginx};
use diana_rules::document::Span;
use diana_rules::{Document, RuleFile};
use diana_server::registry;
use std::path::Path;
use std::process::Command;

/// Imports a file as the program does.
fn diana(file: &str) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_diana"))
        .args(["import", "nginx", file])
        .current_dir(folder("nginx"))
        .output()
        .unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{notes}");
    (String::from_utf8(output.stdout).unwrap(), notes)
}

/// nginx itself must accept the file, otherwise it would not be a valid example.
fn assert_nginx_accepts(file: &Path) {
    let scratch = std::env::temp_dir().join(format!(
        "diana-nginx-{}-{}",
        std::process::id(),
        file.file_stem().unwrap().display()
    ));
    std::fs::create_dir_all(&scratch).unwrap();
    // Debian installs it into a folder that is only in root's `PATH`.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/sbin";
    let output = Command::new("nginx")
        .env("PATH", path)
        .args(["-t", "-q", "-e", "stderr", "-p"])
        .arg(&scratch)
        .arg("-c")
        .arg(file)
        .args(["-g", "pid nginx.pid;"])
        .output()
        .unwrap_or_else(|error| panic!("nginx can't be started: {error}; `cargo xtask install` installs it"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    std::fs::remove_dir_all(&scratch).unwrap();
    // Without root, nginx can't open logs and caches of the system; it checks the syntax before that.
    let is_only_permission =
        errors.lines().all(|line| line.contains("Permission denied") || line.contains("test failed"));
    assert!(output.status.success() || (is_only_permission && !errors.is_empty()), "{errors}");
}

fn converts_to_the_expected_file(name: &str) {
    let conf = folder("nginx").join(format!("{name}.conf"));
    assert_nginx_accepts(&conf);
    let (rules, notes) = diana(&format!("{name}.conf"));
    compare(&conf.with_extension("expected.yaml"), &rules);
    compare(&conf.with_extension("expected.notes"), &notes);
    assert!(!rule_names(&rules).is_empty());
}

#[test]
fn each_address_and_each_server() {
    converts_to_the_expected_file("per_ip_and_per_server");
}

#[test]
fn login_brute_force() {
    converts_to_the_expected_file("login_brute_force");
}

#[test]
fn downloads() {
    converts_to_the_expected_file("downloads");
}

#[test]
fn exempt_networks() {
    converts_to_the_expected_file("exempt_networks");
}

#[test]
fn several_servers_in_several_files() {
    converts_to_the_expected_file("several_servers");
}

#[test]
fn servers_on_several_ports() {
    converts_to_the_expected_file("several_ports");
}

fn imported(text: &str) -> Imported {
    let imported =
        import_nginx("nginx.conf", text, &registry(), &|_| Ok(Vec::new())).unwrap_or_else(|error| panic!("{error}"));
    rule_names(&imported.rules);
    imported
}

/// Returns the notes as they are printed.
fn notes_of(imported: &Imported) -> Vec<String> {
    imported.notes.iter().map(ToString::to_string).collect()
}

const ZONES: &str = "limit_req_zone $remote_addr zone=a:1m rate=1r/s; limit_conn_zone $remote_addr zone=c:1m;\n";

#[test]
fn a_level_inherits_only_without_its_own_limits() {
    let imported = imported(&format!(
        "{ZONES}limit_req zone=a; limit_conn c 1;
         server {{ location /x/ {{ limit_conn c 2; }} location /y/ {{ limit_req zone=a burst=1; }} }}"
    ));
    let rules = imported.rules;
    // /x/ has its own connection limit, and inherits the request limit.
    assert!(rules.contains("when: '!request.path.startsWith(\"/x/\")'\n    concurrent: 1\n"), "{rules}");
    assert!(rules.contains("path: /x/**\n    concurrent: 2\n"), "{rules}");
    assert!(rules.contains("when: '!request.path.startsWith(\"/y/\")'\n    limit: 1/s\n"), "{rules}");
}

#[test]
fn the_default_server_matches_unnamed_hosts() {
    let imported = imported(&format!(
        "{ZONES}server {{ server_name a.example; limit_req zone=a; }}
         server {{ server_name b.example; }}
         server {{ listen 81; server_name old.example; return 301 http://a.example; }}"
    ));
    assert!(imported.rules.contains("when: '!(request.host == \"b.example\")'"), "{}", imported.rules);
    assert_eq!(
        notes_of(&imported),
        ["nginx.conf:1: limit_conn_zone: not converted: no converted `limit_conn` uses zone `c`"]
    );
}

#[test]
fn a_limit_on_all_ports_needs_no_names() {
    let imported = imported(
        "limit_req_zone $remote_addr zone=a:1m rate=1r/s;
         server { server_name a.example; location /x/ { limit_req zone=a; } }
         server { server_name b.example; }
         server { listen 443; server_name a.example; location /x/ { limit_req zone=a; } }
         server { listen 443; server_name c.example; }",
    );
    let rules = &imported.rules;
    assert!(rules.contains("when: '!(request.host in [\"b.example\", \"c.example\"])'"), "{rules}");
    assert!(imported.notes.is_empty(), "{:?}", notes_of(&imported));
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
fn unsupported_directives_are_noted_with_their_line() {
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
        notes_of(&imported),
        [
            "nginx.conf:1: limit_zone: not converted: unknown directive; if it limits requests, write a rule with its numbers",
            "nginx.conf:2: limit_req_zone: not converted: `$connection` is not supported as a key; choose another `by`",
            "nginx.conf:3: limit_req_zone: not converted: invalid `rate=fast`: expected for example `rate=10r/s` or `rate=30r/m`",
            "nginx.conf:5: limit_req: not converted, since its zone is not",
            "nginx.conf:6: limit_req: not converted: unknown zone `nowhere`: no `limit_req_zone` defines it; import the main file",
            "nginx.conf:7: limit_speed: not converted: unknown directive; if it limits requests, write a rule with its numbers",
            "nginx.conf:8: limit_conn: not converted: a named location is only reached internally; limit the locations that lead to it",
            "nginx.conf:11: limit_conn: not converted: it applies to TCP or UDP streams, but Diana limits HTTP requests",
        ]
    );
}

#[test]
fn other_rate_directives_are_noted_with_their_line() {
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
    let upstream =
        "it throttles reads from the upstream; `bandwidth` with `by: request` throttles responses to clients";
    let streams = "it applies to TCP or UDP streams, but Diana limits HTTP requests";
    assert_eq!(
        notes_of(&imported),
        [
            format!("nginx.conf:1: proxy_limit_rate: not converted: {upstream}"),
            "nginx.conf:3: set: not converted: a rate set by a variable; write a rule with `by: request` and `bandwidth`".to_owned(),
            "nginx.conf:5: set: not converted: it applies only inside the `if`; write the condition as `match.when` of a rule".to_owned(),
            format!("nginx.conf:5: fastcgi_limit_rate: not converted: {upstream}"),
            format!("nginx.conf:7: proxy_download_rate: not converted: {streams}"),
            format!("nginx.conf:7: proxy_upload_rate: not converted: {streams}"),
        ]
    );
}

#[test]
fn rewrites_to_other_limits_are_noted_with_their_lines() {
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
    // Without limits there is nothing to note.
    assert!(lines(&server("")).is_empty());
}

#[test]
fn a_file_that_includes_itself_is_an_error() {
    let include = |name: &str| Ok(vec![(name.to_owned(), "\ninclude self.conf;\n".to_owned())]);
    let error = import_nginx("self.conf", "include self.conf;", &registry(), &include).unwrap_err().to_string();
    assert!(
        error.starts_with("self.conf:2:1: includes are nested deeper than 16; does a file include itself?\n"),
        "{error}"
    );
}

#[test]
fn too_many_files_and_bytes_are_errors() {
    let many = |_: &str| Ok(vec![("x.conf".to_owned(), String::new()); 2_000]);
    let error = import_nginx("n.conf", "include *;", &registry(), &many).unwrap_err().to_string();
    assert!(error.contains("more than 1000 files"), "{error}");
    let large = |_: &str| Ok(vec![("x.conf".to_owned(), "#".repeat(9 << 20)); 2]);
    let error = import_nginx("n.conf", "include *;", &registry(), &large).unwrap_err().to_string();
    assert!(error.contains("more than 16777216 bytes"), "{error}");
}

#[test]
fn a_missing_include_is_noted() {
    let missing = |_: &str| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    let imported = import_nginx("n.conf", "events {}\ninclude mime.types;", &registry(), &missing).unwrap();
    let notes = notes_of(&imported);
    assert!(notes[0].starts_with("n.conf:2: include: `mime.types` can't be read"), "{notes:?}");
}

#[test]
fn any_method_is_supported_in_any_case() {
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

#[test]
fn access_control_is_noted_in_every_block() {
    let imported = imported(&format!(
        "{ZONES}server {{
    allow 10.0.0.0/8;
    allow 192.0.2.0/24;
    deny all;
    location /api/ {{ limit_req zone=a; limit_conn c 1; }}
    location /status {{ allow 127.0.0.1; deny all; }}
}}"
    ));
    let what = "access control, not a rate limit; use a rule with `deny: [NETWORK]` to deny addresses";
    assert_eq!(
        notes_of(&imported),
        [
            format!("nginx.conf:3: allow: not converted, nor 1 more in this block: {what}"),
            format!("nginx.conf:5: deny: not converted: {what}"),
            format!("nginx.conf:7: allow: not converted: {what}"),
            format!("nginx.conf:7: deny: not converted: {what}"),
        ]
    );
}

#[test]
fn a_key_with_a_fallback_becomes_two_rules() {
    let imported = imported(
        "map $http_x_api_key $client { '' $binary_remote_addr; default $http_x_api_key; }
         limit_req_zone $client zone=api:1m rate=5r/s;
         server { location /api/ { limit_req zone=api burst=2; } }",
    );
    assert!(imported.notes.is_empty(), "{:?}", notes_of(&imported));
    let rules = imported.rules;
    let by_address = "- name: api-ip-128\n    by: ip/128\n    match:\n      path: /api/**\n      when: 'request.headers[\"x-api-key\"] == \"\"'\n";
    let by_key = "- name: api-header-x-api-key\n    by: header(x-api-key)\n    match:\n      path: /api/**\n      when: '!(request.headers[\"x-api-key\"] == \"\")'\n";
    assert!(rules.contains(by_address) && rules.contains(by_key), "{rules}");
}

#[test]
fn a_map_of_a_variable_value_is_not_supported() {
    let imported = imported(
        "map $http_x $a { '' one; default $uri; }
         map $a $k { one $binary_remote_addr; default ''; }
         limit_req_zone $k zone=z:1m rate=5r/s; server { limit_req zone=z; }",
    );
    assert!(imported.rules.ends_with("rules: []\n"), "{}", imported.rules);
    assert!(notes_of(&imported)[0].contains("`map $a` uses a value that depends on other parts of the request"));
}

#[test]
fn one_zone_on_two_ports_with_two_statuses_is_one_rule() {
    let imported = imported(
        "limit_req_zone $remote_addr zone=a:1m rate=1r/s;
         server { listen 80; server_name a.example; limit_req zone=a; }
         server { listen 443; server_name a.example; limit_req zone=a; limit_req_status 429; }",
    );
    assert_eq!(imported.rules.matches("- name: ").count(), 1, "{}", imported.rules);
    assert!(imported.rules.contains("- name: a\n"), "{}", imported.rules);
    let notes = notes_of(&imported);
    let status = "nginx.conf:3: limit_req: status 429 not converted: nginx.conf:2 has the same limit with status 503, and rules don't distinguish ports; one rule covers both";
    assert!(notes.iter().any(|note| note == status), "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("the rules count them separately")), "{notes:?}");
}

#[test]
fn two_equal_zones_are_one_rule() {
    let zones = "limit_req_zone $remote_addr zone=a:1m rate=1r/s; limit_req_zone $remote_addr zone=b:1m rate=60r/m;\n";
    let in_one_server = imported(&format!("{zones}server {{ limit_req zone=a; limit_req zone=b; }}"));
    assert_eq!(in_one_server.rules.matches("- name: ").count(), 1, "{}", in_one_server.rules);
    assert!(in_one_server.rules.contains("zone b\n"), "both zones are named:\n{}", in_one_server.rules);
    let note = "nginx.conf:2: limit_req: same limit for the same requests as nginx.conf:2; one rule covers both";
    assert_eq!(notes_of(&in_one_server), [note]);
    assert_eq!(in_one_server.notes[0].kind, NoteKind::Info);

    let on_two_ports = imported(&format!(
        "{zones}server {{ server_name x.example; limit_req zone=a; }}
server {{ listen 81; server_name x.example; limit_req zone=b; }}"
    ));
    assert_eq!(on_two_ports.rules.matches("- name: ").count(), 1, "{}", on_two_ports.rules);
    let note = "nginx.conf:3: limit_req: nginx counts it separately from nginx.conf:2, but Diana together, since rules don't distinguish ports";
    assert!(notes_of(&on_two_ports).iter().any(|other| other == note), "{:?}", notes_of(&on_two_ports));
}

#[test]
fn limits_that_rules_cannot_express_are_omitted_and_noted() {
    let locations = (0..200).map(|number| format!("location /some/where/{number}/ {{ }}\n")).collect::<String>();
    let long = imported(&format!("{ZONES}server {{ location / {{ limit_req zone=a; }}\n{locations} }}"));
    assert!(long.rules.ends_with("rules: []\n"), "{}", long.rules);
    assert!(notes_of(&long).iter().any(|note| note.contains("limit_req: not converted: its condition would have")));
    assert_eq!(long.hints[0], "no limit could be converted, so there are no rules; see the notes");
    // Only the rule file's parser knows the maximum size of regular expressions.
    let large = imported(&format!("{ZONES}server {{ location ~ '^/(.{{5000}}){{5000}}$' {{ limit_req zone=a; }} }}"));
    assert!(large.rules.ends_with("rules: []\n"), "{}", large.rules);
    assert!(
        notes_of(&large)
            .iter()
            .any(|note| note.starts_with("nginx.conf:2: limit_req: not converted: rejected by `diana check`: ")),
        "{:?}",
        notes_of(&large)
    );
}

/// The configuration that comes with nginx.
const STOCK: &str = "\
user  nginx;
worker_processes  auto;
events { worker_connections  1024; }
http {
    include       mime.types;
    default_type  application/octet-stream;
    sendfile        on;
    keepalive_timeout  65;
    server {
        listen       80;
        server_name  localhost;
        location / { root   html; index  index.html index.htm; }
        error_page   500 502 503 504  /50x.html;
        location = /50x.html { root   html; }
    }
}
";

#[test]
fn a_file_without_limits_gives_a_hint() {
    let imported = imported(STOCK);
    assert!(imported.rules.ends_with("rules: []\n"), "{}", imported.rules);
    assert_eq!(
        imported.hints[0],
        "nginx.conf has no limit_req, limit_conn or limit_rate, so there are no rules; if they are in other files, import the main file or the output of `nginx -T`"
    );
    assert!(imported.hints[1].contains("`listen`") && imported.hints[1].contains("`upstream`"), "{:?}", imported.hints);
}

/// A second `gateway` would be a duplicate key.
#[test]
fn the_hint_adds_no_second_gateway() {
    for (proxies, hint) in [
        ("", "add a `gateway` section with `listen` and `upstream`"),
        (
            "set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For;",
            "the `gateway` of the file has only `trusted_proxies`; to serve with it, add `listen` and `upstream` to that section",
        ),
    ] {
        let imported = imported(&format!("{ZONES}{proxies}server {{ limit_req zone=a; }}"));
        assert_eq!(imported.rules.contains("\ngateway:\n"), !proxies.is_empty(), "{}", imported.rules);
        assert!(matches!(&*imported.hints, [only] if only.ends_with(hint)), "{:?}", imported.hints);
    }
}

#[test]
fn the_suggested_gateway_is_valid() {
    let server = "server { listen 80; listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
                  limit_req zone=a; location / { proxy_pass http://10.0.0.1:3000; } location /b/ { proxy_pass http://b; } }";
    for proxies in ["", "set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For;"] {
        let rules = imported(&format!("{ZONES}{proxies}{server}")).rules;
        let uncommented = rules.lines().map(|line| {
            let is_field = ["gateway:", "  listen", "  tls", "    listen", "    certificates", "  upstream"];
            // In an existing `gateway`, the fields are commented out one by one.
            let without_comment = line.replacen("# ", "", 1);
            if is_field.iter().any(|field| without_comment.starts_with(field)) {
                without_comment
            } else {
                line.to_owned()
            }
        });
        let uncommented = uncommented.map(|line| format!("{line}\n")).collect::<String>();
        let file = RuleFile::read_with(&Document::new("diana.yaml", &*uncommented), &registry(), |_| None);
        let file = file.unwrap_or_else(|problems| panic!("{problems}\n{uncommented}"));
        let gateway = file.section::<GatewaySection>().unwrap().unwrap();
        assert_eq!(gateway.upstream.upstreams().map(ToString::to_string).collect::<Vec<_>>(), ["http://10.0.0.1:3000"]);
        assert_eq!(gateway.listen.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0.0.0.0:80"]);
        assert!(
            gateway.tls.is_some() && gateway.http.trusted_proxies.is_empty() == proxies.is_empty(),
            "{uncommented}"
        );
        assert!(uncommented.contains("nginx also sends requests to http://b"), "{uncommented}");
    }
}

/// The page shows what is imported: each of its nginx blocks becomes the rules of the block after it.
#[test]
fn the_page_shows_imported_rules() {
    let page = include_str!("../../../../docs/coming-from/nginx.md");
    // Parses rules, without their positions.
    let rules = |text: &str| {
        let file = RuleFile::read_with(&Document::new("diana.yaml", text), &registry(), |_| None);
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
        let shown = rest.strip_prefix("\n```yaml\n").unwrap_or_else(|| panic!("no rules after\n{conf}"));
        let shown = shown.split_once("```\n").unwrap().0;
        compared += 1;

        let whole = std::env::temp_dir().join(format!("diana-page-{}-{compared}.conf", std::process::id()));
        std::fs::write(&whole, format!("events {{}}\nhttp {{\n{conf}}}\n")).unwrap();
        assert_nginx_accepts(&whole);
        std::fs::remove_file(&whole).unwrap();

        let imported = imported(conf);
        assert_eq!(notes_of(&imported), [""; 0]);
        assert_eq!(rules(&imported.rules), rules(shown), "the page should show:\n{}", imported.rules);
    }
    assert!(compared >= 5, "only {compared} found");
}

/// As in nginx: a key without a value is not counted.
#[test]
fn a_server_without_a_name_has_no_server_name_to_count() {
    let zone = "limit_conn_zone $server_name zone=a:10m;";
    let named = imported(&format!("http {{ {zone} server {{ server_name _; limit_conn a 5; }} }}"));
    assert!(named.rules.contains("concurrent: 5"), "{}", named.rules);
    for name in ["", "server_name ''; "] {
        let unnamed = imported(&format!("http {{ {zone} server {{ {name}limit_conn a 5; }} }}"));
        assert!(!unnamed.rules.contains("concurrent"), "{}", unnamed.rules);
        let notes = notes_of(&unnamed).join("\n");
        assert!(notes.contains("`$server_name` is empty without a `server_name`"), "{notes}");
    }
}
