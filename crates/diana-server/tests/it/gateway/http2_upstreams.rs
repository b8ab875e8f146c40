//! HTTP/2 upstreams, frame by frame: which requests are retried, and slow bodies.

use crate::support::client::{Client, send_request};
use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, FrameUpstream, Frames, HEADERS, OK, RST_STREAM};
use crate::support::http2::Service;
use crate::support::program::{Diana, LONG};
use diana_testing::wait_until;
use std::time::Duration;

fn gateway_to(upstream: &str, timeouts: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: '{upstream}', timeouts: {{{timeouts}}}}}\nrules: []\n"
    ))
}

/// A client that has sent a request.
fn send_get(diana: &Diana, request: &str) -> Client {
    let mut client = Client::connect(diana.port());
    client.send(format!("{request} HTTP/1.1\r\nhost: a\r\n\r\n"));
    client
}

/// Reads a request without a body, and returns its stream.
fn accept_stream(link: &mut Frames) -> u32 {
    link.next_of(HEADERS).unwrap().stream
}

fn respond(link: &mut Frames, stream: u32) {
    link.send(HEADERS, END_HEADERS | END_STREAM, stream, &OK).unwrap();
}

/// Returns a connection to the upstream that has served a request.
fn warm(diana: &Diana, upstream: &FrameUpstream) -> Frames {
    let mut client = send_get(diana, "GET /warm");
    let mut link = upstream.accept(100);
    let stream = accept_stream(&mut link);
    respond(&mut link, stream);
    assert_eq!(client.response().status, 200);
    link
}

/// Regression: connections that accept no more streams were found one at a time, and each counted as a try.
#[test]
fn a_graceful_shutdown_of_the_upstream_loses_no_request() {
    const LINKS: usize = 4;
    let upstream = FrameUpstream::start();
    let diana = gateway_to(&upstream.url(), "connect: 300s");
    let mut clients: Vec<_> = (0..2 * LINKS).map(|_| send_get(&diana, "GET /held")).collect();
    let mut links: Vec<_> = (0..LINKS).map(|_| upstream.accept(2)).collect();
    for link in &mut links {
        let (first, second) = (accept_stream(link), accept_stream(link));
        respond(link, first);
        // The other request is still in flight, so the connection stays open.
        link.go_away(second);
        link.wait_for_peer();
    }
    let mut late = send_get(&diana, "GET /late");
    let mut link = upstream.accept(100);
    let stream = accept_stream(&mut link);
    respond(&mut link, stream);
    assert_eq!(late.response().status, 200);
    for link in &mut links {
        respond(link, 3);
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn retries_requests_after_the_last_stream_of_goaway() {
    let upstream = FrameUpstream::start();
    let diana = gateway_to(&upstream.url(), "");
    let mut link = warm(&diana, &upstream);
    let mut client = Client::connect(diana.port());
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
    let last = accept_stream(&mut link) - 2;
    link.go_away(last);
    let mut other = upstream.accept(100);
    let stream = accept_stream(&mut other);
    respond(&mut other, stream);
    assert_eq!(client.response().status, 200);
}

/// Regression: one GET reached the upstream three times.
#[test]
fn retries_once_after_a_closed_connection_and_never_after_a_reset() {
    const INTERNAL_ERROR: [u8; 4] = 2_u32.to_be_bytes();
    let upstream = FrameUpstream::start();
    let diana = gateway_to(&upstream.url(), "");
    let mut link = warm(&diana, &upstream);
    let mut client = send_get(&diana, "GET /reset");
    let stream = accept_stream(&mut link);
    link.send(RST_STREAM, 0, stream, &INTERNAL_ERROR).unwrap();
    assert_eq!(client.response().status, 502);
    let mut client = send_get(&diana, "GET /closed");
    accept_stream(&mut link);
    drop(link);
    let mut link = upstream.accept(100);
    accept_stream(&mut link);
    drop(link);
    assert_eq!(client.response().status, 502);
    assert!(!upstream.has_more());
}

#[test]
fn a_waiting_request_gets_a_stream_when_the_limit_is_raised() {
    const MAX_CONNECTIONS: usize = 32;
    let upstream = FrameUpstream::start();
    // Shorter than the ping timeout of the gateway: these connections do not ack pings.
    let diana = gateway_to(&upstream.url(), "connect: 9s");
    let clients: Vec<_> = (0..MAX_CONNECTIONS).map(|_| send_get(&diana, "GET /held")).collect();
    let mut links: Vec<_> = (0..MAX_CONNECTIONS).map(|_| upstream.accept(1)).collect();
    for link in &mut links {
        accept_stream(link);
    }
    let mut waiting = send_get(&diana, "GET /waiting");
    // The worker requests a stream before it reads anything else.
    let is_decided = || (diana.metric("diana_decision_seconds_count") > MAX_CONNECTIONS as f64).then_some(());
    wait_until("the request to be decided", LONG, is_decided).unwrap();
    links[7].allow(2);
    let stream = accept_stream(&mut links[7]);
    respond(&mut links[7], stream);
    assert_eq!(waiting.response().status, 200);
    drop(clients);
}

/// Regression: h2 refuses to send some of these; the request then hung, and three of them ejected the upstream.
#[test]
fn drops_forbidden_trailers() {
    let upstream = Service::h2c();
    let diana = gateway_to(&format!("h2c://127.0.0.1:{}", upstream.port()), "");
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
        assert_eq!(send_request(diana.port(), &request).unwrap().status, 200, "{bad}");
        let seen = upstream.last();
        let trailers: Vec<_> =
            seen.trailers.iter().flatten().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!((seen.body.as_ref(), &*trailers), (&b"abc"[..], &[("x-digest", &b"1"[..])][..]), "{bad}");
    }
    assert!(!diana.output().contains(" ejected: "), "{}", diana.output());
}

/// Regression: the response timeout ran while the client was still sending.
#[test]
fn the_response_timeout_does_not_run_during_an_upload() {
    let upstream = FrameUpstream::start();
    let diana = gateway_to(&upstream.url(), "response: 500ms");
    let mut client = Frames::connect(diana.port(), &[]);
    let post = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    client.send(HEADERS, END_HEADERS, 1, &frames::block(&post)).unwrap();
    let mut link = upstream.accept(100);
    let stream = accept_stream(&mut link);
    link.send(HEADERS, END_HEADERS, stream, &OK).unwrap();
    assert_eq!(client.next_of(HEADERS).unwrap().kind, HEADERS);
    for _ in 0..20 {
        let _ = wait_until("a pause", Duration::from_millis(100), || None::<()>);
        client.send(DATA, 0, 1, b"x").unwrap();
    }
    client.send(DATA, END_STREAM, 1, b"y").unwrap();
    let mut body = Vec::new();
    while body.last() != Some(&b'y') {
        let frame = link.next().unwrap();
        assert_ne!(frame.kind, RST_STREAM, "aborted after {} bytes", body.len());
        if frame.kind == DATA {
            body.extend(frame.payload);
        }
    }
    assert_eq!(body.len(), 21);
    link.send(DATA, END_STREAM, stream, b"done").unwrap();
    let end = client.next_of(DATA).unwrap();
    assert_eq!((end.kind, end.payload.as_slice()), (DATA, &b"done"[..]));
}
