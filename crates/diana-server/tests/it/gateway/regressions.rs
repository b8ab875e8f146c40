//! Regression tests for bugs found by inspection. Each doc comment describes the former behaviour.

use crate::support::client::{Client, send_request};
use crate::support::program::Diana;
use crate::support::upstream::{AfterResponse, Upstream};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A filter after Diana's rejected a request, and its cost was refunded: guessing signatures was free.
#[test]
fn requests_rejected_by_later_filters_are_counted() {
    let service = Upstream::echo();
    let diana = Diana::serve(&format!(
        "
gateway:
  listen: $LISTEN
  upstream: {}
  signature: {{secret: a-secret-that-is-long-enough, header: x-signature}}
rules: [{{name: each, by: ip, limit: 3/h, status: 429}}]
",
        service.url()
    ));
    let statuses: Vec<u16> = (0..5)
        .map(|_| {
            send_request(diana.port(), "GET / HTTP/1.1\r\nhost: a\r\nx-signature: t=1,v1=00\r\n\r\n").unwrap().status
        })
        .collect();
    assert_eq!(statuses, [401, 401, 401, 429, 429]);
    assert_eq!(service.count(), 0);
}

/// Invalid request bodies counted as failures of the upstreams, and ejected them.
#[test]
fn invalid_request_bodies_do_not_eject_upstreams() {
    let (one, two) = (Upstream::echo(), Upstream::echo());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: ['{}', '{}']}}\nrules: []\n",
        one.url(),
        two.url()
    ));
    for _ in 0..20 {
        let request = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nno length\r\n";
        assert!(send_request(diana.port(), request).is_none_or(|response| response.status == 400));
    }
    assert_eq!(send_request(diana.port(), "GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap().status, 200);
    assert!(!diana.output().contains(" ejected: "), "{}", diana.output());
}

/// Idle connections were closed at once at shutdown, with requests in transit.
#[test]
fn requests_in_transit_are_answered_at_shutdown() {
    let service = Upstream::echo();
    let mut diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", service.url()));
    let (mut used, mut fresh): (Vec<_>, Vec<_>) =
        (0..40).map(|_| (Client::connect(diana.port()), Client::connect(diana.port()))).unzip();
    for client in &mut used {
        assert_eq!(client.get("/").status, 200);
    }
    diana.request_stop();
    for client in used.iter_mut().chain(&mut fresh) {
        client.send("GET /last HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    for client in used.iter_mut().chain(&mut fresh) {
        assert_eq!(client.response().status, 200);
    }
    assert!(diana.wait_for_exit().success());
}

/// An upstream that responded before it had the whole request lost its connection, and so did the client.
#[test]
fn an_early_response_keeps_the_connection() {
    let service = Upstream::start(|exchange| {
        let answered = exchange.respond("200 OK", "", b"early")?;
        exchange.body()?;
        Ok(answered)
    });
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", service.url()));
    let mut client = Client::connect(diana.port());
    for _ in 0..3 {
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello");
        assert_eq!(client.response().text(), "early");
        client.send("world");
    }
    assert_eq!(client.get("/").status, 200);
}

/// A pooled connection that the upstream closed just when it was reused caused a 502.
#[test]
fn retries_safe_requests_on_closed_pooled_connections() {
    let requests = AtomicUsize::new(0);
    let service = Upstream::start(move |exchange| {
        // The connection of every second request is closed without a response.
        let is_answered = requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if is_answered { exchange.respond("200 OK", "", b"once") } else { Ok(AfterResponse::Close) }
    });
    let diana =
        Diana::serve(&format!("gateway: {{listen: $LISTEN, workers: 1, upstream: '{}'}}\nrules: []\n", service.url()));
    let mut client = Client::connect(diana.port());
    for _ in 0..10 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(service.count(), 19, "all but the first were sent twice");
}
