//! `diana explain`: the rules' decisions about one request.

use crate::support::{SECRETS, diana_in, err, out, samples};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;

/// Explains these rules, on standard input.
fn explain(rules: &str, options: &[&str]) -> Output {
    diana_in(Path::new("."), &[&["explain", "-"], options].concat(), rules, &[])
}

/// Returns the output; the exit status must be 0 if the request is allowed, and 3 if not.
fn explained(rules: &str, options: &[&str]) -> String {
    let output = explain(rules, options);
    let expected = if out(&output).contains("=> granted") { 0 } else { 3 };
    assert_eq!((err(&output).as_str(), output.status.code()), ("", Some(expected)), "{}", out(&output));
    out(&output)
}

const RULES: &str = "\
identity: {account: header(x-account-id)}
rules:
  - {name: each-account, by: account, limit: {rate: 1/s, burst: 3}}
  - {name: login, match: {path: /login, method: POST}, by: ip, limit: 60/h, status: 429}
  - {name: searches, match: {path: /search}, by: query(q), limit: 5/s}
  - {name: sessions, match: {host: api.example.com}, by: cookie(session), limit: 5/s, missing: shared}
  - {name: tenants, by: tenant, limit: 5/s, missing: deny, shadow: true}
  - {name: guessers, by: ip, deny: [203.0.113.0/24], status: 403}
";

#[test]
fn every_rule_is_listed() {
    let rules = RULES.replace("identity: {", "identity: {tenant: header(x-tenant), ");
    let options =
        ["-X", "POST", "--host", "api.example.com", "-H", "X-Account-Id: alice", "--ip", "198.51.100.7", "/login?x=1"];
    assert_eq!(
        explained(&rules, &options),
        "\
✓ each-account: counted for alice
    each-account: 3 of 3 left, granted
✓ login: counted for 198.51.100.7
    login: 60 of 60 left, granted
- searches: the path does not match
✓ sessions: missing cookie(session); counted with all other requests without it
    sessions: 5 of 5 left, granted
✗ tenants (shadow): denied: missing tenant
- guessers: matches, with nothing to count
=> granted
"
    );
    let url = ["https://api.example.com/search?q=shoes", "-H", "cookie: a=b; session=s1", "--ip", "203.0.113.9"];
    assert_eq!(
        explained(&rules, &url),
        "\
- each-account: not counted: missing account
- login: the path does not match
✓ searches: counted for shoes
    searches: 5 of 5 left, granted
✓ sessions: counted for s1
    sessions: 5 of 5 left, granted
✗ tenants (shadow): denied: missing tenant
✗ guessers: listed in `deny`, denied
=> denied by `guessers`
"
    );
}

#[test]
fn the_scheme_is_that_of_the_url() {
    let rules = "rules: [{name: each, by: 'cel(\"request.scheme\")', limit: 5/s, missing: shared}]\n";
    for (target, key) in [("http://a.example/", "http"), ("https://a.example/", "https")] {
        let explained = explained(rules, &[target, "-H", "x-forwarded-proto: ftp"]);
        assert!(explained.starts_with(&format!("✓ each: counted for {key}\n")), "{explained}");
    }
    // Of a path it is unknown.
    let explained = explained(rules, &["/"]);
    assert!(!explained.contains("counted for http"), "{explained}");
}

#[test]
fn times_shows_when_a_request_is_denied() {
    let rules = "rules: [{name: each-account, by: account, limit: {rate: 1/s, burst: 2}}]";
    assert_eq!(
        explained(rules, &["--account", "alice", "--times", "3"]),
        "\
1: granted, closest to `each-account` for alice: 1 of 2 left
2: granted, closest to `each-account` for alice: 0 of 2 left
3: denied by `each-account` for alice: 0 of 2 left, retry after 1s

next request:
✗ each-account: counted for alice
    each-account: 0 of 2 left, denied, retry after 1s
=> denied by `each-account`
"
    );
    // The clock advances only with `--every`.
    let spaced = explained(rules, &["--set", "account=alice", "--times", "4", "--every", "500ms"]);
    assert!(spaced.contains("4: denied by `each-account` for alice: 0 of 2 left, retry after 500ms\n"), "{spaced}");
    assert!(spaced.ends_with("granted\n=> granted\n"), "{spaced}");
}

#[test]
fn requests_stay_in_flight() {
    let rules = "rules: [{name: uploads, concurrent: 2}]";
    let text = explained(rules, &["--times", "3"]);
    assert!(text.contains("\n3: denied by `uploads`: 0 of 2 left, retry when a permit is released\n"), "{text}");
}

#[test]
fn shared_rules_are_counted_locally_with_a_note() {
    let rules = "store: {redis: redis://127.0.0.1:1}\nrules:\n  - {name: a, limit: 1/h}\n  - {name: b, limit: 9/h, store: local}\n";
    let text = explained(rules, &["--times", "2"]);
    assert!(text.contains("2: denied by `a`: 0 of 1 left, retry after 1h\n"), "{text}");
    assert!(
        text.ends_with("\nnote: shared with other instances, but counted from zero in this process: a\n"),
        "{text}"
    );
}

#[test]
fn explains_remote_rules() {
    let (folder, _) = samples();
    let remote = "rules: [{name: from-remote, limit: 5/s}]";
    let output = diana_in(&folder, &["explain", "scraping.yaml", "--remote", "-"], remote, &[]);
    assert!(out(&output).starts_with("✓ from-remote: counted with all requests\n"), "{}", out(&output));
    let local = "remote: {from: 'http://127.0.0.1:1/rules'}\nrules: [{name: mine, limit: 5/s}]";
    let text = explained(local, &[]);
    assert!(text.starts_with("✓ mine: ") && text.contains("note: the rules of the config server replace"), "{text}");
}

#[test]
fn explains_the_samples() {
    let (folder, names) = samples();
    for name in names {
        let args = ["explain", &name, "-X", "POST", "/v1/orders", "--ip", "198.51.100.7", "--host", "api.example.com"];
        let output = diana_in(&folder, &args, "", &SECRETS);
        let expected = if out(&output).contains("\n=> granted") { 0 } else { 3 };
        assert_eq!((err(&output).as_str(), output.status.code()), ("", Some(expected)), "{name}");
        let table = out(&diana_in(&folder, &["check", &name, "-q", "--no-files"], "", &SECRETS));
        let rules = out(&output).lines().filter(|line| line.starts_with(['✓', '✗', '-'])).count();
        assert_eq!(table, format!("{name}: {rules} rules, valid\n"), "{}", out(&output));
        assert_eq!(out(&output).matches("\n=> ").count(), 1);
    }
}

#[test]
fn an_invalid_file_is_reported_like_by_check() {
    let output = explain("rules: [{name: a, limt: 5/s}]", &["/"]);
    assert_eq!((out(&output).as_str(), output.status.code()), ("", Some(1)));
    assert!(err(&output).starts_with("stdin:1:"), "{}", err(&output));
    assert!(err(&output).contains("did you mean `limit`?"), "{}", err(&output));
    assert!(err(&output).lines().last().unwrap().contains("problem"), "{}", err(&output));
}

#[test]
fn usage_errors_exit_with_2_and_a_hint() {
    for (options, hint) in [
        (&["-H", "x-account-id"][..], "expected `name: value`"),
        (&["-H", "bad name: x"], "expected `name: value`"),
        (&["--ip", "203.0.113"], "--ip"),
        (&["--set", "tenant"], "`name=value`"),
        (&["login"], "expected a path such as `/login?x=1`"),
        (&["-X", ""], "expected one word, such as `POST`"),
        (&["/a\u{1}b"], "invalid path `/ab`: a client cannot send it"),
        (&["-H", "x: a\u{1}b"], "invalid header `x: ab`: a client cannot send it"),
        (&["--times", "many"], "--times"),
        (&["--times", "100001"], "--times"),
        (&["--every", "soon"], "--every"),
        (&["--account", "alice"], "can't set `account`: the file's `identity` takes it from the request"),
    ] {
        let output = explain(RULES.split("  - {name: tenants").next().unwrap(), options);
        assert_eq!((out(&output).as_str(), output.status.code()), ("", Some(2)), "{options:?}");
        assert!(err(&output).starts_with("error: ") && err(&output).contains(hint), "{options:?}: {}", err(&output));
    }
}

#[test]
fn a_request_is_normalised_as_in_the_gateway() {
    let rules = "\
gateway: {paths: {escaped_slash: deny}}
rules:
  - {name: login, match: {path: /login}, by: query(user), limit: 5/h, missing: shared}
  - {name: shop, match: {host: shop.example.com}, by: resource, limit: 5/h}
";
    let counted = "✓ login: counted for al ice\n    login: 5 of 5 left, granted\n";
    for path in ["/login?user=al+ice", "/%6Cogin?user=al%20ice", "/login;v=1?us%65r=al ice", "//login/?user=al+ice"] {
        let text = explained(rules, &[path]);
        assert!(text.starts_with(counted), "{path}: {text}");
    }
    let text = explained(rules, &["/a//b;v=1", "-H", "host: Shop.example.com:8080"]);
    assert!(text.contains("✓ shop: counted for /a/b\n"), "{text}");
    let hidden = "rules: [{name: each, by: header(x-key), limit: 5/h}]";
    for options in
        [["-H", "connection: X-Key", "-H", "x-key: a", "/"], ["-H", "x-key: a", "-H", "connection: x-key", "/"]]
    {
        assert!(explained(hidden, &options).contains("missing header(x-key)"), "{options:?}");
    }
    for (options, reason) in [
        (&["/x/../login"][..], "400: the path contains a `.` or `..` segment"),
        (&["/x%2f..%2flogin"], "400: the path contains a `.` or `..` segment"),
        (&["/a%2Fb"], "400: the path contains an escaped slash"),
        (&["-X", "post", "/login"], "400: the method is not in upper case"),
        (&["-X", "CONNECT", "/"], "405: `CONNECT` is not supported"),
        (&["--host", "shop.example.com:x", "/"], "400: invalid `Host` header"),
        (&["https://shop.example.com:80,x/", "--times", "3"], "400: invalid `Host` header"),
        (&["-H", "authorization: a", "-H", "authorization: b", "/"], "400: duplicate `Authorization` header"),
    ] {
        assert_eq!(explained(rules, options), format!("=> answered with {reason}\n"), "{options:?}");
    }
}

fn explained_json(rules: &str, options: &[&str]) -> (Option<i32>, Value) {
    let output = explain(rules, &[options, &["--json"]].concat());
    assert_eq!(err(&output), "");
    (output.status.code(), serde_json::from_str(&out(&output)).unwrap())
}

#[test]
fn the_json_has_the_decision_and_the_result_of_each_rule() {
    let rules = "rules: [{name: each-account, by: account, limit: {rate: 1/s, burst: 2}}, {name: post, match: {method: POST}, limit: 1/s}]";
    let (status, explained) = explained_json(rules, &["--account", "alice", "--times", "3"]);
    assert_eq!(status, Some(3));
    assert_eq!(
        explained,
        json!({
            "decision": "denied",
            "denied_by": ["each-account"],
            "wait_seconds": null,
            "rejected": null,
            "permission": null,
            "requests": [
                {"number": 1, "decision": "allowed", "wait_seconds": 0.0, "retry_after_seconds": null, "denied_by": null,
                 "text": "granted, closest to `each-account` for alice: 1 of 2 left"},
                {"number": 2, "decision": "allowed", "wait_seconds": 0.0, "retry_after_seconds": null, "denied_by": null,
                 "text": "granted, closest to `each-account` for alice: 0 of 2 left"},
                {"number": 3, "decision": "denied", "wait_seconds": null, "retry_after_seconds": 1.0, "denied_by": "each-account",
                 "text": "denied by `each-account` for alice: 0 of 2 left, retry after 1s"},
            ],
            "rules": [
                {"rule": "each-account", "matches": true, "denies": true, "shadow": false, "key": "alice", "cost": 1,
                 "limits": [{"name": "each-account", "limit": 2, "remaining": 0, "allowed": false, "wait_seconds": null,
                             "retry_after_seconds": 1.0}],
                 "text": "✗ each-account: counted for alice\n    each-account: 0 of 2 left, denied, retry after 1s"},
                {"rule": "post", "matches": false, "denies": false, "shadow": false, "key": "", "cost": 0, "limits": [],
                 "text": "- post: the method does not match"},
            ],
            "notes": [],
            "errors": [],
        })
    );
}

#[test]
fn the_json_tells_allowed_delayed_and_rejected_requests_apart() {
    let delayed = "rules: [{name: a, limit: {rate: 1/s, burst: 1}, wait: 5s}]";
    let (status, explained) = explained_json(delayed, &["--times", "1"]);
    assert_eq!((status, &explained["decision"], &explained["wait_seconds"]), (Some(0), &json!("delayed"), &json!(1.0)));
    let (status, explained) = explained_json("rules: [{name: a, limit: 1/s}]", &[]);
    assert_eq!((status, &explained["decision"], &explained["wait_seconds"]), (Some(0), &json!("allowed"), &json!(0.0)));
    let (status, explained) = explained_json("rules: [{name: a, limit: 1/s}]", &["/x/../y"]);
    assert_eq!((status, &explained["decision"]), (Some(3), &json!("rejected")));
    assert_eq!(explained["rejected"], json!({"status": 400, "detail": "the path contains a `.` or `..` segment"}));
    let shadow = "rules: [{name: a, by: ip, deny: [203.0.113.7], shadow: true}]";
    let (status, explained) = explained_json(shadow, &["--ip", "203.0.113.7"]);
    assert_eq!(
        (status, &explained["decision"], &explained["rules"][0]["denies"]),
        (Some(0), &json!("allowed"), &json!(true))
    );
    let (status, explained) = explained_json("rules: [{name: a, limt: 1/s}]", &[]);
    assert_eq!((status, &explained["decision"]), (Some(1), &Value::Null));
    assert_eq!(explained["errors"][0]["help"], "did you mean `limit`?");
}

#[test]
fn permissions_are_explained() {
    let file =
        "identity: {account: header(x-account-id)}\npermissions: {rules: [{allow: false, path: /admin/**}]}\nrules: []";
    let (status, explained) = explained_json(file, &["/admin/keys"]);
    assert_eq!((status, &explained["decision"]), (Some(3), &json!("denied")));
    assert_eq!(explained["permission"], json!({"allowed": false, "shadow": false, "reason": "rule 1: deny /admin/**"}));
    let (status, explained) = explained_json(file, &["/orders"]);
    assert_eq!((status, &explained["permission"]["allowed"]), (Some(0), &json!(true)));
}
