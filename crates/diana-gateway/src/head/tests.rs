//! Tests of which headers are removed, and which are added.

use super::*;
use diana_http::head::remove_connection_headers;
use diana_net::ConnInfo;
use http::request::Parts;
use http::{Request, Version};
use std::net::SocketAddr;

fn head(request: http::request::Builder) -> Parts {
    request.body(()).unwrap().into_parts().0
}

fn from(peer: &str) -> ConnInfo {
    let peer: SocketAddr = peer.parse().unwrap();
    ConnInfo::new(peer, &["10.0.0.0/8".parse().unwrap()], http::uri::Scheme::HTTP)
}

/// Returns the request target and the headers that an upstream gets.
fn upstream_head(request: http::request::Builder, conn_info: &ConnInfo) -> (String, HeaderMap) {
    let mut head = head(request);
    remove_connection_headers(&mut head.headers);
    let upgrade = upgrade(&head);
    let request = UpstreamRequest { head: &head, conn_info, upgrade: upgrade.as_ref() };
    let mut fields = HeaderMap::new();
    request.write_headers(b"backend:50051", &mut fields);
    (request.target().into_owned(), fields)
}

fn value<'a>((_, fields): &'a (String, HeaderMap), name: &str) -> Option<&'a str> {
    assert!(fields.get_all(name).iter().count() < 2, "duplicate {name}");
    fields.get(name).map(|value| value.to_str().unwrap())
}

#[test]
fn removes_hop_by_hop_headers() {
    let request = Request::get("/")
        .header("host", "a")
        .header("connection", "close, X-Mine, host, TE")
        .header("x-mine", "1")
        .header("keep-alive", "timeout=5")
        .header("proxy-connection", "keep-alive")
        .header("te", "gzip, trailers")
        .header("transfer-encoding", "chunked")
        .header("upgrade", "h2c")
        .header("http2-settings", "x")
        .header("expect", "100-continue");
    let head = upstream_head(request, &from("203.0.113.7:1"));
    for name in [
        "connection",
        "x-mine",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "expect",
    ] {
        assert_eq!(value(&head, name), None, "{name}");
    }
    assert_eq!((value(&head, "te"), value(&head, "host")), (Some("trailers"), Some("a")));
}

#[test]
fn replaces_forwarding_headers_of_untrusted_clients() {
    let request = Request::get("/")
        .header("host", "shop.example")
        .header("x-forwarded-for", "1.2.3.4")
        .header("x-forwarded-proto", "https")
        .header("x-real-ip", "1.2.3.4")
        .header("x_forwarded_for", "1.2.3.4")
        .header("forwarded", "for=1.2.3.4");
    let head = upstream_head(request, &from("[2001:db8::7]:1"));
    assert_eq!(value(&head, "x-forwarded-for"), Some("2001:db8::7"));
    assert_eq!(value(&head, "x-forwarded-proto"), Some("http"));
    assert_eq!(value(&head, "x-forwarded-host"), Some("shop.example"));
    assert_eq!(value(&head, "forwarded"), Some("for=\"[2001:db8::7]\";proto=http"));
    assert_eq!((value(&head, "x-real-ip"), value(&head, "x_forwarded_for")), (None, None));
}

#[test]
fn appends_to_forwarding_headers_of_trusted_proxies() {
    let request = Request::get("/")
        .header("host", "inner")
        .header("x-forwarded-for", "1.2.3.4")
        .header("x-forwarded-for", "5.6.7.8")
        .header("x-forwarded-proto", "https")
        .header("x-forwarded-host", "shop.example");
    let head = upstream_head(request, &from("10.1.2.3:1"));
    assert_eq!(value(&head, "x-forwarded-for"), Some("1.2.3.4, 5.6.7.8, 10.1.2.3"));
    let empty = upstream_head(Request::get("/").header("host", "a").header("x-forwarded-for", ""), &from("10.1.2.3:1"));
    assert_eq!(value(&empty, "x-forwarded-for"), Some("10.1.2.3"));
    assert_eq!(value(&head, "x-forwarded-proto"), Some("https"));
    assert_eq!(value(&head, "x-forwarded-host"), Some("shop.example"));
    assert_eq!(value(&head, "forwarded"), Some("for=10.1.2.3;proto=http"));
}

#[test]
fn the_authority_of_an_absolute_uri_takes_precedence() {
    assert_eq!(upstream_head(Request::get("http://real.example?b=c"), &from("203.0.113.7:1")).0, "/?b=c");
    let head = upstream_head(Request::get("http://real.example/a?b=c").header("host", "other"), &from("203.0.113.7:1"));
    assert_eq!((value(&head, "host"), &*head.0), (Some("real.example"), "/a?b=c"));
}

#[test]
fn an_upgrade_needs_two_headers() {
    let upgraded = |connection: &str, to: &str| {
        upgrade(&head(Request::get("/").header("connection", connection).header("upgrade", to)))
    };
    assert_eq!(upgraded("keep-alive, Upgrade", "websocket").unwrap(), "websocket");
    assert_eq!(upgraded("keep-alive", "websocket"), None);
    for protocol in ["H2C", "foo, h2c", "websocket,HTTP/2.0", "TLS/1.0"] {
        assert_eq!(upgraded("upgrade", protocol), None, "{protocol}");
    }
    let request = Request::get("/").header("host", "a").header("connection", "upgrade").header("upgrade", "websocket");
    let head = upstream_head(request, &from("203.0.113.7:1"));
    assert_eq!((value(&head, "connection"), value(&head, "upgrade")), (Some("upgrade"), Some("websocket")));
}

#[test]
fn sends_the_host_as_the_version_requires() {
    let conn_info = from("203.0.113.7:1");
    let head = head(Request::get("/a?b").header("host", "shop.example").header("content-length", "3"));
    let request = UpstreamRequest { head: &head, conn_info: &conn_info, upgrade: None };
    let request = request.for_http2(&"h2c://backend:50051".parse().unwrap(), ());
    assert_eq!((request.uri().to_string().as_str(), request.headers().get("host")), ("http://shop.example/a?b", None));
    assert_eq!(request.version(), Version::HTTP_2);
    assert_eq!(request.headers()["content-length"], "3");
    let without = upstream_head(Request::get("/").version(Version::HTTP_10), &conn_info);
    assert_eq!((value(&without, "host"), value(&without, "x-forwarded-host")), (Some("backend:50051"), None));
}

#[test]
fn joins_cookies_for_http1() {
    let request = Request::get("http://a/").version(Version::HTTP_2).header("cookie", "a=1").header("cookie", "b=2");
    assert_eq!(value(&upstream_head(request, &from("203.0.113.7:1")), "cookie"), Some("a=1; b=2"));
}
