//! How the gateway changes the heads of requests and responses.

use crate::support::client::{Client, ask, get, get_with};
use crate::support::program::Diana;
use crate::support::upstream::Upstream;

fn before(upstream: &Upstream) -> Diana {
    Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", upstream.url()))
}

#[test]
fn a_request_arrives_as_it_was_sent() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    let request = "POST /a%20b//c;d?q=1&q=%2F HTTP/1.1\r\nHost: shop.example.com:8080\r\nX-Odd: \tone, two \r\n\
                   x-twice: 1\r\nX-Twice: 2\r\nAuthorization: Basic eDp5\r\nContent-Length: 5\r\n\r\nhello";
    let answer = ask(diana.port(), request).unwrap();
    assert_eq!(answer.status, 200);
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
fn what_concerns_one_connection_ends_at_the_gateway() {
    let upstream = Upstream::start(|talk| {
        let headers = "connection: x-inner\r\nconnection: x-other\r\nx-inner: 1\r\nx-other: 1\r\nkeep-alive: timeout=9\r\n\
                       proxy-connection: keep-alive\r\nx-kept: 1\r\n";
        talk.answer("200 OK", headers, b"hello")
    });
    let diana = before(&upstream);
    let headers = "connection: keep-alive, x-secret\r\nconnection: x-hidden\r\nx-secret: 1\r\nx-hidden: 1\r\nkeep-alive: timeout=9\r\n\
                   proxy-connection: keep-alive\r\nte: gzip, trailers\r\nx-kept: 1\r\n";
    let answer = get_with(diana.port(), "/", headers);
    let seen = upstream.last();
    for name in ["connection", "x-secret", "x-hidden", "keep-alive", "proxy-connection"] {
        assert_eq!(seen.header(name), None, "{name} goes on:\n{}", seen.head);
    }
    assert_eq!(seen.header("te"), Some("trailers"));
    assert_eq!(seen.header("x-kept"), Some("1"));
    for name in ["x-inner", "x-other", "keep-alive", "proxy-connection"] {
        assert_eq!(answer.header(name), None, "{name} comes back: {:?}", answer.headers);
    }
    assert_eq!((answer.header("x-kept"), answer.text().as_str()), (Some("1"), "hello"));
}

#[test]
fn a_client_can_not_take_away_what_the_gateway_adds() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    let headers = "connection: x-forwarded-for, forwarded, host, content-length, x-forwarded-proto\r\n";
    assert_eq!(get_with(diana.port(), "/", headers).status, 200);
    let seen = upstream.last();
    for name in ["x-forwarded-for", "forwarded", "host", "x-forwarded-proto"] {
        assert!(seen.header(name).is_some(), "no {name}:\n{}", seen.head);
    }
}

/// Regression: the rules saw the header and the upstream did not, so each request had its own key.
#[test]
fn a_header_that_connection_names_is_hidden_from_the_rules_as_well() {
    for (by, header) in [("header(x-api-key)", "x-api-key: r"), ("cookie(session)", "cookie: session=r")] {
        let upstream = Upstream::echo();
        let diana = Diana::serve(&format!(
            "gateway: {{listen: $LISTEN, upstream: '{}'}}\n\
             rules: [{{name: each, by: {by}, missing: shared, limit: 2/h, status: 429}}]\n",
            upstream.url()
        ));
        let name = header.split(':').next().unwrap();
        let answers = (0..4).map(|n| {
            let connection = [name.to_owned(), format!("keep-alive, {}", name.to_uppercase())][n % 2].clone();
            get_with(diana.port(), "/", &format!("{header}{n}\r\nconnection: {connection}\r\n")).status
        });
        assert_eq!(answers.collect::<Vec<_>>(), [200, 200, 429, 429], "{by}");
        assert!(upstream.seen().iter().all(|seen| seen.header(name).is_none()));
        assert_eq!(get_with(diana.port(), "/", &format!("{header}\r\n")).status, 200, "a key of its own");
    }
}

/// The headers of a trusted proxy are read first: a client can't get the proxy's address by having them removed.
#[test]
fn a_client_stays_the_client_whatever_connection_names() {
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
fn rules_see_the_host_that_an_old_client_does_not_send() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\n\
         rules: [{{name: each, match: {{host: 127.0.0.1}}, by: host, limit: 2/h, status: 429}}]\n",
        upstream.url()
    ));
    let old = "GET / HTTP/1.0\r\n\r\n";
    let named = "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    assert_eq!([old, named, old].map(|request| ask(diana.port(), request).unwrap().status), [200, 200, 429]);
}

#[test]
fn a_host_is_neither_empty_nor_longer_than_a_name_can_be() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    for (host, status) in [(String::new(), 400), ("a".repeat(262), 400), ("a".repeat(255) + ":8080", 200)] {
        for version in ["1.0", "1.1"] {
            let request = format!("GET / HTTP/{version}\r\nhost: {host}\r\nconnection: close\r\n\r\n");
            assert_eq!(ask(diana.port(), &request).unwrap().status, status, "{version} {host}");
        }
    }
}

#[test]
fn the_upstream_learns_who_asked_and_how() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
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
fn head_has_the_length_of_a_body_that_does_not_come() {
    let upstream = Upstream::start(|talk| talk.answer("200 OK", "", &[b'x'; 1000]));
    let diana = before(&upstream);
    let mut client = Client::connect(diana.port());
    for _ in 0..2 {
        let answer = client.send("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").head().unwrap();
        assert_eq!((answer.status, answer.header("content-length")), (200, Some("1000")));
    }
    // The connection is at the right place still.
    assert_eq!(client.get("/").body.len(), 1000);
    // The connection to the upstream was kept, too.
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_answer_without_a_body_has_none() {
    let upstream = Upstream::start(|talk| {
        let status = if talk.seen.target() == "/304" { "304 Not Modified" } else { "204 No Content" };
        talk.send(format!("HTTP/1.1 {status}\r\netag: \"1\"\r\n\r\n"))?;
        Ok(crate::support::upstream::Then::KeepAlive)
    });
    let diana = before(&upstream);
    let mut client = Client::connect(diana.port());
    for (path, status) in [("/204", 204), ("/304", 304), ("/204", 204)] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.header("etag")), (status, Some("\"1\"")));
    }
}

#[test]
fn old_clients_are_served_as_they_expect() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    let mut client = Client::connect(diana.port());
    let answer = client.send("GET /old HTTP/1.0\r\n\r\n").answer();
    assert_eq!(answer.status, 200);
    // It did not ask to keep the connection.
    assert_eq!(client.rest(), b"");
    let seen = upstream.last();
    assert_eq!(seen.line(), "GET /old HTTP/1.1");
    assert_eq!(seen.header("host"), Some(&*format!("127.0.0.1:{}", upstream.port())));
    let answer = ask(diana.port(), "GET /old HTTP/1.0\r\nhost: old.example\r\nconnection: keep-alive\r\n\r\n").unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(upstream.last().header("host"), Some("old.example"));
}

#[test]
fn several_requests_at_once_are_answered_in_their_order() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    let mut client = Client::connect(diana.port());
    let requests: String = (0..50).map(|n| format!("GET /{n} HTTP/1.1\r\nhost: a\r\n\r\n")).collect();
    client.send(requests);
    for n in 0..50 {
        assert!(client.answer().text().starts_with(&format!("GET /{n} HTTP/1.1\r\n")));
    }
}

#[test]
fn without_an_upstream_it_says_what_may_pass() {
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
fn a_refused_request_touches_nothing_behind() {
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
fn the_body_of_a_refused_request_is_thrown_away() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: posts, match: {{method: POST}}, total: 1, status: 429}}]\n",
        upstream.url()
    ));
    let mut client = Client::connect(diana.port());
    assert_eq!(client.send("POST /well HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").answer().status, 200);
    let body = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for _ in 0..3 {
        // It is answered before the body is there; what comes of it then is no request, and the connection is kept.
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len()));
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (429, None));
        client.send(body);
        assert_eq!(client.get("/well").status, 200);
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(client.send(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).answer().status, 429);
        assert_eq!(client.get("/well").status, 200);
    }
    // One that is too long for that is told so, and not read for ever.
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\nsome");
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (429, Some("close")));
    while client.try_send([b'x'; 16 << 10]).is_ok() {}
    assert!(upstream.seen().iter().all(|seen| seen.target() == "/well"));
    assert_eq!(upstream.count(), 7);
}

/// A header that is not trusted is not trusted as a trailer either.
#[test]
fn trailers_say_no_more_than_headers_may() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    let request = "POST / HTTP/1.1\r\nhost: a\r\nconnection: x-mine\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                   2\r\nab\r\n0\r\nX-Sum: 42\r\nX-Forwarded-For: 127.0.0.1\r\nForwarded: for=127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\n\
                   x_forwarded_for: 127.0.0.1\r\nCookie: a=b\r\nx-mine: 1\r\nHost: b\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(ask(diana.port(), request).unwrap().status, 200);
    let seen = upstream.last();
    assert_eq!((seen.body, seen.trailers), (b"ab".to_vec(), vec![("x-sum".to_owned(), "42".to_owned())]));
}

#[test]
fn an_address_with_a_query_alone_has_a_path() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    assert_eq!(ask(diana.port(), "GET http://a.example?x=1 HTTP/1.1\r\nhost: b\r\n\r\n").unwrap().status, 200);
    assert_eq!(upstream.last().line(), "GET /?x=1 HTTP/1.1");
}

/// nginx and Envoy accept all of these. The `http` crate, with which hyper and h2 parse a URI, rejects some of them
/// before the gateway sees the request; it accepts them where browsers send them unescaped.
#[test]
fn addresses_with_odd_characters_go_on_as_they_were_sent_or_are_bad_requests() {
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
