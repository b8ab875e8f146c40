//! Upstreams that speak HTTP/2, frame by frame: trailers, and bodies that take their time.

use crate::support::client::ask;
use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, FrameUpstream, Frames, HEADERS, OK, RST_STREAM};
use crate::support::http2::Service;
use crate::support::program::Diana;
use diana_testing::wait_until;
use std::time::Duration;

fn before(upstream: &str, timeouts: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: '{upstream}', timeouts: {{{timeouts}}}}}\nrules: []\n"
    ))
}

/// Reads a request without a body; its stream.
fn request(link: &mut Frames) -> u32 {
    link.next_of(HEADERS).unwrap().stream
}

/// h2 refuses to send some of these; the request then hung, and three of them ejected the upstream.
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

/// The upstream's time went on while the client was still sending.
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
