//! The parser compared with hyper's: the same bytes are the same requests. Where this one rejects more, the test names it.

use super::request_head::{HeadReader, RequestHead};
use crate::ClientBounds;
use crate::http1_codec::body_decoder::BodyDecoder;
use bytes::{Bytes, BytesMut};
use diana_http::head::is_trailer_allowed;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use proptest::prelude::*;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The result of parsing the bytes of a connection: the requests, and the status of the response to an invalid one.
#[derive(Debug, Default, PartialEq)]
struct Reading {
    requests: Vec<ReadRequest>,
    rejected: Option<u16>,
}

/// The names and values of headers or trailers.
type Fields = Vec<(String, Vec<u8>)>;

#[derive(Debug, PartialEq)]
struct ReadRequest {
    line: String,
    headers: Fields,
    /// The body and the trailers; `None` if it is invalid or incomplete.
    body: Option<(Vec<u8>, Fields)>,
}

/// Returns the fields sorted by their names: a map has no other order.
fn fields(headers: &HeaderMap) -> Fields {
    let mut fields: Vec<_> =
        headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    fields
}

fn line(head: &http::request::Parts) -> String {
    format!("{} {} {:?}", head.method, head.uri, head.version)
}

fn allowed_trailers(trailers: &HeaderMap) -> Fields {
    let allowed = trailers.iter().filter(|(name, _)| is_trailer_allowed(name));
    allowed.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

/// Parses bytes that arrive in these parts.
fn read_by_parser<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Reading {
    let (bounds, mut parts) = (ClientBounds::default(), parts.into_iter().filter(|part| !part.is_empty()));
    let (mut reading, mut reader, mut input) = (Reading::default(), HeadReader::default(), BytesMut::new());
    loop {
        let mut head = reader.take(&mut input, &bounds);
        while let Ok(None) = head {
            let Some(part) = parts.next() else { return reading };
            head = reader.add(&mut input, part, &bounds);
        }
        let RequestHead { parts: head, mut decoder, keep_alive, .. } = match head {
            Ok(Some(head)) => head,
            Ok(None) => return reading,
            Err(error) => {
                reading.rejected = Some(error.status().as_u16());
                return reading;
            }
        };
        let body = read_body(&mut decoder, &mut input, &mut parts);
        let is_whole = body.is_some();
        reading.requests.push(ReadRequest { line: line(&head), headers: fields(&head.headers), body });
        if !is_whole || !keep_alive {
            return reading;
        }
    }
}

fn read_body<'a>(
    decoder: &mut BodyDecoder,
    input: &mut BytesMut,
    parts: &mut impl Iterator<Item = &'a [u8]>,
) -> Option<(Vec<u8>, Fields)> {
    let (mut body, mut trailers) = (Vec::new(), Vec::new());
    while !decoder.is_over() {
        match decoder.take(input).ok()? {
            Some(frame) => match frame.into_data() {
                Ok(data) => body.extend_from_slice(&data),
                Err(frame) => trailers = frame.trailers_ref().map(allowed_trailers).unwrap_or_default(),
            },
            None if decoder.is_over() => {}
            None => input.extend_from_slice(parts.next()?),
        }
    }
    Some((body, trailers))
}

/// Parses bytes with hyper, with the options that the gateway used.
fn read_by_hyper(bytes: &[u8]) -> Reading {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bounds = ClientBounds::default();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let service = service_fn({
            let requests = Arc::clone(&requests);
            move |request: Request<Incoming>| {
                let requests = Arc::clone(&requests);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.ok().map(|body| {
                        let trailers = body.trailers().map(allowed_trailers).unwrap_or_default();
                        (body.to_bytes().to_vec(), trailers)
                    });
                    requests.lock().push(ReadRequest { line: line(&head), headers: fields(&head.headers), body });
                    Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                }
            }
        });
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let mut builder = http1::Builder::new();
        builder.max_headers(bounds.headers).max_buf_size(bounds.header).half_close(true);
        let _ = builder.serve_connection(TokioIo::new(server), service).await;
        let mut output = Vec::new();
        client.read_to_end(&mut output).await.unwrap();
        let statuses = String::from_utf8_lossy(&output);
        let statuses = statuses.split("HTTP/1.").skip(1).filter_map(|response| response.get(2..5)?.parse::<u16>().ok());
        let rejected = statuses.filter(|status| *status >= 400).last();
        let requests = std::mem::take(&mut *requests.lock());
        Reading { requests, rejected }
    })
}

/// Returns `true` if this parser may reject bytes that hyper accepts:
/// a target that is an authority, both framings in one head, and in a chunked body extensions with control characters, or
/// trailers with bare line feeds.
fn may_be_stricter(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let is_authority = |line: &str| {
        let target = line.split(' ').nth(1).unwrap_or_default();
        !target.starts_with('/') && !target.contains("://") && target != "*"
    };
    text.lines().any(|line| line.contains(" http/1.") && is_authority(line))
        || (text.contains("transfer-encoding") && text.contains("content-length"))
        || (text.contains("chunked") && (text.contains(';') || text.replace("\r\n", "").contains('\n')))
}

fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (diana, hyper) = (read_by_parser([bytes]), read_by_hyper(bytes));
    let whole = |reading: &Reading| reading.requests.iter().filter(|request| request.body.is_some()).count();
    let is_stricter = whole(&diana) < whole(&hyper) || diana.requests.len() < hyper.requests.len();
    if is_stricter && may_be_stricter(bytes) {
        prop_assert_eq!(&diana.requests[..whole(&diana)], &hyper.requests[..whole(&diana)], "{}", bytes.escape_ascii());
    } else if diana != hyper {
        prop_assert!(false, "{}\ndiana {diana:?}\nhyper {hyper:?}", bytes.escape_ascii());
    }
    Ok(())
}

const REQUESTS: [&str; 14] = [
    "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /a?b=c HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    "\r\nHEAD /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nconnection: keep-alive\r\n\r\n",
    "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
    "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
    "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n",
    "PUT /x HTTP/1.1\r\nhost: a\r\nTransfer-Encoding:\tChunked \r\ntrailer: x-sum\r\n\r\n1\r\nx\r\n0\r\nx-sum: 4\r\nhost: b\r\n\r\n",
    "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nhost: a\r\nupgrade: h2c, x\r\nte: trailers, deflate\r\n\r\n",
    "GET http://a:80/x?y#z HTTP/1.1\r\nhost:\r\nx-empty:\r\nx-a: b\tc\x7f\r\n\r\n",
    "M-SEARCH /%41 HTTP/1.1\nhost: a\nx-bare: 1\n\n",
    "POST /x HTTP/1.1\r\nhost: a\r\nexpect: 100-Continue\r\ncontent-length: 2\r\n\r\nhi",
];

#[test]
fn the_examples_are_read_as_hyper_reads_them() {
    for request in REQUESTS {
        compare(request.as_bytes()).unwrap();
        compare(&[request.as_bytes(), REQUESTS[0].as_bytes()].concat()).unwrap();
    }
}

/// Hyper accepts these bytes, and this parser does not.
#[test]
fn some_bytes_that_hyper_accepts_are_rejected() {
    for bytes in [
        // Only CONNECT has an authority as its target.
        "GET a HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET a:80 HTTP/1.1\r\nhost: a\r\n\r\n",
        // An invalid length is one even if the coding counts.
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: x\r\n\r\n0\r\n\r\n",
        // Control characters in an extension.
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1;a\x00\r\nx\r\n0\r\n\r\n",
    ] {
        let (diana, hyper) = (read_by_parser([bytes.as_bytes()]), read_by_hyper(bytes.as_bytes()));
        assert!(diana.requests.iter().all(|request| request.body.is_none()), "{bytes:?}: {diana:?}");
        assert!(hyper.requests.iter().all(|request| request.body.is_some()), "{bytes:?}: {hyper:?}");
        assert!(may_be_stricter(bytes.as_bytes()), "{bytes:?}");
    }
}

#[test]
fn heads_over_the_bounds_are_rejected_as_by_hyper() {
    let long = |length| format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n", "x".repeat(length));
    assert_eq!(read_by_parser([long(40 << 10).as_bytes()]).rejected, Some(431));
    assert_eq!(read_by_parser([long(31 << 10).as_bytes()]).rejected, None);
    let many = |count| format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x-a: b\r\n".repeat(count));
    assert_eq!(read_by_parser([many(99).as_bytes()]).rejected, None);
    compare(many(99).as_bytes()).unwrap();
    assert_eq!(read_by_parser([many(100).as_bytes()]).rejected, Some(431));
    compare(many(100).as_bytes()).unwrap();
}

/// A change of some bytes.
#[derive(Clone, Debug)]
enum Edit {
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Replace(prop::sample::Index, u8),
}

fn edits() -> impl Strategy<Value = Edit> {
    let bytes = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"\r\n\r\n".to_vec()),
        Just(b"content-length: 1\r\n".to_vec()),
        Just(b"transfer-encoding: chunked\r\n".to_vec()),
        Just(b"connection: close\r\n".to_vec()),
        Just(b"0\r\n\r\n".to_vec()),
        Just(b";a=b".to_vec()),
        prop::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b' '), Just(b':'), Just(0), any::<u8>()],
            1..3
        ),
    ];
    let byte = prop_oneof![Just(b'\r'), Just(b'\n'), Just(b' '), Just(b'\t'), Just(b','), Just(0), any::<u8>()];
    prop_oneof![
        (any::<prop::sample::Index>(), bytes).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<prop::sample::Index>(), 1..4_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        (any::<prop::sample::Index>(), byte).prop_map(|(at, byte)| Edit::Replace(at, byte)),
    ]
}

/// One to three requests with some changes.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let requests = prop::collection::vec(prop::sample::select(&REQUESTS[..]), 1..4);
    (requests, prop::collection::vec(edits(), 0..4)).prop_map(|(requests, edits)| {
        let mut bytes = requests.concat().into_bytes();
        for edit in edits {
            match edit {
                Edit::Insert(at, added) => {
                    let at = at.index(bytes.len() + 1);
                    bytes.splice(at..at, added);
                }
                Edit::Remove(at, length) if !bytes.is_empty() => {
                    let at = at.index(bytes.len());
                    bytes.drain(at..(at + length).min(bytes.len()));
                }
                Edit::Replace(at, byte) if !bytes.is_empty() => {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
                Edit::Remove(..) | Edit::Replace(..) => {}
            }
        }
        bytes
    })
}

/// Two thousand cases, or `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { default } else { ProptestConfig { cases: 2_000, ..default } }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_bytes_are_read_as_hyper_reads_them(bytes in requests()) {
        compare(&bytes)?;
    }

    #[test]
    fn requests_are_the_same_however_they_are_split(bytes in requests(), sizes in prop::collection::vec(1..40_usize, 1..60)) {
        // An invalid head that arrives in parts is rejected when it is complete.
        let bytes = [&bytes[..], b"\r\n\r\n"].concat();
        let mut parts = Vec::new();
        let mut rest = &bytes[..];
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (part, after) = rest.split_at((*size).min(rest.len()));
            parts.push(part);
            rest = after;
        }
        prop_assert_eq!(read_by_parser(parts), read_by_parser([&bytes[..]]));
    }
}
