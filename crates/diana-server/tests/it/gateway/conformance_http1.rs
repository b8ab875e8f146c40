//! Valid and invalid HTTP/1 requests, checked against RFC 9112 and RFC 9110.
//!
//! Each table names its section. An invalid request gets an error response, or the connection ends without a response,
//! and no upstream ever gets it as a complete request. A valid one arrives. Where the RFC leaves a choice, both are
//! accepted, as long as one request stays one request.

use crate::support::client::{Client, get};
use crate::support::program::Diana;
use crate::support::upstream::{ReceivedRequest, Upstream};
use Expected::{Accepted, Either, Rejected};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The RFC requires it (MUST), or the request has no meaning that a gateway could forward.
    Rejected,
    Accepted,
    /// The RFC leaves the choice (MAY or SHOULD).
    Either,
}

/// The expected result, the name, and the bytes of a case.
type Case = (Expected, String, Vec<u8>);

/// Sends the bytes on a new connection. Returns the statuses of all final responses until the connection ends.
fn statuses(diana: &Diana, bytes: &[u8]) -> Vec<u16> {
    let mut client = Client::connect(diana.port());
    // A gateway may end the connection before it has read everything.
    let _ = client.try_send(bytes);
    let mut statuses = Vec::new();
    while let Some(response) = client.try_response() {
        statuses.extend(Some(response.status).filter(|status| *status >= 200));
    }
    client.rest();
    statuses
}

/// A second request that follows each request and must not become a part of it.
const NEXT: &str = "GET /next HTTP/1.1\r\nhost: a\r\n\r\n";

fn conform(cases: impl IntoIterator<Item = Case>) {
    let upstream = Upstream::echo();
    // Short timeouts, since incomplete requests wait for them.
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: '{}', timeouts: {{header: 300ms, body: 300ms, idle: 300ms}}}}\n\
         rules: []\n",
        upstream.url()
    ));
    let mut failures = Vec::new();
    for (expected, name, request) in cases {
        let before = upstream.count();
        let statuses = statuses(&diana, &request);
        let is_error = |status: u16| matches!(status, 400..=499 | 501 | 505);
        let is_rejected = statuses.len() <= 1 && statuses.iter().all(|status| is_error(*status));
        let is_accepted = statuses == [200];
        let is_expected = match expected {
            Rejected => is_rejected,
            Accepted => is_accepted,
            Either => is_rejected || is_accepted,
        };
        // The gateway still serves other clients, over connections without any bytes of this request.
        let is_well = get(diana.port(), "/innocent").status == 200;
        let seen = upstream.received().split_off(before);
        let whole = seen.iter().filter(|seen| seen.is_whole).count();
        let arrived = if is_accepted { 2 } else { 1 };
        let is_one = whole == arrived && seen.iter().all(|seen| seen.target() != "/next");
        if !(is_expected && is_well && is_one) {
            let heads = seen.iter().map(ReceivedRequest::line).collect::<Vec<_>>();
            failures.push(format!(
                "{name}: {expected:?}, but {statuses:?}, upstream saw {heads:?}: {}",
                request.escape_ascii()
            ));
        }
    }
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n"));
}

/// Returns a request with this request line, followed by another request.
fn line(expected: Expected, line: &str) -> Case {
    of_line(expected, line.as_bytes())
}

fn of_line(expected: Expected, line: &[u8]) -> Case {
    let rest = b"\r\nhost: a\r\nconnection: close\r\n\r\n";
    (expected, "request line".to_owned(), [line, rest, NEXT.as_bytes()].concat())
}

/// Returns requests with these bytes as a header line, in the middle and at the end.
fn header(expected: Expected, bytes: &[u8]) -> [Case; 2] {
    let start = b"GET /header HTTP/1.1\r\nhost: a\r\nconnection: close\r\n";
    let request = |end: &str| [start, bytes, end.as_bytes(), NEXT.as_bytes()].concat();
    [
        (expected, "header".to_owned(), request("\r\nx-after: 1\r\n\r\n")),
        (expected, "last header".to_owned(), request("\r\n\r\n")),
    ]
}

/// Returns a request with these framing headers and this body.
fn body(expected: Expected, headers: &str, body: &str) -> Case {
    let request = format!("POST /body HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\r\n\r\n{body}{NEXT}");
    (expected, "body".to_owned(), request.into_bytes())
}

/// Returns a request with this chunked body.
fn chunks(expected: Expected, chunks: &[u8]) -> Case {
    let head = b"POST /chunks HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    (expected, "chunks".to_owned(), [head, chunks, NEXT.as_bytes()].concat())
}

/// RFC 9112 §3: `method SP request-target SP HTTP-version`.
#[test]
fn request_lines() {
    let good = [
        "GET / HTTP/1.1",
        "GET /a?b=c&d HTTP/1.1",
        "GET /%41%2f;x=y/~z/:@!$&'()*+,= HTTP/1.1",
        "GET http://a/x HTTP/1.1",
        "DELETE /x HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        // §2.2: an empty line before a request is ignored.
        "\r\nGET / HTTP/1.1",
    ];
    let bad = [
        // the version
        "GET /",
        "GET / ",
        "GET / HTTP",
        "GET / HTTP/",
        "GET / HTTP/1",
        "GET / HTTP/1.",
        "GET / HTTP/.1",
        "GET / HTTP/1.10",
        "GET / HTTP/01.1",
        "GET / HTTP/11.1",
        "GET / HTTP/1,1",
        "GET / HTTP/1.1.1",
        "GET / HTTP/-1.1",
        "GET / HTTP/2.0",
        "GET / HTTP/0.9",
        "GET / HTTP/1.1x",
        "GET / HTTP/x.y",
        "GET / http/1.1",
        "GET / HTTPS/1.1",
        "GET / HTP/1.1",
        "GET / RTSP/1.0",
        "GET / ICE/1.0",
        "GET / HTTP /1.1",
        "GET / HTTP/ 1.1",
        // spaces
        " GET / HTTP/1.1",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET / x HTTP/1.1",
        "GET /\u{b}HTTP/1.1",
        // the method
        "/ HTTP/1.1",
        "G(T / HTTP/1.1",
        "G/T / HTTP/1.1",
        "G@T / HTTP/1.1",
        "\"GET\" / HTTP/1.1",
        "GET: / HTTP/1.1",
        "G\u{e9}T / HTTP/1.1",
        "{GET} / HTTP/1.1",
        "G\rT / HTTP/1.1",
        "G\0T / HTTP/1.1",
        "=GET / HTTP/1.1",
        // the target
        "GET HTTP/1.1",
        "GET ?q HTTP/1.1",
        "GET * HTTP/1.1",
        "POST * HTTP/1.1",
        "GET http:// HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET :// HTTP/1.1",
        "GET /a\0b HTTP/1.1",
        "GET /a\u{1}b HTTP/1.1",
        "GET /a\u{7f}b HTTP/1.1",
        "GET /a\rb HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "CONNECT a HTTP/1.1",
        // An authority, which only CONNECT may have.
        "GET foo HTTP/1.1",
        "GET foo:80 HTTP/1.1",
    ];
    let either = [
        // Unregistered methods.
        "PURGE /x HTTP/1.1",
        "M-SEARCH /x HTTP/1.1",
        "!#$%&'*+-.^_`|~ /x HTTP/1.1",
        // Characters that are invalid in a URI, but that some clients send.
        "GET /a\"b HTTP/1.1",
        "GET /a<b> HTTP/1.1",
        "GET /a|b HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET /%zz HTTP/1.1",
        "GET / HTTP/1.0",
        "\r\n\r\n\r\nGET / HTTP/1.1",
        "\nGET / HTTP/1.1",
        "GET / HTTP/1.1\r",
        "GET / HTTP/1.1\nx-bare: 1",
    ];
    let cases = |lines: &[&str], expected| lines.iter().map(|text| line(expected, text)).collect::<Vec<_>>();
    conform([cases(&good, Accepted), cases(&bad, Rejected), cases(&either, Either)].concat());
    conform([of_line(Either, b"GET /\xff\xfe HTTP/1.1"), of_line(Rejected, b"G\xff / HTTP/1.1")]);
}

/// RFC 9110 §7.2: exactly one valid host.
#[test]
fn hosts() {
    let of_hosts = |expected, hosts: &str| -> Case {
        (expected, "host".to_owned(), format!("GET / HTTP/1.1\r\n{hosts}connection: close\r\n\r\n{NEXT}").into_bytes())
    };
    let good = ["a", "A.example", "a:80", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:80", "a-b_c~d"];
    let bad = ["a b", "a/b", "a?b", "a#b", "u@a", "a\\b", "[::1", "::1]", "a\0", "\u{1}", "a<", "\"a\"", "http://a"];
    let good = good.map(|host| of_hosts(Accepted, &format!("host: {host}\r\n")));
    let bad = bad.map(|host| of_hosts(Rejected, &format!("host: {host}\r\n")));
    let several = ["", "host: a\r\nhost: a\r\n", "host: a\r\nHost: b\r\n", "host: a\r\nhost:\r\n"];
    let several = several.map(|hosts| of_hosts(Rejected, hosts));
    conform(good.into_iter().chain(bad).chain(several).chain([of_hosts(Either, "host:\r\n")]));
}

/// RFC 9112 §5, RFC 9110 §5: `field-name ":" OWS field-value OWS`.
#[test]
fn header_lines() {
    let mut cases = Vec::new();
    for good in [
        &b"x-a:b"[..],
        b"x-a: b",
        b"x-a: \t b \t ",
        b"x-a:",
        b"x-a: ",
        b"!#$%&'*+-.^_`|~0aZ: b",
        b"x-a: \"b\", (c), {d}; e=[f] \\ <g> :@?",
        b"x-a: b\tc",
    ] {
        cases.extend(header(Accepted, good));
    }
    // All bytes that are invalid in a name.
    for byte in (0..=255_u8).filter(|byte| !byte.is_ascii_alphanumeric() && !b"!#$%&'*+-.^_`|~".contains(byte)) {
        // These two end the line or the name.
        if !matches!(byte, b'\n' | b':') {
            cases.extend(header(Rejected, &[b"x-a", &[byte][..], b"b: c"].concat()));
        }
    }
    for bad in [
        &b"x-a : b"[..],
        b"x-a\t: b",
        b": b",
        b":",
        b" : b",
        b"no colon",
        b"x-a",
        b"\x00",
        // §5.2: a line that goes on in the next.
        b"x-a: b\r\n c",
        b"x-a: b\r\n\tc",
        b"x-a:\r\n b",
        b"x-a: b\r\n \r\n c",
        // RFC 9110 §5.5: bytes that some servers treat as a line end.
        b"x-a: b\x00c",
        b"x-a: \x00",
        b"x-a: b\rc",
        b"x-a: b\rx-c: d",
        b"\rx-a: b",
        b"x-a\r: b",
    ] {
        cases.extend(header(Rejected, bad));
    }
    for either in [
        // Other control characters, and non-ASCII bytes.
        &b"x-a: b\x01c"[..],
        b"x-a: b\x0bc",
        b"x-a: b\x7fc",
        b"x-a: b\x80\xffc",
        // §2.2: a line feed alone may end a line.
        b"x-a: b\nx-c: d",
        b"x-a: b\n\tc",
    ] {
        cases.extend(header(Either, either));
    }
    conform(cases);
    // §2.2: white space before the first header.
    let first = |start: &str| -> Case {
        let request = format!("GET / HTTP/1.1\r\n{start}host: a\r\nconnection: close\r\n\r\n{NEXT}");
        (Rejected, "first header".to_owned(), request.into_bytes())
    };
    conform([first(" "), first("\t"), first(" \r\n"), first(" x-a: b\r\n"), first("\0"), first("\r")]);
}

/// RFC 9112 §6: the length of a body.
#[test]
fn lengths_and_codings() {
    let chunked = "5\r\nhello\r\n0\r\n\r\n";
    let length = |expected, length: &str| body(expected, &format!("content-length: {length}"), "hello");
    let coding = |expected, coding: &str| body(expected, &format!("transfer-encoding: {coding}"), chunked);
    let mut cases = vec![
        length(Accepted, "5"),
        length(Accepted, " \t5\t "),
        length(Accepted, "005"),
        coding(Accepted, "chunked"),
        coding(Accepted, "Chunked"),
        coding(Accepted, "\tchunked "),
        body(Accepted, "x-none: 1", ""),
        body(Accepted, "content-length: 0", ""),
        // The same length twice may be taken for one.
        length(Either, "5, 5"),
        length(Either, "5\r\ncontent-length: 5"),
        // Empty elements of a list.
        coding(Either, ", chunked"),
        coding(Either, "chunked,"),
        coding(Either, ",,chunked"),
        // §6.3: both, which may be an attempt to smuggle: rejected, or the coding counts and the connection ends.
        body(Either, "content-length: 5\r\ntransfer-encoding: chunked", chunked),
        body(Either, "transfer-encoding: chunked\r\ncontent-length: 15", chunked),
    ];
    for bad in [
        "",
        "-5",
        "+5",
        "5 5",
        "5,",
        ",5",
        "5, 6",
        "6, 5",
        "5\r\ncontent-length: 6",
        "6\r\ncontent-length: 5",
        "0x5",
        "5.0",
        "5e0",
        "5a",
        "a5",
        "\"5\"",
        "5;",
        "5;a=b",
        "\u{664}",
        "5\0",
        "\u{b}5",
        "5\u{c}",
        "99999999999999999999",
        "18446744073709551621",
        "5\r\ncontent-length:",
        "5\r\ncontent-length: x",
        "5\r\ncontent-length: -5",
    ] {
        cases.push(length(Rejected, bad));
    }
    for bad in [
        "",
        "identity",
        "gzip",
        "chunked, gzip",
        "chunked, identity",
        "chunked\r\ntransfer-encoding: gzip",
        "xchunked",
        "chunkedx",
        "chunk ed",
        "\"chunked\"",
        "'chunked'",
        "chunked;",
        "chunked;q=1",
        "chunked; a=b",
        "chunked\0",
        "\u{b}chunked",
        "chunked\u{c}",
        "chunked\u{7f}",
        "{chunked}",
        "chunked chunked",
        "ch\u{fc}nked",
    ] {
        cases.push(coding(Rejected, bad));
    }
    // Chunked twice.
    cases.push(coding(Rejected, "chunked, chunked"));
    cases.push(coding(Rejected, "chunked\r\ntransfer-encoding: chunked"));
    // Similar names are different names.
    for name in ["content_length", "content-length\u{200b}", "transfer encoding", "transfer-encoding "] {
        let expected = if name == "content_length" { Either } else { Rejected };
        cases.push(body(expected, &format!("{name}: 5"), ""));
    }
    conform(cases);
    // §6.1: HTTP/1.0 has no transfer codings.
    let old = format!("POST /old HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunked}{NEXT}");
    conform([(Rejected, "HTTP/1.0".to_owned(), old.into_bytes())]);
}

/// RFC 9112 §7.1: `chunk-size [chunk-ext] CRLF chunk-data CRLF`.
#[test]
fn chunked_bodies() {
    let mut cases = Vec::new();
    for good in [
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
        "a\r\n0123456789\r\n0\r\n\r\n",
        "A\r\n0123456789\r\n0\r\n\r\n",
        "0005\r\nhello\r\n0000\r\n\r\n",
        "5;a\r\nhello\r\n0\r\n\r\n",
        "5;a=b\r\nhello\r\n0;c=d\r\n\r\n",
        "5;a=\"b c\"\r\nhello\r\n0\r\n\r\n",
        "5;a;b=c;d\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nx-trailer: 1\r\n\r\n",
        "2\r\n\r\n\r\n0\r\n\r\n",
    ] {
        cases.push(chunks(Accepted, good.as_bytes()));
    }
    for bad in [
        // the size
        &b"\r\nhello\r\n0\r\n\r\n"[..],
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"\t5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"g\r\nhello\r\n0\r\n\r\n",
        b"5g\r\nhello\r\n0\r\n\r\n",
        b"5 5\r\nhello\r\n0\r\n\r\n",
        b"5,\r\nhello\r\n0\r\n\r\n",
        b"5_0\r\nhello\r\n0\r\n\r\n",
        b"5.0\r\nhello\r\n0\r\n\r\n",
        b"5\x00\r\nhello\r\n0\r\n\r\n",
        b"\x005\r\nhello\r\n0\r\n\r\n",
        b"5\xa0\r\nhello\r\n0\r\n\r\n",
        b"5=a\r\nhello\r\n0\r\n\r\n",
        b"\"5\"\r\nhello\r\n0\r\n\r\n",
        b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        b"10000000000000005\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffffffffffffffffff5\r\nhello\r\n0\r\n\r\n",
        // the end of the line
        b"5\nhello\r\n0\r\n\r\n",
        b"5\rhello\r\n0\r\n\r\n",
        b"5\r\rhello\r\n0\r\n\r\n",
        b"5\n\rhello\r\n0\r\n\r\n",
        b"5hello\r\n0\r\n\r\n",
        b"5;a\nhello\r\n0\r\n\r\n",
        b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        // the data
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhell\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello\r0\r\n\r\n",
        b"5\r\nhello\rX0\r\n\r\n",
        // the trailers
        b"5\r\nhello\r\n0\r\nbad name: x\r\n\r\n",
        b"5\r\nhello\r\n0\r\nno colon\r\n\r\n",
        b"5\r\nhello\r\n0\r\n: x\r\n\r\n",
        b"5\r\nhello\r\n0\r\nx-a: b\x00\r\n\r\n",
        b"5\r\nhello\r\n0\r\nx-a: b\r\n folded\r\n\r\n",
    ] {
        cases.push(chunks(Rejected, bad));
    }
    for either in [
        // White space around the `;`, which recipients have to parse and senders must not send.
        "5 ;a=b\r\nhello\r\n0\r\n\r\n",
        "5; a = b\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5;\r\nhello\r\n0\r\n\r\n",
        // §2.2: lines of trailers that end in a line feed alone.
        "5\r\nhello\r\n0\r\nx-a: b\n\r\n",
        // Fields that a trailer must not have; they are dropped, or the request is.
        "5\r\nhello\r\n0\r\ncontent-length: 3\r\n\r\n",
        "5\r\nhello\r\n0\r\nhost: b\r\n\r\n",
    ] {
        cases.push(chunks(Either, either.as_bytes()));
    }
    // Control characters in extensions.
    cases.push(chunks(Rejected, b"5;a\x00b\r\nhello\r\n0\r\n\r\n"));
    cases.push(chunks(Rejected, b"5;\x01\r\nhello\r\n0\r\n\r\n"));
    // An extension that never ends.
    cases.push(chunks(Rejected, format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(100_000)).as_bytes()));
    conform(cases);
}
