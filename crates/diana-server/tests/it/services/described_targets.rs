//! The target of a request that another proxy describes: each service accepts and rejects what the gateway does.

use super::client::Envoy;
use super::messages::{CheckAttributes, CheckRequest, CheckedHttp, CheckedRequest};
use crate::support::client::Client;
use crate::support::program::Diana;
use diana_testing::Port;

/// Sends a head, and returns the status of the response.
fn status(port: u16, head: &[&[u8]]) -> u16 {
    Client::connect(port).send(head.concat()).response().status
}

/// Asks Envoy's external authorization; returns 204 if the request may pass.
async fn of_envoy(envoy: &Envoy, method: &str, target: &str) -> u16 {
    let (method, path, host) = (method.to_owned(), target.to_owned(), "a.example".to_owned());
    let http = CheckedHttp { method, path, host, ..CheckedHttp::default() };
    let attributes = CheckAttributes { source: None, request: Some(CheckedRequest { http: Some(http) }) };
    let response = envoy.check(CheckRequest { attributes: Some(attributes) }).await.unwrap();
    response.denied_response.map_or(204, |denied| denied.status.unwrap().code.try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_described_target_is_answered_as_the_gateway_answers_it() {
    let http = Port::claim().unwrap();
    let diana = Diana::serve(&format!(
        "
gateway: {{listen: $LISTEN}}
services: {{envoy: $TLS, http: '127.0.0.1:{}'}}
rules: [{{name: login, match: {{path: /login}}, limit: 1/h, status: 429}}]",
        http.number()
    ));
    let envoy = Envoy::connect(diana.tls_port()).await;
    let of_gateway = |method: &str, target: &[u8]| {
        status(diana.port(), &[method.as_bytes(), b" ", target, b" HTTP/1.1\r\nhost: a.example\r\n\r\n"])
    };
    let of_check = |method: &str, target: &[u8]| {
        let head = format!(
            "GET /check HTTP/1.1\r\nhost: diana\r\nx-forwarded-host: a.example\r\nx-forwarded-method: {method}"
        );
        status(http.number(), &[head.as_bytes(), b"\r\nx-forwarded-uri: ", target, b"\r\n\r\n"])
    };
    assert_eq!(of_gateway("GET", b"/login"), 204);
    for (method, target, expected) in [
        ("GET", &b"/orders"[..], 204),
        ("GET", b"/login#x", 429),
        ("GET", b"/login#<", 429),
        ("GET", "/login#\u{80}".as_bytes(), 429),
        ("OPTIONS", b"*", 204),
        ("OPTIONS", b"/login", 429),
        ("GET", b"*", 400),
        ("GET", b"login", 400),
        ("GET", b"&:", 400),
        ("GET", b"?login", 400),
        ("GET", b"a.example:443", 400),
        ("GET", b"//login/#a b", 400),
        ("GET", b"/login#\x7f", 400),
        ("GET", b"/login///evil*#@\x80", 400),
        ("GET", b"/login\x80", 400),
        ("CONNECT", b"/login", 405),
    ] {
        let name = target.escape_ascii();
        assert_eq!(of_gateway(method, target), expected, "the gateway: {method} {name}");
        assert_eq!(of_check(method, target), expected, "/check: {method} {name}");
        // A message of gRPC has UTF-8 only.
        if let Ok(target) = std::str::from_utf8(target) {
            assert_eq!(of_envoy(&envoy, method, target).await, expected, "ext_authz: {method} {name}");
        }
    }
    // A check has the host in a header of its own.
    for (method, target, expected) in [
        ("GET", "http://a.example/login", 429),
        ("GET", "https://a.example", 204),
        ("GET", "ftp://a.example/", 400),
        ("CONNECT", "a.example:443", 405),
    ] {
        assert_eq!(of_gateway(method, target.as_bytes()), expected, "the gateway: {method} {target}");
        assert_eq!(of_envoy(&envoy, method, target).await, expected, "ext_authz: {method} {target}");
        assert_eq!(of_check(method, target.as_bytes()), 400, "/check: {method} {target}");
    }
}
