//! HTTP/2 upstreams, frame by frame: which requests are retried, and slow bodies.

use crate::support::client::{Client, ask};
use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, FrameUpstream, Frames, HEADERS, OK, RST_STREAM};
use crate::support::http2::Service;
use crate::support::program::{Diana, LONG};
use diana_testing::wait_until;
use std::time::Duration;

fn before(upstream: &str, timeouts: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: '{upstream}', timeouts: {{{timeouts}}}}}\nrules: []\n"
    ))
}

/// A client that has sent a request.
fn asking(diana: &Diana, request: &str) -> Client {
    let mut client = Client::connect(diana.port());
    client.send(format!("{request} HTTP/1.1\r\nhost: a\r\n\r\n"));
    client
}

/// Reads a request without a body, and returns its stream.
fn request(link: &mut Frames) -> u32 {
    link.next_of(HEADERS).unwrap().stream
}

fn answer(link: &mut Frames, stream: u32) {
    link.send(HEADERS, END_HEADERS | END_STREAM, stream, &OK).unwrap();
}

/// Returns a connection to the upstream that has served a request.
fn warm(diana: &Diana, upstream: &FrameUpstream) -> Frames {
    let mut client = asking(diana, "GET /warm");
    let mut link = upstream.accept(100);
    let stream = request(&mut link);
    answer(&mut link, stream);
    assert_eq!(client.answer().status, 200);
    link
}

/// Regression: connections that accept no more streams were found one at a time, and each counted as a try.
#[test]
fn an_upstream_that_shuts_down_gracefully_loses_no_request() {
    const LINKS: usize = 4;
    let upstream = FrameUpstream::start();
    let diana = before(&upstream.url(), "connect: 300s");
    let mut clients: Vec<_> = (0..2 * LINKS).map(|_| asking(&diana, "GET /held")).collect();
    let mut links: Vec<_> = (0..LINKS).map(|_| upstream.accept(2)).collect();
    for link in &mut links {
        let (first, second) = (request(link), request(link));
        answer(link, first);
        // The other request is still under way, so the connection stays.
        link.go_away(second);
        link.wait_for_peer();
    }
    let mut late = asking(&diana, "GET /late");
    let mut link = upstream.accept(100);
    let stream = request(&mut link);
    answer(&mut link, stream);
    assert_eq!(late.answer().status, 200);
    for link in &mut links {
        answer(link, 3);
    }
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn a_request_that_an_upstream_has_not_begun_with_when_it_goes_away_is_sent_again() {
    let upstream = FrameUpstream::start();
    let diana = before(&upstream.url(), "");
    let mut link = warm(&diana, &upstream);
    let mut client = Client::connect(diana.port());
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
    let last = request(&mut link) - 2;
    link.go_away(last);
    let mut other = upstream.accept(100);
    let stream = request(&mut other);
    answer(&mut other, stream);
    assert_eq!(client.answer().status, 200);
}

/// Regression: one GET reached the upstream three times.
#[test]
fn a_request_whose_stream_is_reset_is_not_sent_again_and_one_whose_connection_is_closed_is_once() {
    const INTERNAL_ERROR: [u8; 4] = 2_u32.to_be_bytes();
    let upstream = FrameUpstream::start();
    let diana = before(&upstream.url(), "");
    let mut link = warm(&diana, &upstream);
    let mut client = asking(&diana, "GET /reset");
    let stream = request(&mut link);
    link.send(RST_STREAM, 0, stream, &INTERNAL_ERROR).unwrap();
    assert_eq!(client.answer().status, 502);
    let mut client = asking(&diana, "GET /closed");
    request(&mut link);
    drop(link);
    let mut link = upstream.accept(100);
    request(&mut link);
    drop(link);
    assert_eq!(client.answer().status, 502);
    assert!(!upstream.has_more());
}

#[test]
fn a_request_that_waits_for_a_stream_gets_one_when_the_upstream_allows_more() {
    const MOST_CONNECTIONS: usize = 32;
    let upstream = FrameUpstream::start();
    // Before the gateway finds that these connections do not answer its pings.
    let diana = before(&upstream.url(), "connect: 9s");
    let clients: Vec<_> = (0..MOST_CONNECTIONS).map(|_| asking(&diana, "GET /held")).collect();
    let mut links: Vec<_> = (0..MOST_CONNECTIONS).map(|_| upstream.accept(1)).collect();
    for link in &mut links {
        request(link);
    }
    let mut waiting = asking(&diana, "GET /waiting");
    // The worker asks for a stream before it reads anything else.
    let is_decided = || (diana.metric("diana_decision_seconds_count") > MOST_CONNECTIONS as f64).then_some(());
    wait_until("the request to be decided", LONG, is_decided).unwrap();
    links[7].allow(2);
    let stream = request(&mut links[7]);
    answer(&mut links[7], stream);
    assert_eq!(waiting.answer().status, 200);
    drop(clients);
}

/// Regression: h2 refuses to send some of these; the request then hung, and three of them ejected the upstream.
#[test]
fn trailers_that_may_not_be_sent_are_dropped_and_do_not_hang_the_request() {
    let upstream = Service::h2c();
    let diana = before(&format!("h2c://127.0.0.1:{}", upstream.port()), "");
    for bad in [
        "connection: x",
        "keep-alive: 1",
        "upgrade: x",
        "te: gzip",
        "transfer-encoding: chunked",
        "x-forwarded-for: 6.6.6.6",
        "x_forwarded_for: 6.6.6.6",
        "host: b",
        "content-length: 7",
        "x-named: 1",
    ] {
        let request = format!(
            "POST / HTTP/1.1\r\nhost: a\r\nconnection: x-named\r\ntransfer-encoding: chunked\r\n\r\n\
             3\r\nabc\r\n0\r\n{bad}\r\nx-digest: \t 1 \t\r\n\r\n"
        );
        assert_eq!(ask(diana.port(), &request).unwrap().status, 200, "{bad}");
        let seen = upstream.last();
        let trailers: Vec<_> =
            seen.trailers.iter().flatten().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!((seen.body.as_ref(), &*trailers), (&b"abc"[..], &[("x-digest", &b"1"[..])][..]), "{bad}");
    }
    assert!(!diana.said().contains("left out"), "{}", diana.said());
}

/// Regression: the response timeout ran while the client was still sending.
#[test]
fn an_upload_takes_its_time_when_the_answer_has_begun() {
    let upstream = FrameUpstream::start();
    let diana = before(&upstream.url(), "response: 500ms");
    let mut client = Frames::connect(diana.port(), &[]);
    let post = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    client.send(HEADERS, END_HEADERS, 1, &frames::block(&post)).unwrap();
    let mut link = upstream.accept(100);
    let stream = request(&mut link);
    link.send(HEADERS, END_HEADERS, stream, &OK).unwrap();
    assert_eq!(client.next_of(HEADERS).unwrap().kind, HEADERS);
    for _ in 0..20 {
        let _ = wait_until("a moment", Duration::from_millis(100), || None::<()>);
        client.send(DATA, 0, 1, b"x").unwrap();
    }
    client.send(DATA, END_STREAM, 1, b"y").unwrap();
    let mut body = Vec::new();
    while body.last() != Some(&b'y') {
        let frame = link.next().unwrap();
        assert_ne!(frame.kind, RST_STREAM, "cut after {} bytes", body.len());
        if frame.kind == DATA {
            body.extend(frame.payload);
        }
    }
    assert_eq!(body.len(), 21);
    link.send(DATA, END_STREAM, stream, b"done").unwrap();
    let end = client.next_of(DATA).unwrap();
    assert_eq!((end.kind, end.payload.as_slice()), (DATA, &b"done"[..]));
}
