//! How the gateway changes the heads of requests and responses.

use crate::support::client::{Client, get, get_with, send_request};
use crate::support::program::Diana;
use crate::support::upstream::Upstream;

fn gateway_to(upstream: &Upstream) -> Diana {
    Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", upstream.url()))
}

#[test]
fn forwards_a_request_unchanged() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let request = "POST /a%20b//c;d?q=1&q=%2F HTTP/1.1\r\nHost: shop.example.com:8080\r\nX-Odd: \tone, two \r\n\
                   x-twice: 1\r\nX-Twice: 2\r\nAuthorization: Basic eDp5\r\nContent-Length: 5\r\n\r\nhello";
    let response = send_request(diana.port(), request).unwrap();
    assert_eq!(response.status, 200);
    let seen = upstream.last();
    assert_eq!(seen.line(), "POST /a%20b//c;d?q=1&q=%2F HTTP/1.1");
    assert_eq!(seen.header("host"), Some("shop.example.com:8080"));
    assert_eq!(seen.header("x-odd"), Some("one, two"));
    assert_eq!(
        seen.headers.iter().filter(|(name, _)| name == "x-twice").map(|(_, value)| &**value).collect::<Vec<_>>(),
        ["1", "2"]
    );
    assert_eq!(seen.header("authorization"), Some("Basic eDp5"));
    assert_eq!(seen.body, b"hello");
}

#[test]
fn removes_hop_by_hop_headers() {
    let upstream = Upstream::start(|exchange| {
        let headers = "connection: x-inner\r\nconnection: x-other\r\nx-inner: 1\r\nx-other: 1\r\nkeep-alive: timeout=9\r\n\
                       proxy-connection: keep-alive\r\nx-kept: 1\r\n";
        exchange.respond("200 OK", headers, b"hello")
    });
    let diana = gateway_to(&upstream);
    let headers = "connection: keep-alive, x-secret\r\nconnection: x-hidden\r\nx-secret: 1\r\nx-hidden: 1\r\nkeep-alive: timeout=9\r\n\
                   proxy-connection: keep-alive\r\nte: gzip, trailers\r\nx-kept: 1\r\n";
    let response = get_with(diana.port(), "/", headers);
    let seen = upstream.last();
    for name in ["connection", "x-secret", "x-hidden", "keep-alive", "proxy-connection"] {
        assert_eq!(seen.header(name), None, "{name} is forwarded:\n{}", seen.head);
    }
    assert_eq!(seen.header("te"), Some("trailers"));
    assert_eq!(seen.header("x-kept"), Some("1"));
    for name in ["x-inner", "x-other", "keep-alive", "proxy-connection"] {
        assert_eq!(response.header(name), None, "{name} is forwarded: {:?}", response.headers);
    }
    assert_eq!((response.header("x-kept"), response.text().as_str()), (Some("1"), "hello"));
}

#[test]
fn connection_cannot_remove_headers_of_the_gateway() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let headers = "connection: x-forwarded-for, forwarded, host, content-length, x-forwarded-proto\r\n";
    assert_eq!(get_with(diana.port(), "/", headers).status, 200);
    let seen = upstream.last();
    for name in ["x-forwarded-for", "forwarded", "host", "x-forwarded-proto"] {
        assert!(seen.header(name).is_some(), "no {name}:\n{}", seen.head);
    }
}

/// Regression: the rules saw the header and the upstream did not, so each request had its own key.
#[test]
fn rules_do_not_see_headers_that_connection_names() {
    for (by, header) in [("header(x-api-key)", "x-api-key: r"), ("cookie(session)", "cookie: session=r")] {
        let upstream = Upstream::echo();
        let diana = Diana::serve(&format!(
            "gateway: {{listen: $LISTEN, upstream: '{}'}}\n\
             rules: [{{name: each, by: {by}, missing: shared, limit: 2/h, status: 429}}]\n",
            upstream.url()
        ));
        let name = header.split(':').next().unwrap();
        let responses = (0..4).map(|n| {
            let connection = [name.to_owned(), format!("keep-alive, {}", name.to_uppercase())][n % 2].clone();
            get_with(diana.port(), "/", &format!("{header}{n}\r\nconnection: {connection}\r\n")).status
        });
        assert_eq!(responses.collect::<Vec<_>>(), [200, 200, 429, 429], "{by}");
        assert!(upstream.received().iter().all(|seen| seen.header(name).is_none()));
        assert_eq!(get_with(diana.port(), "/", &format!("{header}\r\n")).status, 200, "a different key");
    }
}

/// The headers of a trusted proxy are read first: a client can't get the proxy's address by having them removed.
#[test]
fn connection_cannot_hide_the_client_address() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', trusted_proxies: [127.0.0.1]}}\n\
         rules: [{{name: each, by: ip, allow: [127.0.0.1], limit: 1/h, status: 429}}]\n",
        upstream.url()
    ));
    let headers = "x-forwarded-for: 6.6.6.6\r\nconnection: x-forwarded-for\r\n";
    assert_eq!([0, 1].map(|_| get_with(diana.port(), "/", headers).status), [200, 429]);
}

/// Regression: the upstream got its own name as `Host`, which the rules had not seen.
#[test]
fn rules_see_the_host_added_to_http10_requests() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\n\
         rules: [{{name: each, match: {{host: 127.0.0.1}}, by: host, limit: 2/h, status: 429}}]\n",
        upstream.url()
    ));
    let old = "GET / HTTP/1.0\r\n\r\n";
    let named = "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    assert_eq!([old, named, old].map(|request| send_request(diana.port(), request).unwrap().status), [200, 200, 429]);
}

#[test]
fn rejects_empty_and_overlong_hosts() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    for (host, status) in [(String::new(), 400), ("a".repeat(262), 400), ("a".repeat(255) + ":8080", 200)] {
        for version in ["1.0", "1.1"] {
            let request = format!("GET / HTTP/{version}\r\nhost: {host}\r\nconnection: close\r\n\r\n");
            assert_eq!(send_request(diana.port(), &request).unwrap().status, status, "{version} {host}");
        }
    }
}

#[test]
fn sends_forwarding_headers() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let spoofed = "x-forwarded-for: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\nx-forwarded-proto: https\r\nx-forwarded-host: evil\r\n\
                   x-forwarded-port: 1\r\nx-real-ip: 6.6.6.6\r\n";
    for headers in ["", spoofed] {
        assert_eq!(get_with(diana.port(), "/", headers).status, 200);
        let seen = upstream.last();
        assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(seen.header("forwarded"), Some("for=127.0.0.1;proto=http"));
        assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
        assert_eq!(seen.header("x-forwarded-host"), Some("example.com"));
        assert!(!seen.head.contains("6.6.6.6") && !seen.head.contains("evil"), "{}", seen.head);
        assert_eq!((seen.header("x-forwarded-port"), seen.header("x-real-ip")), (None, None));
    }
}

#[test]
fn a_head_response_has_a_length_and_no_body() {
    let upstream = Upstream::start(|exchange| exchange.respond("200 OK", "", &[b'x'; 1000]));
    let diana = gateway_to(&upstream);
    let mut client = Client::connect(diana.port());
    for _ in 0..2 {
        let response = client.send("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").head().unwrap();
        assert_eq!((response.status, response.header("content-length")), (200, Some("1000")));
    }
    // The connection is still in sync.
    assert_eq!(client.get("/").body.len(), 1000);
    // The upstream connection was reused, too.
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn responses_204_and_304_have_no_body() {
    let upstream = Upstream::start(|exchange| {
        let status = if exchange.request.target() == "/304" { "304 Not Modified" } else { "204 No Content" };
        exchange.send(format!("HTTP/1.1 {status}\r\netag: \"1\"\r\n\r\n"))?;
        Ok(crate::support::upstream::AfterResponse::KeepAlive)
    });
    let diana = gateway_to(&upstream);
    let mut client = Client::connect(diana.port());
    for (path, status) in [("/204", 204), ("/304", 304), ("/204", 204)] {
        let response = client.get(path);
        assert_eq!((response.status, response.header("etag")), (status, Some("\"1\"")));
    }
}

#[test]
fn serves_http10_clients() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let mut client = Client::connect(diana.port());
    let response = client.send("GET /old HTTP/1.0\r\n\r\n").response();
    assert_eq!(response.status, 200);
    // The client did not request keep-alive.
    assert_eq!(client.rest(), b"");
    let seen = upstream.last();
    assert_eq!(seen.line(), "GET /old HTTP/1.1");
    assert_eq!(seen.header("host"), Some(&*format!("127.0.0.1:{}", upstream.port())));
    let response =
        send_request(diana.port(), "GET /old HTTP/1.0\r\nhost: old.example\r\nconnection: keep-alive\r\n\r\n").unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(upstream.last().header("host"), Some("old.example"));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let mut client = Client::connect(diana.port());
    let requests: String = (0..50).map(|n| format!("GET /{n} HTTP/1.1\r\nhost: a\r\n\r\n")).collect();
    client.send(requests);
    for n in 0..50 {
        assert!(client.response().text().starts_with(&format!("GET /{n} HTTP/1.1\r\n")));
    }
}

#[test]
fn without_an_upstream_allowed_requests_get_204() {
    let diana =
        Diana::serve("gateway: {listen: $LISTEN}\nrules: [{name: each, by: header(x-key), limit: 1/h, status: 429}]\n");
    assert_eq!(get_with(diana.port(), "/", "x-key: a\r\n").status, 204);
    let refused = get_with(diana.port(), "/", "x-key: a\r\n");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok_and(|s| s > 3000)));
    assert!(
        refused.header("ratelimit").is_some() && refused.header("ratelimit-policy").is_some(),
        "{:?}",
        refused.headers
    );
    assert_eq!(get(diana.port(), "/").status, 204);
}

#[test]
fn a_denied_request_does_not_reach_the_upstream() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: one, limit: 1/h, status: 429}}]\n",
        upstream.url()
    ));
    let mut client = Client::connect(diana.port());
    assert_eq!(client.get("/").status, 200);
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 429);
    }
    assert_eq!((upstream.count(), upstream.connections()), (1, 1));
}

#[test]
fn drains_the_body_of_a_denied_request() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: posts, match: {{method: POST}}, total: 1, status: 429}}]\n",
        upstream.url()
    ));
    let mut client = Client::connect(diana.port());
    assert_eq!(client.send("POST /well HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").response().status, 200);
    let body = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for _ in 0..3 {
        // The response comes before the body; the body is drained, and the connection is reused.
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len()));
        let response = client.response();
        assert_eq!((response.status, response.header("connection")), (429, None));
        client.send(body);
        assert_eq!(client.get("/well").status, 200);
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(client.send(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).response().status, 429);
        assert_eq!(client.get("/well").status, 200);
    }
    // A longer body is not drained: the response has `Connection: close`.
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\nsome");
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (429, Some("close")));
    while client.try_send([b'x'; 16 << 10]).is_ok() {}
    assert!(upstream.received().iter().all(|seen| seen.target() == "/well"));
    assert_eq!(upstream.count(), 7);
}

/// WSGI, CGI and PHP read both as one header: the rules would count another account than the service.
#[test]
fn a_header_that_services_read_as_one_of_the_rules_is_removed() {
    let upstream = Upstream::echo();
    for trusted in ["", ", trusted_proxies: [127.0.0.1]"] {
        let diana = Diana::serve(&format!(
            "
gateway: {{listen: $LISTEN, upstream: '{}'{trusted}}}
identity: {{account: header(x-account-id)}}
rules: [{{name: each, by: account, limit: 2/h, status: 429}}]
",
            upstream.url()
        ));
        let send = |account: &str| {
            let head = format!(
                "x-account-id: alice\r\nx_account_id: {account}\r\nx-account_id: {account}\r\nx.account.id: {account}\r\nx_other: 1\r\n"
            );
            send_request(diana.port(), &format!("GET / HTTP/1.1\r\nhost: a\r\n{head}\r\n")).unwrap().status
        };
        assert_eq!(["bob", "carol", "dave"].map(send), [200, 200, 429], "{trusted}");
        let seen = upstream.last();
        assert_eq!((seen.header("x-account-id"), seen.header("x_account_id")), (Some("alice"), None), "{trusted}");
        assert_eq!((seen.header("x-account_id"), seen.header("x.account.id")), (None, None), "{trusted}");
        // Other headers with `_` are forwarded from a trusted proxy only.
        assert_eq!(seen.header("x_other").is_some(), !trusted.is_empty(), "{trusted}");
    }
}

/// A header that is not trusted is not trusted as a trailer either.
#[test]
fn filters_trailers_like_headers() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let request = "POST / HTTP/1.1\r\nhost: a\r\nconnection: x-mine\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                   2\r\nab\r\n0\r\nX-Sum: 42\r\nX-Forwarded-For: 127.0.0.1\r\nForwarded: for=127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\n\
                   x_forwarded_for: 127.0.0.1\r\nCookie: a=b\r\nx-mine: 1\r\nHost: b\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(send_request(diana.port(), request).unwrap().status, 200);
    let seen = upstream.last();
    assert_eq!((seen.body, seen.trailers), (b"ab".to_vec(), vec![("x-sum".to_owned(), "42".to_owned())]));
}

#[test]
fn adds_a_path_to_a_target_with_only_a_query() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    assert_eq!(send_request(diana.port(), "GET http://a.example?x=1 HTTP/1.1\r\nhost: b\r\n\r\n").unwrap().status, 200);
    assert_eq!(upstream.last().line(), "GET /?x=1 HTTP/1.1");
}

/// nginx and Envoy accept all of these. The `http` crate, with which the gateway and h2 parse a URI, rejects some of them
/// before the gateway sees the request; it accepts them where browsers send them unescaped.
#[test]
fn forwards_or_rejects_targets_with_unusual_characters() {
    use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, RST_STREAM};
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", upstream.url()));
    let over_http2 = |target: &str| {
        let mut client = Frames::connect(diana.port(), &[]);
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get(target)).unwrap();
        loop {
            match client.next().unwrap().kind {
                DATA => return true,
                RST_STREAM | GOAWAY => return false,
                _ => {}
            }
        }
    };
    for target in ["/a\"b", "/a{b}", "/a|b^c", "/?q=`x`", "/?q={x}|[y]^", "/?q='x'"] {
        assert_eq!(get(diana.port(), target).status, 200, "{target}");
        assert_eq!(upstream.last().target(), target);
        assert!(over_http2(target), "{target}");
        assert_eq!(upstream.last().target(), target);
    }
    let before = upstream.count();
    for target in ["/?q=\"x\"", "/?q=<x>", "/a<b>", "/a`b`"] {
        assert_eq!(get(diana.port(), target).status, 400, "{target}");
        assert!(!over_http2(target), "{target}");
    }
    assert_eq!(upstream.count(), before);
}
