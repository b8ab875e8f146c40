//! Request smuggling: one server reads a body where another reads a second request that no rule has seen. Whatever a
//! client sends, the upstream gets exactly the requests that the gateway saw.

use crate::support::client::{Client, get};
use crate::support::program::Diana;
use crate::support::upstream::Upstream;

fn gateway_to(upstream: &Upstream) -> Diana {
    // Short timeouts, since incomplete requests wait for them.
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: '{}', timeouts: {{header: 300ms, body: 300ms, idle: 300ms}}}}\n\
         rules: [{{name: admin, match: {{path: /admin/**}}, deny: [0.0.0.0/0], by: ip}}]\n",
        upstream.url()
    ))
}

/// Sends the bytes on a new connection. Returns the statuses of all responses until it is closed.
fn statuses(diana: &Diana, bytes: &[u8]) -> Vec<u16> {
    let mut client = Client::connect(diana.port());
    let _ = client.try_send(bytes);
    let mut statuses = Vec::new();
    while let Some(response) = client.try_response() {
        if response.status >= 200 {
            statuses.push(response.status);
        }
    }
    client.rest();
    statuses
}

/// Checks that each request gets an error response, and that no byte of it reaches the upstream.
fn are_rejected(requests: impl IntoIterator<Item = impl AsRef<[u8]>>) {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    for request in requests {
        let (request, text) = (request.as_ref(), request.as_ref().escape_ascii());
        let statuses = statuses(&diana, request);
        assert!(matches!(statuses[..], [400..=499]), "{statuses:?}: {text}");
        // Another client's request over the same upstream connection is all that the upstream sees.
        assert_eq!(get(diana.port(), "/innocent").status, 200, "{text}");
        assert!(
            upstream.received().iter().all(|seen| seen.target() == "/innocent"),
            "{text}: {:?}",
            upstream.received()
        );
    }
    assert_eq!(upstream.connections(), 1);
}

const SMUGGLED: &str = "GET /admin/smuggled HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn rejects_repeated_content_lengths() {
    let lengths = ["0\r\ncontent-length: 43", "43\r\ncontent-length: 0", "0, 43", "43, 43"];
    are_rejected(
        lengths.map(|length| format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{SMUGGLED}")),
    );
}

#[test]
fn rejects_invalid_content_lengths() {
    let lengths = ["+5", "-1", "0x5", "5 5", "1e1", "", "99999999999999999999999", "5;", "\u{b}5"];
    are_rejected(
        lengths.map(|length| format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\nhello{SMUGGLED}")),
    );
}

#[test]
fn rejects_unknown_transfer_codings() {
    let codings = [
        "xchunked",
        "chunked, identity",
        "chunked, gzip",
        "identity",
        "chunked\r\ntransfer-encoding: identity",
        "\u{b}chunked",
        "chunke\u{0}d",
    ];
    are_rejected(
        codings.map(|coding| {
            format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {coding}\r\n\r\n0\r\n\r\n{SMUGGLED}")
        }),
    );
    // HTTP/1.0 has no transfer codings.
    are_rejected([format!("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}")]);
}

/// Regression: `gzip` was dropped with `Transfer-Encoding`, and the upstream got compressed bytes as the content.
#[test]
fn transfer_codings_other_than_chunked_are_not_implemented() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let post = |coding: &str| {
        format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {coding}\r\n\r\n2\r\nhi\r\n0\r\n\r\n{SMUGGLED}")
    };
    for (coding, status) in [
        ("gzip, chunked", 501),
        ("GZIP ,Chunked", 501),
        ("identity, chunked", 501),
        ("gzip\r\ntransfer-encoding: chunked", 501),
        ("chunked, gzip, chunked", 501),
        ("chunked;q=1, chunked", 501),
        ("chunked, chunked", 400),
        ("chunked\r\ntransfer-encoding: chunked", 400),
        // Without `chunked` at the end, the length of the body is unknown.
        ("gzip", 400),
    ] {
        assert_eq!(statuses(&diana, post(coding).as_bytes()), [status], "{coding}");
        assert_eq!(upstream.count(), 0, "{coding}: {:?}", upstream.received());
    }
    for coding in ["chunked", "CHUNKED", "chunked\t", ", chunked"] {
        let mut client = Client::connect(diana.port());
        assert_eq!(client.send(post(coding).replace(SMUGGLED, "")).response().status, 200, "{coding}");
        assert_eq!(upstream.last().body, b"hi");
    }
}

#[test]
fn rejects_malformed_heads() {
    are_rejected([
        // obs-fold, in a header that matters and in one that does not
        "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\r\n chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx-folded: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\n host: a\r\n\r\n",
        // spaces before the colon, and no name
        "GET / HTTP/1.1\r\nhost: a\r\ncontent-length : 5\r\n\r\nhello",
        "GET / HTTP/1.1\r\nhost: a\r\n: x\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n",
        // control characters
        "GET / HTTP/1.1\r\nhost: a\r\nx-nul: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx-cr: a\rb: c\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx\0y: z\r\n\r\n",
        "GET /a\0b HTTP/1.1\r\nhost: a\r\n\r\n",
        // invalid request lines
        "GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nhost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.2\r\nhost: a\r\n\r\n",
        "GET / HTTP/9.9\r\nhost: a\r\n\r\n",
        "GET /\r\nhost: a\r\n\r\n",
        "G\tET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "\0GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    ]);
}

#[test]
fn bare_line_feeds_do_not_start_a_second_request() {
    // Only some servers treat a bare line feed as a line end. Either way it is one request, and the forwarded head is
    // written anew.
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    for request in [
        "GET /bare HTTP/1.1\nhost: a\n\n",
        "GET /bare HTTP/1.1\r\nhost: a\nx-b: c\r\n\r\n",
        "POST /bare HTTP/1.1\r\nhost: a\r\ncontent-length: 0\n\r\n\r\n",
    ] {
        let statuses = statuses(&diana, request.as_bytes());
        assert!(statuses.len() <= 2, "{statuses:?}: {}", request.escape_debug());
        for seen in upstream.received() {
            assert_eq!(seen.target(), "/bare");
            assert!(!seen.head.replace("\r\n", "").contains(['\n', '\r']), "{}", seen.head.escape_debug());
        }
    }
}

#[test]
fn invalid_chunks_end_the_request() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    for body in [
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhel",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5 x\r\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
    ] {
        let request = format!("POST /chunks HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{body}{SMUGGLED}");
        let statuses = statuses(&diana, request.as_bytes());
        assert!(
            statuses.len() <= 1 && statuses.iter().all(|status| (400..500).contains(status)),
            "{statuses:?}: {body:?}"
        );
        assert_eq!(get(diana.port(), "/innocent").status, 200);
        for seen in upstream.received() {
            assert!(["/chunks", "/innocent"].contains(&seen.target()), "{body:?} smuggled {}", seen.head);
            // The upstream gets an incomplete request, which it does not process.
            assert_eq!(seen.is_whole, seen.target() == "/innocent", "{body:?}: {seen:?}");
        }
    }
}

#[test]
fn content_length_with_chunked_is_one_request() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    // Both orders: a server that uses the length would read the chunks as a request.
    let whole = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    for headers in [
        "content-length: 4\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 4",
        "content-length: 0\r\ntransfer-encoding: chunked",
        "content-length: 400\r\ntransfer-encoding: chunked",
    ] {
        let statuses =
            statuses(&diana, format!("POST /both HTTP/1.1\r\nhost: a\r\n{headers}\r\n\r\n{whole}").as_bytes());
        assert!(statuses.len() <= 1, "{statuses:?}: {headers:?}");
        assert_eq!(get(diana.port(), "/innocent").status, 200, "{headers:?}");
        for seen in upstream.received() {
            assert!(["/both", "/innocent"].contains(&seen.target()), "{headers:?} smuggled {}", seen.head);
            let both = (seen.header("content-length"), seen.header("transfer-encoding"));
            assert!(both.0.is_none() || both.1.is_none(), "{headers:?}: {}", seen.head);
            if seen.target() == "/both" {
                assert_eq!(seen.body, SMUGGLED.as_bytes(), "{headers:?}: {}", seen.head);
            }
        }
    }
}

#[test]
fn rejects_missing_repeated_and_invalid_hosts() {
    are_rejected([
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a@b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a b\r\n\r\n",
        "GET http://user@a/ HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET ftp://a/ HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nhost: a\r\n\r\n",
        "CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n",
        "CONNECT / HTTP/1.1\r\nhost: a\r\n\r\n",
    ]);
}

#[test]
fn connect_is_not_allowed() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let mut client = Client::connect(diana.port());
    client.send("CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n");
    let response = client.response();
    assert_eq!(response.status, 405);
    assert!(response.header("allow").is_some_and(|methods| methods.contains("GET") && !methods.contains("CONNECT")));
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn rejects_heads_over_the_limit() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let long = "x".repeat(40 << 10);
    for request in [
        format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {long}\r\n\r\n"),
        format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x-a: b\r\n".repeat(200)),
        format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", format!("x-a: {}\r\n", "b".repeat(500)).repeat(90)),
    ] {
        let statuses = statuses(&diana, request.as_bytes());
        // A client that is still sending may not see the response.
        assert!(matches!(statuses[..], [431 | 414 | 400] | []), "{statuses:?} to {} bytes", request.len());
    }
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x-a: b\r\n".repeat(100));
    assert_eq!(statuses(&diana, many.as_bytes()), [431]);
    // An endless head is rejected before its end.
    let mut endless = Client::connect(diana.port());
    let _ = endless.try_send("GET / HTTP/1.1\r\nhost: a\r\nx-endless: ");
    while endless.try_send([b'x'; 4 << 10]).is_ok() {}
    assert_eq!(upstream.count(), 0);
    // Within the bounds.
    let fits = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", format!("x-a: {}\r\n", "b".repeat(290)).repeat(90));
    assert_eq!(crate::support::client::send_request(diana.port(), &fits).unwrap().status, 200);
    assert_eq!(upstream.last().count("x-a"), 90);
}
