//! Upstreams that speak HTTP/2: the trailers that they get.

use crate::support::client::ask;
use crate::support::http2::Service;
use crate::support::program::Diana;

fn before(upstream: &str, timeouts: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: '{upstream}', timeouts: {{{timeouts}}}}}\nrules: []\n"
    ))
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
