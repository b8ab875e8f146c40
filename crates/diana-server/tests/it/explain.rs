//! `diana explain`: the rules' decisions about one request.

use crate::support::{SECRETS, diana_in, err, out, samples};
use std::path::Path;
use std::process::Output;

/// Explains these rules, on standard input.
fn explain(rules: &str, options: &[&str]) -> Output {
    diana_in(Path::new("."), &[&["explain", "-"], options].concat(), rules, &[])
}

fn said(rules: &str, options: &[&str]) -> String {
    let output = explain(rules, options);
    assert_eq!((err(&output).as_str(), output.status.code()), ("", Some(0)));
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
fn every_rule_has_its_say() {
    let rules = RULES.replace("identity: {", "identity: {tenant: header(x-tenant), ");
    let described =
        ["-X", "POST", "--host", "api.example.com", "-H", "X-Account-Id: alice", "--ip", "198.51.100.7", "/login?x=1"];
    assert_eq!(
        said(&rules, &described),
        "\
✓ each-account: counts it for alice
    each-account: 3 of 3 left, grants it
✓ login: counts it for 198.51.100.7
    login: 60 of 60 left, grants it
- searches: not about it, the path is another
✓ sessions: it has no cookie(session), so it is counted with all others that have none
    sessions: 5 of 5 left, grants it
✗ tenants (shadow): refused, it has no tenant
- guessers: about it, with nothing to count here
=> granted
"
    );
    let url = ["https://api.example.com/search?q=shoes", "-H", "cookie: a=b; session=s1", "--ip", "203.0.113.9"];
    assert_eq!(
        said(&rules, &url),
        "\
- each-account: not counted, it has no account
- login: not about it, the path is another
✓ searches: counts it for shoes
    searches: 5 of 5 left, grants it
✓ sessions: counts it for s1
    sessions: 5 of 5 left, grants it
✗ tenants (shadow): refused, it has no tenant
✗ guessers: it is in `deny`, and refused
=> denied by `guessers`
"
    );
}

#[test]
fn asking_often_shows_when_it_is_refused() {
    let rules = "rules: [{name: each-account, by: account, limit: {rate: 1/s, burst: 2}}]";
    assert_eq!(
        said(rules, &["--account", "alice", "--times", "3"]),
        "\
1: granted, closest to `each-account` for alice: 1 of 2 left
2: granted, closest to `each-account` for alice: 0 of 2 left
3: denied by `each-account` for alice: 0 of 2 left, again in 1s

the next one:
✗ each-account: counts it for alice
    each-account: 0 of 2 left, refuses it for 1s
=> denied by `each-account`
"
    );
    // The clock advances only with `--every`.
    let slowly = said(rules, &["--set", "account=alice", "--times", "4", "--every", "500ms"]);
    assert!(slowly.contains("4: denied by `each-account` for alice: 0 of 2 left, again in 500ms\n"), "{slowly}");
    assert!(slowly.ends_with("grants it\n=> granted\n"), "{slowly}");
}

#[test]
fn requests_stay_under_way() {
    let rules = "rules: [{name: uploads, concurrent: 2}]";
    let told = said(rules, &["--times", "3"]);
    assert!(told.contains("\n3: denied by `uploads`: 0 of 2 left, again when somebody is done\n"), "{told}");
}

#[test]
fn shared_rules_are_counted_here_and_that_is_said() {
    let rules = "store: {redis: redis://127.0.0.1:1}\nrules:\n  - {name: a, limit: 1/h}\n  - {name: b, limit: 9/h, store: local}\n";
    let told = said(rules, &["--times", "2"]);
    assert!(told.contains("2: denied by `a`: 0 of 1 left, again in 1h\n"), "{told}");
    assert!(
        told.ends_with("\nnote: shared with other instances, but counted from zero in this process here: a\n"),
        "{told}"
    );
}

#[test]
fn a_centres_rules_can_be_explained() {
    let (folder, _) = samples();
    let centre = "rules: [{name: from-centre, limit: 5/s}]";
    let output = diana_in(&folder, &["explain", "scraping.yaml", "--remote", "-"], centre, &[]);
    assert!(out(&output).starts_with("✓ from-centre: counts it with everyone\n"), "{}", out(&output));
    let local = "remote: {from: 'http://127.0.0.1:1/rules'}\nrules: [{name: mine, limit: 5/s}]";
    let told = said(local, &[]);
    assert!(told.starts_with("✓ mine: ") && told.contains("note: the rules of the config server win"), "{told}");
}

#[test]
fn the_samples_can_be_explained() {
    let (folder, names) = samples();
    for name in names {
        let args = ["explain", &name, "-X", "POST", "/v1/orders", "--ip", "198.51.100.7", "--host", "api.example.com"];
        let output = diana_in(&folder, &args, "", &SECRETS);
        assert_eq!((err(&output).as_str(), output.status.code()), ("", Some(0)), "{name}");
        let table = out(&diana_in(&folder, &["check", &name, "-q"], "", &SECRETS));
        let rules = out(&output).lines().filter(|line| line.starts_with(['✓', '✗', '-'])).count();
        assert_eq!(table, format!("{name}: {rules} rules, good\n"), "{}", out(&output));
        assert_eq!(out(&output).matches("\n=> ").count(), 1);
    }
}

#[test]
fn a_bad_file_is_told_as_check_tells_it() {
    let output = explain("rules: [{name: a, limt: 5/s}]", &["/"]);
    assert_eq!((out(&output).as_str(), output.status.code()), ("", Some(1)));
    assert!(err(&output).starts_with("stdin:1:"), "{}", err(&output));
    assert!(err(&output).contains("did you mean `limit`?"), "{}", err(&output));
    assert!(err(&output).lines().last().unwrap().contains("problem"), "{}", err(&output));
}

#[test]
fn what_is_typed_wrong_ends_with_2_and_says_what_would_do() {
    for (options, hint) in [
        (&["-H", "x-account-id"][..], "a header is written `name: value`"),
        (&["-H", "bad name: x"], "a header is written `name: value`"),
        (&["--ip", "203.0.113"], "--ip"),
        (&["--set", "tenant"], "`name=value`"),
        (&["login"], "a path begins with `/`"),
        (&["-X", ""], "a method is one word"),
        (&["/a\u{1}b"], "is no path that a client can send"),
        (&["-H", "x: a\u{1}b"], "is no header that a client can send"),
        (&["--times", "many"], "--times"),
        (&["--times", "100001"], "--times"),
        (&["--every", "soon"], "--every"),
        (&["--account", "alice"], "`account` comes from the request, as the file's `identity` says"),
    ] {
        let output = explain(RULES.split("  - {name: tenants").next().unwrap(), options);
        assert_eq!((out(&output).as_str(), output.status.code()), ("", Some(2)), "{options:?}");
        assert!(err(&output).starts_with("error: ") && err(&output).contains(hint), "{options:?}: {}", err(&output));
    }
}

#[test]
fn a_request_is_read_as_the_gateway_reads_it() {
    let rules = "\
gateway: {paths: {escaped_slash: deny}}
rules:
  - {name: login, match: {path: /login}, by: query(user), limit: 5/h, missing: shared}
  - {name: shop, match: {host: shop.example.com}, by: resource, limit: 5/h}
";
    let counted = "✓ login: counts it for al ice\n    login: 5 of 5 left, grants it\n";
    for path in ["/login?user=al+ice", "/%6Cogin?user=al%20ice", "/login;v=1?us%65r=al ice", "//login/?user=al+ice"] {
        let told = said(rules, &[path]);
        assert!(told.starts_with(counted), "{path}: {told}");
    }
    let told = said(rules, &["/a//b;v=1", "-H", "host: Shop.example.com:8080"]);
    assert!(told.contains("✓ shop: counts it for /a/b\n"), "{told}");
    let hidden = "rules: [{name: each, by: header(x-key), limit: 5/h}]";
    for options in
        [["-H", "connection: X-Key", "-H", "x-key: a", "/"], ["-H", "x-key: a", "-H", "connection: x-key", "/"]]
    {
        assert!(said(hidden, &options).contains("it has no header(x-key)"), "{options:?}");
    }
    for (options, why) in [
        (&["/x/../login"][..], "400: the path has `.` or `..` in it"),
        (&["/x%2f..%2flogin"], "400: the path has `.` or `..` in it"),
        (&["/a%2Fb"], "400: the path has an escaped slash in it"),
        (&["-X", "post", "/login"], "400: the method is not written in capitals"),
        (&["-X", "CONNECT", "/"], "405: this is no proxy to other places"),
        (&["--host", "shop.example.com:x", "/"], "400: the Host is invalid"),
        (&["https://shop.example.com:80,x/", "--times", "3"], "400: the Host is invalid"),
        (&["-H", "authorization: a", "-H", "authorization: b", "/"], "400: there is more than one Authorization"),
    ] {
        assert_eq!(said(rules, options), format!("=> answered with {why}\n"), "{options:?}");
    }
}
