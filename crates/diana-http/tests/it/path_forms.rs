//! The forms of a path: no spelling reaches a handler uncounted.
//!
//! Services differ in how they read a path. Models of the lenient ones are in this file: how each interprets a path,
//! and which handler that reaches. Whatever a client sends, a rule for the handler's path counts the request, or the
//! request is rejected with 400 before it gets there. `diana-server/tests/it/gateway/paths.rs` compares the model of
//! nginx with a real one.

use diana::RuleSet;
use diana::rules::http_settings::SpellingPolicy;
use diana::rules::{Document, Registry, RuleFile};
use diana::ruleset::{Matches, Purpose};
use diana_http::{HttpAttributes, malformed_path};
use http::{Request, Uri};
use proptest::prelude::*;
use std::sync::LazyLock;

/// Returns the segments of a path as a service passes them to its handlers; `None` if it responds without a handler.
type Service = fn(&str) -> Option<Vec<String>>;

const SERVICES: &[(&str, Service)] = &[
    ("nginx", nginx),
    ("Flask", flask),
    ("Express", express),
    ("Tomcat", |path| tomcat(path, Solidus::Decode, Backslash::Denied)),
    ("Tomcat with backslashes", |path| tomcat(path, Solidus::Decode, Backslash::Separator)),
    ("Tomcat that passes %2F through", |path| tomcat(path, Solidus::PassThrough, Backslash::Denied)),
    ("decodes before it cuts", decodes_then_cuts),
    ("IIS", iis),
    ("Fastify 4", fastify),
    ("Starlette", starlette),
    ("Node with an address", node_url),
];

/// Decodes everything once and merges slashes, then chooses a location. `;` and `\` are plain characters.
fn nginx(path: &str) -> Option<Vec<String>> {
    let path = decoded(path).filter(|path| !path.contains('\0'))?;
    resolved(path.split('/'))
}

/// Werkzeug's router sees WSGI's PATH_INFO, which is decoded. Several slashes are redirected, dots are plain segments.
fn flask(path: &str) -> Option<Vec<String>> {
    express(&lenient(path))
}

/// Routes match the raw path; only parameters are decoded, afterwards. (This model is case-sensitive, as with the
/// setting `case sensitive routing`.)
fn express(path: &str) -> Option<Vec<String>> {
    let segments = path.strip_prefix('/')?.split('/').map(str::to_owned).collect::<Vec<_>>();
    without_last_slash(segments)
}

#[derive(Clone, Copy, PartialEq)]
enum Solidus {
    Decode,
    PassThrough,
}

#[derive(Clone, Copy, PartialEq)]
enum Backslash {
    Denied,
    Separator,
}

/// Removes parameters first (up to an unescaped slash), then decodes, then resolves.
fn tomcat(path: &str, solidus: Solidus, backslash: Backslash) -> Option<Vec<String>> {
    let cut = path.split('/').map(|segment| segment.split(';').next().unwrap()).collect::<Vec<_>>().join("/");
    let escaped = |text: &str| text.replace("%2f", "%252F").replace("%2F", "%252F");
    let path = decoded(&if solidus == Solidus::PassThrough { escaped(&cut) } else { cut })?;
    if path.contains('\0') || backslash == Backslash::Denied && path.contains('\\') {
        return None;
    }
    resolved(path.split(['/', '\\']))
}

/// Removes parameters after decoding.
fn decodes_then_cuts(path: &str) -> Option<Vec<String>> {
    let path = decoded(path)?;
    resolved(path.split('/').map(|segment| segment.split(';').next().unwrap()))
}

/// `\` is `/`, also if it is escaped.
fn iis(path: &str) -> Option<Vec<String>> {
    let path = lenient(path);
    resolved(path.split(['/', '\\']))
}

/// Treats everything after `;` as the query.
fn fastify(path: &str) -> Option<Vec<String>> {
    flask(path.split(';').next().unwrap())
}

/// A route is a regular expression that ends in `$`, which matches before a last newline, too.
fn starlette(path: &str) -> Option<Vec<String>> {
    let path = lenient(path);
    express(path.strip_suffix('\n').unwrap_or(&path))
}

/// `new URL(request.url, base).pathname`: `//x` is a host, `\` is `/`.
fn node_url(path: &str) -> Option<Vec<String>> {
    let path = path.replace('\\', "/");
    let Some(rest) = path.strip_prefix("//") else { return express(&path) };
    let rest = rest.trim_start_matches('/');
    express(rest.find('/').map_or("/", |end| &rest[end..]))
}

/// Decodes once. `None` for an invalid escape, as most services respond with 400.
fn decoded(path: &str) -> Option<String> {
    let escapes = path.match_indices('%').map(|(at, _)| path.get(at + 1..at + 3));
    let is_valid =
        |digits: Option<&str>| digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    escapes.into_iter().all(is_valid).then(|| lenient(path))
}

/// Decodes once; an invalid escape stays unchanged. Bytes that are not UTF-8 become replacement characters.
fn lenient(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let digits = path.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.filter(|_| bytes[at] == b'%') {
            Some(digits) => {
                decoded.push(u8::from_str_radix(digits, 16).unwrap());
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Removes empty segments and dots.
fn resolved<'a>(segments: impl Iterator<Item = &'a str>) -> Option<Vec<String>> {
    let mut resolved = Vec::new();
    for segment in segments {
        match segment {
            "" | "." => {}
            ".." => {
                resolved.pop()?;
            }
            _ => resolved.push(segment.to_owned()),
        }
    }
    Some(resolved)
}

/// A trailing slash makes no difference; an empty segment elsewhere reaches no handler.
fn without_last_slash(mut segments: Vec<String>) -> Option<Vec<String>> {
    if segments.last().is_some_and(String::is_empty) {
        segments.pop();
    }
    segments.iter().all(|segment| !segment.is_empty()).then_some(segments)
}

/// Returns whether these segments of a path reach a handler.
type Handles = fn(&[&str]) -> bool;

/// The handlers of the services, each with the pattern of its rule.
const HANDLERS: &[(&str, Handles)] = &[
    ("/login", |path| *path == ["login"]),
    ("/x/login", |path| *path == ["x", "login"]),
    ("/*/login", |path| matches!(path, [_, "login"])),
    ("/{tenant}/login", |path| matches!(path, [_, "login"])),
    ("/users/{id}", |path| matches!(path, ["users", _])),
    ("/users/*/files", |path| matches!(path, ["users", _, "files"])),
    ("/admin/**", |path| matches!(path, ["admin", ..])),
    ("/files/*.pdf", |path| matches!(path, ["files", file] if file.ends_with(".pdf"))),
];

fn rules(text: &str) -> RuleSet {
    RuleSet::new(&RuleFile::read(&Document::new("diana.yaml", text), &Registry::default()).unwrap())
}

/// Returns the keys by which the rules count a request; `None` if it is denied, or rejected with 400.
fn counted(rules: &RuleSet, path: &str) -> Option<Vec<Vec<u8>>> {
    if malformed_path(path, SpellingPolicy::Allow).is_some() {
        return None;
    }
    let request = Request::get(path.parse::<Uri>().ok()?).body(()).ok()?;
    let mut found = Matches::default();
    rules.find(&[&HttpAttributes::of(&request, None)], Purpose::Charge, &mut found);
    let keys = || found.matched().iter().map(|applied| found.key(applied).to_vec()).collect();
    found.denied().is_empty().then(keys)
}

/// Paths of parts that services interpret differently, and of names of handlers.
fn paths() -> impl Strategy<Value = String> {
    let separators = prop::sample::select(vec!["/", "/", "/", "//", "%2f", "%2F", "\\", "%5c", "%5C", "/;/", "/%3b/"]);
    let names = prop::sample::select(vec![
        "login", "%6cogin", "lo%67in", "LOGIN", "x", "users", "admin", "%61dmin", "files", "a.pdf", "a.p%64f",
        "%2570df", "login%0a", "7", "", ".", "..", "%2e%2e", ".%2E", "%", "%zz", "%00", "%c3%a9", "%ff", "a%20b",
    ]);
    let tails = prop::sample::select(vec![
        "", "", "", "", ";", ";v=1", "%3b", "%3Bv", ";\\x", ";%2fx", ";%5cx", "%3b%2fx", ";x.pdf", "%3bx.pdf", ";/..",
        "\\",
    ]);
    let parts = prop::collection::vec((separators, names, tails), 0..5);
    parts.prop_map(|parts| {
        let path = parts.iter().map(|(separator, name, tail)| format!("{separator}{name}{tail}")).collect::<String>();
        // The path of a request begins with a slash.
        if path.starts_with('/') { path } else { format!("/{path}") }
    })
}

/// Spellings of a path that some service accepts.
fn spelled(plain: &'static [&'static str]) -> impl Strategy<Value = String> {
    let one = |text: &'static str| {
        let separators =
            prop::sample::select(vec!["/", "//", "%2f", "%2F", "/%2F", "\\", "%5C", "/;/", "/;x/", "/%3Bx/"]);
        let escaped = prop::collection::vec(any::<bool>(), text.len());
        let tails = prop::sample::select(vec!["", ";", ";v=1", "%3bv", ";\\x", ";%2fx", "%3B%2F", ";%5cx", "/", "%2f"]);
        (separators, escaped, tails).prop_map(move |(separator, escaped, tail)| {
            let letters = text.chars().zip(escaped);
            let name = letters
                .map(|(letter, escape)| if escape { format!("%{:02x}", u32::from(letter)) } else { letter.into() });
            format!("{separator}{}{tail}", name.collect::<String>())
        })
    };
    plain.iter().map(|text| one(text)).collect::<Vec<_>>().prop_map(|parts| {
        let path = parts.concat();
        if path.starts_with('/') { path } else { format!("/{path}") }
    })
}

/// Checks that no service passes this path to a handler whose rule does not count it.
fn check_counted(path: &str) -> Result<(), TestCaseError> {
    if path.parse::<Uri>().is_err() {
        return Ok(());
    }
    static RULES: LazyLock<Vec<RuleSet>> = LazyLock::new(|| {
        let rule =
            |pattern: &str| rules(&format!("rules: [{{name: handler, match: {{path: '{pattern}'}}, limit: 1/h}}]"));
        HANDLERS.iter().map(|(pattern, _)| rule(pattern)).collect()
    });
    for ((pattern, handles), rules) in HANDLERS.iter().zip(&*RULES) {
        for (name, service) in SERVICES {
            let Some(segments) = service(path) else { continue };
            if handles(&segments.iter().map(String::as_str).collect::<Vec<_>>()) {
                let keys = counted(rules, path);
                prop_assert!(keys.is_none_or(|keys| keys.len() == 1), "{path} reaches {pattern} of {name} uncounted");
            }
        }
    }
    Ok(())
}

#[test]
fn known_spellings_are_counted() {
    for path in [
        "/login",
        "/%2flogin",
        "/x%2f..%2flogin",
        "/x/..%2flogin",
        "/x;%2f..%2flogin",
        "/login;\\x",
        "/a\\b/../login",
        "/login%3bx",
        "/login;%2fx",
        "/login%2f",
        "/%5clogin",
        "/login%0a",
        "/login;/x",
        "//x/login",
        "///x/login",
        "/\\x/login",
    ] {
        check_counted(path).unwrap();
        let rules = rules("rules: [{name: login, match: {path: /login}, limit: 1/h}]");
        assert!(counted(&rules, path).is_none_or(|keys| keys.len() == 1), "{path}");
    }
}

#[test]
fn a_tenant_made_of_separators_is_counted() {
    let rules = rules("rules: [{name: logins, match: {path: '/{tenant}/login'}, by: param(tenant), limit: 1/h}]");
    // Flask's `/<tenant>/login` matches these.
    for path in ["/;/login", "/%3b/login", "/;x/login", "/a\\b/login", "/a%5cb/login"] {
        assert_eq!(counted(&rules, path).map(|keys| keys.len()), Some(1), "{path}");
    }
}

#[test]
fn a_path_is_exempt_only_if_every_form_is() {
    let listed = rules("rules: [{name: all, by: resource, allow: [/health, /a/b], limit: 1/h}]");
    let by_expression =
        rules("rules: [{name: all, match: {when: '!(request.path in [\"/health\", \"/a/b\"])'}, limit: 1/h}]");
    for rules in [&listed, &by_expression] {
        for exempt in ["/health", "/heal%74h", "/a//b", "/a/b"] {
            assert_eq!(counted(rules, exempt).map(|keys| keys.len()), Some(0), "{exempt}");
        }
        for spelled in [
            "/health;x",
            "//health",
            "/health%3b",
            "/health%2f",
            "/a%2fb",
            "/a\\b",
            "/a%5Cb",
            "/health;\\x",
            "/%2fhealth",
        ] {
            assert_eq!(counted(rules, spelled).map(|keys| keys.len()), Some(1), "{spelled}");
        }
    }
    let denied = rules("rules: [{name: all, by: resource, deny: [/admin, /a%2Fb], limit: 1/h}]");
    for path in ["/admin", "/%2fadmin", "/admin;x", "/admin%3bx", "/admin;\\x", "/a%2fb"] {
        assert_eq!(counted(&denied, path), None, "{path}");
    }
    assert_eq!(counted(&denied, "/a/b").map(|keys| keys.len()), Some(1));
}

#[test]
fn a_resource_and_a_parameter_have_one_key() {
    let by_resource = rules("rules: [{name: all, by: resource, limit: 1/h}]");
    for path in ["/a/b", "/a%2fb", "/a%2Fb/", "/a\\b", "/a%5cb", "/a//b;x", "/%2fa/b%3bx", "/a/b;\\x", "/a/b;%2fx"] {
        assert_eq!(counted(&by_resource, path).unwrap(), [b"/a/b"], "{path}");
    }
    let projects = "rules: [{name: all, by: param(id), match: {path: '/projects/{id}'}, limit: 1/h}]";
    let by_parameter = rules(projects);
    assert_eq!(counted(&by_parameter, "/projects/a;1").unwrap(), [b"a"]);
    assert_eq!(counted(&by_parameter, "/projects%2fa%3b1").unwrap(), [b"a"]);
    for path in ["/projects/group%2Fname", "/projects/group%2fname", "/projects/group%2fname;x"] {
        assert_eq!(counted(&by_parameter, path).unwrap(), [b"group%2Fname"], "{path}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_spelling_reaches_a_handler_uncounted(path in paths()) {
        check_counted(&path)?;
    }

    #[test]
    fn no_spelling_of_a_handlers_path_is_uncounted(
        login in spelled(&["login"]),
        tenant in spelled(&["x", "login"]),
        user in spelled(&["users", "7"]),
        file in spelled(&["files", "a.pdf"]),
    ) {
        for path in [login, tenant, user, file] {
            check_counted(&path)?;
        }
    }

    /// If services read two paths as one resource, it has one key. The text between `;` and the next slash may be a
    /// parameter or a part of the path, depending on the service: then it has at most as many keys as segments. (For a
    /// service that reads `//x` as a host, or everything after `;` as the query, a resource has more.)
    #[test]
    fn all_spellings_of_a_resource_have_one_key(path in spelled(&["x", "login"])) {
        let rules = rules("rules: [{name: each, by: resource, limit: 1/h}]");
        for (name, service) in SERVICES {
            let is_resource = service(&path).is_some_and(|segments| segments == ["x", "login"]);
            if is_resource && !["Fastify 4", "Node with an address"].contains(name) && let Some(keys) = counted(&rules, &path)
            {
                let is_key = keys == [b"/x/login"] || *name == "decodes before it cuts" && keys == [b"/x"];
                prop_assert!(is_key, "{path} of {name} has the key {keys:?}");
            }
        }
    }

    /// Exempt paths are exactly those in the file, for every service.
    #[test]
    fn no_spelling_exempts_another_resource(path in prop_oneof![paths(), spelled(&["x", "login"])]) {
        let rules = rules("rules: [{name: all, by: resource, allow: [/login, /x/login], limit: 1/h}]");
        if counted(&rules, &path).is_some_and(|keys| keys.is_empty()) {
            for (name, service) in SERVICES {
                // These decode nothing, so they have no such handler.
                let decodes = !["Express", "Node with an address"].contains(name);
                if let Some(segments) = service(&path).filter(|_| decodes) {
                    let is_listed = segments == ["login"] || segments == ["x", "login"];
                    prop_assert!(is_listed, "{path} is exempt, and {segments:?} to {name}");
                }
            }
        }
    }
}
