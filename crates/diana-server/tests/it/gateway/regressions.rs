//! Regression tests for bugs found by inspection. Each doc comment describes the former behaviour.

use crate::support::client::{Client, ask};
use crate::support::program::Diana;
use crate::support::upstream::{Then, Upstream};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A filter after Diana's rejected a request, and its cost was refunded: guessing signatures was free.
#[test]
fn what_a_filter_behind_refuses_is_counted() {
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
        .map(|_| ask(diana.port(), "GET / HTTP/1.1\r\nhost: a\r\nx-signature: t=1,v1=00\r\n\r\n").unwrap().status)
        .collect();
    assert_eq!(statuses, [401, 401, 401, 429, 429]);
    assert_eq!(service.count(), 0);
}

/// Invalid request bodies counted as failures of the upstreams, and ejected them.
#[test]
fn bad_bodies_are_not_the_upstreams_fault() {
    let (one, two) = (Upstream::echo(), Upstream::echo());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: ['{}', '{}']}}\nrules: []\n",
        one.url(),
        two.url()
    ));
    for _ in 0..20 {
        let request = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nno length\r\n";
        assert!(ask(diana.port(), request).is_none_or(|answer| answer.status == 400));
    }
    assert_eq!(ask(diana.port(), "GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap().status, 200);
    assert!(!diana.said().contains("left out"), "{}", diana.said());
}

/// Idle connections were closed at once at shutdown, with requests in transit.
#[test]
fn what_was_sent_before_anybody_could_know_is_answered_when_stopping() {
    let service = Upstream::echo();
    let mut diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", service.url()));
    let (mut used, mut fresh): (Vec<_>, Vec<_>) =
        (0..40).map(|_| (Client::connect(diana.port()), Client::connect(diana.port()))).unzip();
    for client in &mut used {
        assert_eq!(client.get("/").status, 200);
    }
    diana.tell_to_stop();
    for client in used.iter_mut().chain(&mut fresh) {
        client.send("GET /last HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    for client in used.iter_mut().chain(&mut fresh) {
        assert_eq!(client.answer().status, 200);
    }
    assert!(diana.ended().success());
}

/// An upstream that responded before it had the whole request lost its connection, and so did the client.
#[test]
fn an_early_answer_does_not_cost_the_client_its_connection() {
    let service = Upstream::start(|talk| {
        let answered = talk.answer("200 OK", "", b"early")?;
        talk.body()?;
        Ok(answered)
    });
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", service.url()));
    let mut client = Client::connect(diana.port());
    for _ in 0..3 {
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello");
        assert_eq!(client.answer().text(), "early");
        client.send("world");
    }
    assert_eq!(client.get("/").status, 200);
}

/// A pooled connection that the upstream closed just when it was reused caused a 502.
#[test]
fn what_may_be_asked_twice_is_when_the_upstream_closes_meanwhile() {
    let asked = AtomicUsize::new(0);
    let service = Upstream::start(move |talk| {
        // Every second request is read, and its connection closed without an answer.
        let is_answered = asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if is_answered { talk.answer("200 OK", "", b"once") } else { Ok(Then::Close) }
    });
    let diana =
        Diana::serve(&format!("gateway: {{listen: $LISTEN, workers: 1, upstream: '{}'}}\nrules: []\n", service.url()));
    let mut client = Client::connect(diana.port());
    for _ in 0..10 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(service.count(), 19, "all but the first were asked twice");
}
