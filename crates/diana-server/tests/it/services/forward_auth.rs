//! `services.http`: which request a check describes, and how it is answered.

use super::page::{ALICE, BOB, BY_TOKEN, CAROL};
use crate::support::client::{Client, ClientResponse, send_request};
use crate::support::program::Diana;
use crate::support::scheme;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Serves checks on `port()`.
pub(super) fn serve(rules: &str) -> Diana {
    Diana::serve(&format!("services: {{http: $LISTEN}}\n{rules}\n"))
}

/// Sends a check with these headers, each with its line end.
pub(super) fn check(diana: &Diana, headers: &str) -> ClientResponse {
    send(diana, "GET /check", headers)
}

/// Sends a check with this method and target.
fn send(diana: &Diana, line: &str, headers: &str) -> ClientResponse {
    send_request(diana.port(), &format!("{line} HTTP/1.1\r\nhost: diana\r\n{headers}\r\n")).unwrap()
}

/// Asserts that these headers describe a request that is over its limit.
#[track_caller]
fn assert_counted(diana: &Diana, headers: &str) {
    let response = check(diana, headers);
    assert_eq!(response.status, 429, "{headers}{response:?}");
}

/// Asserts that these headers describe a request that is allowed.
#[track_caller]
fn assert_allowed(diana: &Diana, headers: &str) {
    let response = check(diana, headers);
    assert_eq!(response.status, 204, "{headers}{}", response.text());
}

#[test]
fn allowed_requests_get_204_with_the_rate_limit_fields() {
    let diana = serve("rules: [{name: each, by: ip, limit: 2/h}]");
    let response = check(&diana, "x-forwarded-uri: /\r\nx-forwarded-for: 203.0.113.1\r\n");
    assert_eq!((response.status, &*response.body), (204, &b""[..]));
    assert_eq!(response.header("ratelimit-policy"), Some("\"each\";q=2;w=3600"));
    assert!(response.header("ratelimit").unwrap().starts_with("\"each\";r=1;t="), "{response:?}");
    assert_eq!(response.header("retry-after"), None);
}

#[test]
fn denied_requests_get_the_response_of_the_rule() {
    let diana = serve(
        "rules:
  - {name: usual, match: {path: /usual}, limit: 1/h, status: 429}
  - {name: own, match: {path: /own}, limit: 1/h, status: 503, answer: {type: text/plain, text: come back later}}",
    );
    for path in ["/usual", "/own"] {
        assert_allowed(&diana, &format!("x-forwarded-uri: {path}\r\n"));
    }
    let denied = check(&diana, "x-forwarded-uri: /usual\r\n");
    assert_eq!((denied.status, denied.header("content-type")), (429, Some("application/problem+json")));
    let problem: serde_json::Value = serde_json::from_slice(&denied.body).unwrap();
    assert_eq!((problem["status"].as_u64(), problem["violated-policies"][0].as_str()), (Some(429), Some("usual")));
    let retry = denied.header("retry-after").unwrap().parse::<u32>().unwrap();
    assert!((1..=3_600).contains(&retry), "{retry}");
    assert!(denied.header("ratelimit").unwrap().starts_with("\"usual\";r=0"), "{denied:?}");
    // A browser gets a page, as from the gateway.
    let denied = check(&diana, "x-forwarded-uri: /usual\r\naccept: text/html\r\n");
    assert_eq!((denied.status, denied.header("content-type")), (429, Some("text/html; charset=utf-8")));
    let denied = check(&diana, "x-forwarded-uri: /own\r\n");
    assert_eq!((denied.status, &*denied.text()), (503, "come back later"));
    assert!(denied.header("retry-after").is_some(), "{denied:?}");
}

/// Regression: a denied gRPC call has the HTTP status 200, and proxies forward a request whose check gets 2xx. So any
/// client could choose not to be limited.
#[test]
fn denied_grpc_calls_are_not_answered_with_2xx() {
    let diana = serve("rules: [{name: each, limit: 1/h, status: 429}]");
    let call = "x-forwarded-uri: /shop.Cart/Add\r\nx-forwarded-method: POST\r\n";
    assert_allowed(&diana, call);
    for content_type in ["application/grpc", "application/grpc+proto", "application/grpc-web"] {
        let denied = check(&diana, &format!("{call}content-type: {content_type}\r\n"));
        assert_eq!((denied.status, denied.header("grpc-status")), (429, Some("8")), "{denied:?}");
    }
}

#[test]
fn the_path_of_the_check_sets_the_status() {
    let diana = serve("rules: [{name: each, match: {path: /limited}, limit: 1/h, status: 429}]");
    assert_eq!(send(&diana, "GET /check/403", "x-forwarded-uri: /limited\r\n").status, 204);
    for status in [400, 401, 403, 429, 499, 500, 503, 599] {
        let denied = send(&diana, &format!("GET /check/{status}"), "x-forwarded-uri: /limited\r\n");
        assert_eq!(denied.status, status);
        assert!(denied.header("retry-after").is_some() && denied.text().contains("\"each\""), "{denied:?}");
        // Also for requests that are rejected before any rule.
        let rejected = send(&diana, &format!("GET /check/{status}"), "x-forwarded-uri: /x/../limited\r\n");
        assert_eq!(rejected.status, status);
        assert_eq!(rejected.header("retry-after"), None);
    }
    let invalid =
        ["/200", "/204", "/302", "/399", "/600", "/999", "/0403", "/4 03", "/", "/403/", "/forty", "s", "?/403"];
    for end in invalid {
        let response = send(&diana, &format!("GET /check{}", end.replace(' ', "%20")), "x-forwarded-uri: /limited\r\n");
        // An option in the query is ignored.
        let status = if end.starts_with('?') { 429 } else { 404 };
        assert_eq!(response.status, status, "{end}");
    }
    for path in ["/", "/limited", "/CHECK", "//check", "/%63heck", "*"] {
        let line = format!("{} {path}", if path == "*" { "OPTIONS" } else { "GET" });
        assert_eq!(send(&diana, &line, "x-forwarded-uri: /limited\r\n").status, 404, "{path}");
    }
}

#[test]
fn what_is_asked_is_described_by_x_forwarded_headers_only() {
    let diana = serve(
        "rules:
  - {name: path, match: {path: /limited}, limit: 1/h, status: 429}
  - {name: method, match: {path: /method, method: DELETE}, limit: 1/h, status: 429}
  - {name: host, match: {host: limited.example}, limit: 1/h, status: 429}
  - {name: query, match: {path: /query}, by: query(key), limit: 1/h, status: 429}",
    );
    assert_allowed(&diana, "x-forwarded-uri: /limited\r\n");
    // Headers of other conventions, which proxies pass on from clients, neither hide the path nor replace it.
    for name in ["x-original-uri", "x-original-url", "x-rewrite-url", "x-forwarded-path", "x_forwarded_uri"] {
        assert_counted(&diana, &format!("x-forwarded-uri: /limited\r\n{name}: /free\r\n"));
        assert_allowed(&diana, &format!("x-forwarded-uri: /free\r\n{name}: /limited\r\n"));
    }
    assert_allowed(&diana, "x-forwarded-uri: /method\r\nx-forwarded-method: DELETE\r\n");
    let delete = "x-forwarded-uri: /method\r\nx-forwarded-method: DELETE\r\n";
    for name in ["x-original-method", "x-http-method-override", "x-method-override"] {
        assert_counted(&diana, &format!("{delete}{name}: GET\r\n"));
        assert_allowed(&diana, &format!("x-forwarded-uri: /method\r\n{name}: DELETE\r\n"));
    }
    // The method of the check itself is not that of the request.
    for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(send(&diana, &format!("{method} /check"), delete).status, 429, "{method}");
        assert_eq!(send(&diana, &format!("{method} /check"), "x-forwarded-uri: /method\r\n").status, 204, "{method}");
    }
    let host = "x-forwarded-uri: /\r\nx-forwarded-host: limited.example\r\n";
    assert_allowed(&diana, host);
    assert_counted(&diana, &format!("{host}forwarded: host=free.example\r\nx-original-host: free.example\r\n"));
    let forged = "x-original-host: limited.example\r\nforwarded: host=limited.example\r\n";
    assert_allowed(&diana, &format!("x-forwarded-uri: /\r\nx-forwarded-host: free.example\r\n{forged}"));
    // The host and the query of the check itself.
    let request = |target: &str, host: &str, headers: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n");
        send_request(diana.port(), &request).unwrap().status
    };
    assert_eq!(request("/check", "limited.example", "x-forwarded-uri: /\r\n"), 204);
    assert_eq!(request("http://limited.example/check", "limited.example", "x-forwarded-uri: /\r\n"), 204);
    assert_eq!(request("/check", "limited.example", "x-forwarded-uri: /\r\nx-forwarded-host: free.example\r\n"), 204);
    assert_eq!(request("/check", "free.example", host), 429);
    assert_eq!(request("/check", "diana", "x-forwarded-uri: /query?key=a\r\n"), 204);
    assert_eq!(request("/check?key=b", "diana", "x-forwarded-uri: /query?key=a\r\n"), 429);
    assert_eq!(request("/check?key=a", "diana", "x-forwarded-uri: /query?key=c\r\n"), 204);
}

#[test]
fn the_scheme_is_the_one_that_the_proxy_reports() {
    let diana = serve(scheme::RULES);
    let status = |line: &str, headers: &str| send(&diana, line, &format!("x-forwarded-uri: /\r\n{headers}")).status;
    for (headers, expected) in [
        ("", 204),
        ("x-forwarded-proto: http\r\n", scheme::HTTP),
        ("x-forwarded-proto: https\r\n", scheme::HTTPS),
        ("x-forwarded-proto: Https\r\n", scheme::HTTPS),
        // Traefik reports a WebSocket so.
        ("x-forwarded-proto: ws\r\n", scheme::HTTP),
        ("x-forwarded-proto: wss\r\n", scheme::HTTPS),
        ("x-forwarded-proto: \r\n", scheme::AMBIGUOUS),
        ("x-forwarded-proto: ftp\r\n", scheme::AMBIGUOUS),
        ("x-forwarded-proto: https, http\r\n", scheme::AMBIGUOUS),
        ("x-forwarded-proto: https\r\nx-forwarded-proto: https\r\n", scheme::AMBIGUOUS),
        ("x-forwarded-proto: https\r\nconnection: x-forwarded-proto\r\n", scheme::HTTPS),
        // Other headers, which proxies pass on as clients sent them.
        ("forwarded: proto=https\r\nx-forwarded-scheme: https\r\nx-scheme: https\r\n", 204),
    ] {
        assert_eq!(status("GET /check", headers), expected, "{headers}");
        assert_eq!(status("GET https://diana/check", headers), expected, "{headers}");
    }
}

#[test]
fn invalid_descriptions_are_answered_with_400() {
    let diana = serve("rules: [{name: each, limit: 1/h, status: 429}]");
    let uri = "x-forwarded-uri: /\r\n";
    for headers in [
        "",
        "x-original-uri: /\r\n",
        "x-forwarded-uri:\r\n",
        "x-forwarded-uri: /\r\nx-forwarded-uri: /\r\n",
        "x-forwarded-uri: /a b\r\n",
        "x-forwarded-uri: relative\r\n",
        "x-forwarded-uri: ?query\r\n",
        "x-forwarded-uri: http://limited.example/\r\n",
        "x-forwarded-uri: limited.example:443\r\n",
        "x-forwarded-uri: *\r\n",
        "x-forwarded-uri: /login# x\r\n",
        "x-forwarded-uri: /a%00\r\n",
        "x-forwarded-uri: /x/../login\r\n",
        "x-forwarded-uri: /%2e%2e/login\r\n",
        &format!("{uri}x-forwarded-method: GET\r\nx-forwarded-method: GET\r\n"),
        &format!("{uri}x-forwarded-method:\r\n"),
        &format!("{uri}x-forwarded-method: GET, POST\r\n"),
        &format!("{uri}x-forwarded-method: post\r\n"),
        &format!("{uri}x-forwarded-host: a\r\nx-forwarded-host: a\r\n"),
        &format!("{uri}x-forwarded-host: a, b\r\n"),
        &format!("{uri}x-forwarded-host: a b\r\n"),
        &format!("{uri}x-forwarded-host: user@a\r\n"),
        &format!("{uri}authorization: a\r\nauthorization: b\r\n"),
    ] {
        let response = check(&diana, headers);
        assert_eq!(response.status, 400, "{headers}");
        assert_eq!(response.header("content-type"), Some("application/problem+json"), "{headers}");
    }
    let connect = check(&diana, "x-forwarded-uri: /\r\nx-forwarded-method: CONNECT\r\n");
    assert_eq!(connect.status, 405);
    assert_eq!(connect.header("allow"), Some("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    // None of them was counted.
    assert_allowed(&diana, uri);
    assert_counted(&diana, uri);
}

#[test]
fn the_client_is_the_last_address_that_is_not_a_trusted_proxy() {
    let diana = Diana::serve(
        "gateway: {listen: $TLS, trusted_proxies: [10.0.0.0/8]}
services: {http: $LISTEN}
rules: [{name: each, by: ip, limit: 1/h, status: 429}]\n",
    );
    // `$` is a client that was not seen before.
    for (number, headers) in [
        "x-forwarded-for: $\r\n",
        "x-forwarded-for: 192.0.2.1, $\r\n",
        "x-forwarded-for: $, 10.0.0.1\r\n",
        "x-forwarded-for: 192.0.2.1, $, 10.0.0.1, 10.0.0.2\r\n",
        "x-forwarded-for: 192.0.2.1\r\nx-forwarded-for: $\r\n",
        "x-forwarded-for: $\r\nx-forwarded-for: 10.0.0.1\r\n",
        "x-forwarded-for: [::ffff:$]:1234\r\n",
        "x-forwarded-for: $:1234\r\n",
        "x-forwarded-for: $\r\nx-real-ip: 192.0.2.1\r\n",
        "x-forwarded-for: $\r\nforwarded: for=192.0.2.1\r\n",
        "x-forwarded-for: $\r\nx-client-ip: 192.0.2.1\r\ntrue-client-ip: 192.0.2.1\r\ncf-connecting-ip: 192.0.2.1\r\n",
        "x-forwarded-for: $\r\nconnection: x-forwarded-for\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let headers = headers.replace('$', &format!("203.0.113.{number}"));
        assert_allowed(&diana, &format!("x-forwarded-uri: /\r\n{headers}"));
        assert_counted(&diana, &format!("x-forwarded-uri: /\r\nx-forwarded-for: 203.0.113.{number}\r\n"));
    }
    // 192.0.2.1 was not counted by any of them.
    assert_allowed(&diana, "x-forwarded-uri: /\r\nx-forwarded-for: 192.0.2.1\r\n");
    // Without an address, it is the peer, whatever other headers say.
    assert_allowed(&diana, "x-forwarded-uri: /\r\n");
    for headers in [
        "x-forwarded-for: 127.0.0.1\r\n",
        "x-real-ip: 192.0.2.2\r\n",
        "forwarded: for=192.0.2.2\r\n",
        "x-forwarded-for: unknown\r\n",
        "x-forwarded-for: 192.0.2.2, unknown\r\n",
        "x-forwarded-for:\r\n",
    ] {
        assert_counted(&diana, &format!("x-forwarded-uri: /\r\n{headers}"));
    }
    let other_proxy = "GET /check HTTP/1.1\r\nhost: diana\r\nx-forwarded-uri: /\r\n\r\n";
    assert_eq!(Client::connect_from([127, 0, 0, 2], diana.port()).send(other_proxy).response().status, 204);
}

#[test]
fn identity_comes_from_the_headers_of_the_request() {
    let diana = serve(
        "identity: {account: header(x-account)}
rules:
  - {name: account, match: {path: /account}, by: account, limit: 1/h, status: 429}
  - {name: cookie, match: {path: /cookie}, by: cookie(session), limit: 1/h, status: 429}
  - {name: token, match: {path: /token}, by: header(authorization), limit: 1/h, status: 429}
  - {name: query, match: {path: /query}, by: query(key), limit: 1/h, status: 429}",
    );
    for (one, other) in [
        ("x-forwarded-uri: /account\r\nx-account: a\r\n", "x-forwarded-uri: /account\r\nx-account: b\r\n"),
        ("x-forwarded-uri: /cookie\r\ncookie: x=1; session=a\r\n", "x-forwarded-uri: /cookie\r\ncookie: session=b\r\n"),
        (
            "x-forwarded-uri: /token\r\nauthorization: Bearer a\r\n",
            "x-forwarded-uri: /token\r\nauthorization: Bearer b\r\n",
        ),
        ("x-forwarded-uri: /query?x=1&key=a\r\n", "x-forwarded-uri: /query?key=b\r\n"),
    ] {
        assert_allowed(&diana, one);
        assert_counted(&diana, one);
        assert_allowed(&diana, other);
    }
    // Headers that `Connection` names are not the request's.
    let hidden = "x-forwarded-uri: /account\r\nx-account: c\r\nconnection: x-account\r\n";
    assert_allowed(&diana, hidden);
    assert_allowed(&diana, "x-forwarded-uri: /account\r\nx-account: c\r\n");
}

/// The proxy may remove them or forward them.
#[test]
fn headers_that_connection_names_are_one_key() {
    let diana = serve("rules: [{name: each, by: header(x-account-id), limit: 2/h, status: 429}]");
    let check_as = |account: usize, connection: &str| {
        check(&diana, &format!("x-forwarded-uri: /\r\nx-account-id: {account}\r\nconnection: {connection}\r\n")).status
    };
    assert_eq!([0, 1, 2, 3].map(|account| check_as(account, "x-account-id")), [204, 204, 429, 429]);
    assert_eq!(check_as(4, "close"), 204);
}

/// Rules with `missing: skip` don't limit a request without an account.
#[test]
fn a_token_that_connection_names_is_not_absent() {
    let diana = serve(BY_TOKEN);
    let status = |token: &str, connection: &str| {
        let token = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        check(&diana, &format!("x-forwarded-uri: /\r\n{token}connection: {connection}\r\n")).status
    };
    let named = |token: &str| status(token, "authorization");
    assert_eq!([ALICE, BOB, CAROL, "invalid"].map(named), [204, 204, 429, 429]);
    assert_eq!(status(ALICE, "close"), 204, "her own count");
    assert_eq!([""; 3].map(named), [204; 3], "a request without a token");
}

/// WSGI, CGI and PHP read both as one header.
#[test]
fn a_header_that_services_read_as_one_of_the_rules_is_rejected() {
    let diana = serve("rules: [{name: each, by: header(x-account-id), limit: 2/h, status: 429}]");
    let own = "x-forwarded-uri: /\r\nx-account-id: alice\r\n";
    assert_eq!(check(&diana, &format!("{own}x_account_id: bob\r\n")).status, 400);
    assert_allowed(&diana, &format!("{own}x_account: bob\r\n"));
}

#[test]
fn paths_are_counted_in_any_spelling() {
    let diana = serve("rules: [{name: login, match: {path: /login}, limit: 1/h, status: 429}]");
    assert_allowed(&diana, "x-forwarded-uri: /login\r\n");
    for path in ["/login?x=/free", "/%6Cogin", "/%6cog%69n", "//login", "/login/", "/login;v=1", "/login#x"] {
        assert_counted(&diana, &format!("x-forwarded-uri: {path}\r\n"));
    }
    assert_allowed(&diana, "x-forwarded-uri: /logins\r\n");
}

/// The filters of the gateway are not those of the service.
#[test]
fn the_service_starts_with_a_gateway_that_orders_its_filters() {
    let diana = serve(
        "gateway: {signature: {secret: s}, filters: [limits, signature]}\nrules: [{name: all, limit: 1/h, status: 429}]",
    );
    assert_allowed(&diana, "x-forwarded-uri: /\r\n");
    assert_counted(&diana, "x-forwarded-uri: /\r\n");
}

#[test]
fn a_rule_that_reroutes_denies() {
    let diana = serve("rules: [{name: all, limit: 1/h, status: 429, over: {reroute: 'http://127.0.0.1:9'}}]");
    assert_allowed(&diana, "x-forwarded-uri: /\r\n");
    let denied = check(&diana, "x-forwarded-uri: /\r\n");
    assert_eq!((denied.status, denied.header("content-type")), (429, Some("application/problem+json")));
    assert!(denied.header("retry-after").is_some(), "{denied:?}");
}

/// Any bytes that can be sent as the value of a header, often with characters that mean something in a URI.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), proptest::sample::select(b"/.%2eE\\:@?#;*, []".to_vec())];
    proptest::collection::vec(byte.prop_filter("ends the value", |byte| !b"\r\n\0".contains(byte)), 0..40)
}

#[test]
fn no_description_evades_a_limit_on_everything() {
    let diana = serve("rules: [{name: all, limit: 1/h, status: 429}]");
    assert_allowed(&diana, "x-forwarded-uri: /\r\n");
    let names = ["x-forwarded-uri", "x-forwarded-method", "x-forwarded-host", "x-forwarded-for", "connection"];
    let name = proptest::sample::select([&names[..], &["content-type", "accept", "cookie", "authorization"]].concat());
    let headers = proptest::collection::vec((name, value()), 0..6);
    let mut runner = TestRunner::deterministic();
    let result = runner.run(&headers, |headers| {
        let mut request = b"GET /check HTTP/1.1\r\nhost: diana\r\n".to_vec();
        // Mostly valid, so that the others matter.
        if !headers.iter().any(|(name, _)| *name == "x-forwarded-uri") {
            request.extend(b"x-forwarded-uri: /\r\n");
        }
        for (name, value) in &headers {
            request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        request.extend(b"\r\n");
        let status = Client::connect(diana.port()).send(&request).response().status;
        prop_assert!(matches!(status, 400 | 405 | 429), "{status}: {}", request.escape_ascii());
        Ok(())
    });
    result.unwrap();
}
