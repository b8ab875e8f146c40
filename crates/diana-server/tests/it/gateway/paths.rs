//! Ways to write a path otherwise, so that a rule does not know it and the service behind does.

use crate::support::client::{ask, get};
use crate::support::program::Diana;
use crate::support::upstream::Upstream;

/// What some server or other takes for `/login`.
const SPELLINGS: &[&str] = &[
    "/login",
    "/login?x=1",
    "/./login",
    "/a/../login",
    "/a/b/../../login",
    "/../login",
    "/../../../login",
    "//login",
    "///login",
    "/%6cogin",
    "/%6Cogin",
    "/l%6Fg%69n",
    "/%2e/login",
    "/a/%2e%2e/login",
    "/a/%2E./login",
    "/a/.%2e/login",
    "/login;jsessionid=1",
    "/;x/login",
    "/a;x/..;y/login",
    "/a/..;/login",
    "/\\login",
    "/a\\..\\login",
    "\\login",
];

#[test]
fn no_spelling_of_a_path_slips_past_its_rule() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\n\
         rules:\n\
         - {{name: logins, match: {{path: /login}}, limit: 1/h, status: 429}}\n",
        upstream.url()
    ));
    assert_eq!(get(diana.port(), "/login").status, 200);
    for path in SPELLINGS {
        let status = get(diana.port(), path).status;
        assert!(matches!(status, 429 | 400), "{path} got through: {status}");
    }
    let absolute = "GET http://example.com//%6cogin HTTP/1.1\r\nhost: example.com\r\n\r\n";
    assert_eq!(ask(diana.port(), absolute).unwrap().status, 429);
    assert_eq!(upstream.count(), 1);
    // Others are others.
    for path in ["/logins", "/login/x", "/a/login", "/a%2F..%2Flogin", "/log%2525in"] {
        assert_eq!(get(diana.port(), path).status, 200, "{path}");
    }
}

/// A service that goes by the beginning of a path takes `/graphql/../x` for its own, a rule that resolves it does not.
#[test]
fn what_stands_for_another_place_is_no_good_request() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", upstream.url()));
    for path in [
        "/graphql/../x",
        "/graphql/%2e%2e/x",
        "/graphql/..;/x",
        "/graphql/a/../../x",
        "/graphql\\..\\x",
        "/a/./b",
        "/..",
    ] {
        assert_eq!(get(diana.port(), path).status, 400, "{path}");
    }
    assert_eq!(upstream.count(), 0);
    for path in ["/.well-known/x", "/a/...", "/a..b/c."] {
        assert_eq!(get(diana.port(), path).status, 200, "{path}");
    }
}

#[test]
fn all_spellings_of_a_resource_are_one_resource() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN}\nrules: [{name: each-resource, by: resource, limit: 3/h, status: 429}]\n",
    );
    let passed: Vec<u16> = SPELLINGS.iter().map(|path| get(diana.port(), path).status).collect();
    assert_eq!(passed.iter().filter(|status| **status == 204).count(), 3, "{passed:?}");
    assert_eq!(get(diana.port(), "/elsewhere").status, 204);
}

#[test]
fn no_spelling_of_a_host_slips_past_its_rule() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN}\nrules: [{name: shop, match: {host: shop.example.com}, limit: 1/h, status: 429}]\n",
    );
    let asks =
        |line: &str, host: &str| ask(diana.port(), &format!("{line} HTTP/1.1\r\nhost: {host}\r\n\r\n")).unwrap().status;
    assert_eq!(asks("GET /", "shop.example.com"), 204);
    assert_eq!(asks("GET /", "SHOP.Example.COM"), 429);
    assert_eq!(asks("GET /", "shop.example.com:8080"), 429);
    assert_eq!(asks("GET http://shop.example.com/", "other.example.com"), 429);
    assert_eq!(asks("GET http://SHOP.example.com:80/", "other.example.com"), 429);
    // The address counts, so who names another in `Host` alone changes nothing.
    assert_eq!(asks("GET http://other.example.com/", "shop.example.com"), 204);
    let dot = asks("GET /", "shop.example.com.");
    assert!(matches!(dot, 429 | 400), "a dot at the end gets through: {dot}");
}

#[test]
fn no_spelling_of_a_method_slips_past_its_rule() {
    let diana = Diana::serve(
        "gateway: {listen: $LISTEN}\nrules: [{name: posts, match: {method: POST}, limit: 1/h, status: 429}]\n",
    );
    let asks = |method: &str| {
        ask(diana.port(), &format!("{method} / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")).unwrap().status
    };
    assert_eq!(asks("POST"), 204);
    assert_eq!(asks("POST"), 429);
    // Methods differ by case, so this is no POST to anybody who reads the standard.
    assert_eq!(asks("GET"), 204);
}
