//! Tests of which requests are rejected, which headers are removed, and which are added.

use super::*;
use crate::connection::ConnInfo;
use crate::section::GatewaySection;
use diana_rules::http_settings::SpellingPolicy;
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
fn rejects_invalid_requests() {
    let rejection = |request| {
        check(&head(request), &GatewaySection::default())
            .err()
            .map(|rejected| (rejected.status.as_u16(), rejected.detail))
    };
    assert_eq!(rejection(Request::get("/").header("host", "a")), None);
    assert_eq!(rejection(Request::get("http://a/")), None);
    for host in ["a:", "a:80", "a:8080", "a-b.example:65535", "[::1]:80", "[::1]:", "[2001:db8::7]", "under_score"] {
        assert_eq!(rejection(Request::get("/").header("host", host)), None, "{host}");
    }
    for host in
        ["", "a/b", "[::1", "a:80:80", "a?b", "a:x", "a:-1", "a:80,x", "a:65536", ":80", "[a]", "[::1]x", "a..b"]
    {
        assert_eq!(rejection(Request::get("/").header("host", host)), Some((400, "invalid `Host` header")), "{host}");
    }
    for uri in ["http://a:x/", "http://a:65536/", "http://[a]:80/"] {
        if let Ok(request) = Request::get(uri).body(()) {
            let rejected = check(&request.into_parts().0, &GatewaySection::default()).unwrap_err();
            assert_eq!(
                (rejected.status.as_u16(), rejected.detail),
                (400, "invalid host in the request target"),
                "{uri}"
            );
        }
    }
    assert_eq!(rejection(Request::options("*").header("host", "a")), None);
    assert_eq!(rejection(Request::get("/").version(Version::HTTP_10)), None);
    assert_eq!(rejection(Request::get("/")), Some((400, "missing `Host` header")));
    assert_eq!(rejection(Request::get("/").version(Version::HTTP_2)), Some((400, "missing `Host` header")));
    for path in
        ["/a/../b", "/a/./b", "/%2e%2E/b", "/a/..;x/b", "/..", "/x%2f..%2fb", "/x/..%5Cb", "/x;%2f..%2fb", "/..%3bx"]
    {
        assert_eq!(
            rejection(Request::get(path).header("host", "a")),
            Some((400, "the path contains a `.` or `..` segment")),
            "{path}"
        );
    }
    assert_eq!(
        rejection(Request::get("/").header("host", "a").header("host", "a")),
        Some((400, "duplicate `Host` header"))
    );
    assert_eq!(
        rejection(Request::get("/").header("host", "a").header("authorization", "a").header("authorization", "b")),
        Some((400, "duplicate `Authorization` header"))
    );
    assert_eq!(rejection(Request::get("/").header("host", "a").header("x", "a").header("x", "b")), None);
    assert_eq!(rejection(Request::get("/").header("host", "a b")), Some((400, "invalid `Host` header")));
    assert_eq!(rejection(Request::get("/").header("host", "x@y")), Some((400, "invalid `Host` header")));
    assert_eq!(
        rejection(Request::get("ftp://a/").header("host", "a")),
        Some((400, "the scheme is neither `http` nor `https`"))
    );
    assert_eq!(rejection(Request::connect("a:443")).unwrap().0, 405);
}

#[test]
fn spellings_are_configurable() {
    let rejection = |method: &str, path: &str, gateway: &GatewaySection| {
        let request = Request::builder().method(method).uri(path).header("host", "a");
        check(&head(request), gateway).err().map(|rejected| (rejected.status.as_u16(), rejected.detail))
    };
    let default = GatewaySection::default();
    assert_eq!(rejection("POST", "/a%2fb", &default), None);
    assert_eq!(rejection("purge", "/", &default), None);
    for method in ["post", "Post", "gET", "opTions"] {
        assert_eq!(rejection(method, "/", &default), Some((400, "the method is not in upper case")), "{method}");
    }
    let mut other = GatewaySection::default();
    other.methods.any_case = SpellingPolicy::Allow;
    other.http.escaped_slash = SpellingPolicy::Deny;
    assert_eq!(rejection("post", "/a%252fb", &other), None);
    for path in ["/a%2fb", "/a%2Fb", "/a%5cb", "/%2F"] {
        assert_eq!(rejection("GET", path, &other), Some((400, "the path contains an escaped slash")), "{path}");
    }
}

#[test]
fn rejects_padded_values_over_http2() {
    let rejection = |version, value: &[u8]| {
        let request = Request::get("http://a/").version(version).header("x-account", value);
        check(&head(request), &GatewaySection::default()).err().map(|rejected| rejected.detail)
    };
    for padded in [&b" alice"[..], b"alice ", b"\talice", b"alice\t", b" "] {
        assert_eq!(
            rejection(Version::HTTP_2, padded),
            Some("a header value starts or ends with whitespace"),
            "{padded:?}"
        );
    }
    assert_eq!(rejection(Version::HTTP_2, b"alice the second"), None);
    assert_eq!(rejection(Version::HTTP_2, b""), None);
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
