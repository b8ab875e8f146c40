//! Deliberately slow clients: each is disconnected when its timeout expires, and the others are not affected.

use crate::support::client::{Client, get};
use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{AfterResponse, Upstream};
use diana_testing::wait_until;
use std::time::Duration;

fn gateway_to(upstream: &Upstream, timeouts: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', timeouts: {{{timeouts}}}}}\nrules: []\n",
        upstream.url()
    ))
}

/// Sends single bytes until the connection is closed. Panics if it is never closed.
fn drip(client: &mut Client, bytes: &str) {
    let mut endless = bytes.bytes().cycle();
    let sent = || client.try_send([endless.next().unwrap_or(b'x')]).is_err().then_some(());
    wait_until("a slow client to be disconnected", LONG, sent).unwrap();
}

#[test]
fn the_header_timeout_closes_slow_connections_only() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream, "header: 500ms");
    let mut slow: Vec<Client> = (0..100).map(|_| Client::connect(diana.port())).collect();
    for client in &mut slow {
        client.send("GET / HTTP/1.1\r\nhost: a\r\nx-slow: ");
    }
    for _ in 0..20 {
        assert_eq!(get(diana.port(), "/").status, 200);
    }
    // Further bytes do not extend the timeout.
    drip(&mut slow[0], "x-a: b\r\n");
    for client in &mut slow[1..] {
        client.rest();
    }
    assert_eq!(upstream.count(), 20);
    let closed = || (diana.metric("diana_connections") == 0.0).then_some(());
    wait_until("all connections to be closed", LONG, closed).unwrap();
}

#[test]
fn silent_connections_are_closed() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream, "header: 300ms, idle: 300ms");
    let mut silent = Client::connect(diana.port());
    let mut undecided = Client::connect(diana.port());
    undecided.send("PRI * HT"); // a part of the HTTP/2 preface
    let mut idle = Client::connect(diana.port());
    assert_eq!(idle.get("/").status, 200);
    for client in [&mut silent, &mut undecided, &mut idle] {
        assert_eq!(client.rest(), b"");
    }
}

#[test]
fn the_header_timeout_applies_to_every_request() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream, "header: 300ms, idle: 60s");
    let mut client = Client::connect(diana.port());
    assert_eq!(client.get("/").status, 200);
    client.send("GET / HTTP/1.1\r\nx-slow: ");
    drip(&mut client, "y");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn the_body_timeout_aborts_slow_requests() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream, "body: 300ms");
    let mut silent = Client::connect(diana.port());
    silent.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nsome");
    assert_eq!(silent.response().status, 408);
    silent.rest();
    // Single bytes are too slow, although each arrives in time.
    let mut slow = Client::connect(diana.port());
    slow.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    drip(&mut slow, "1\r\nx\r\n");
    // Both upstream connections are closed.
    upstream.wait_for_closed(2);
    assert_eq!(get(diana.port(), "/").status, 200);
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let upstream = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        loop {
            exchange.send([b"10000\r\n".as_slice(), &[b'x'; 0x1_0000], b"\r\n"].concat())?;
        }
    });
    let diana = gateway_to(&upstream, "body: 500ms, response: 60s");
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    // The upstream sends forever and the client does not read: only the gateway can end this.
    upstream.wait_for_closed(1);
    let closed = || (diana.metric("diana_connections") == 0.0).then_some(());
    wait_until("the connection to be closed", LONG, closed).unwrap();
    drop(client);
}

#[test]
fn a_client_without_window_is_disconnected() {
    let upstream = Upstream::start(|exchange| exchange.respond("200 OK", "", &[b'x'; 1000]));
    let diana = gateway_to(&upstream, "body: 500ms, response: 60s, idle: 500ms");
    // HTTP/2 with an empty window: the head of the response arrives, its body cannot.
    let mut client = Frames::connect(diana.port(), &[(4, 0)]);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/")).unwrap();
    assert_eq!(client.next_of(HEADERS).unwrap().kind, HEADERS);
    // Pings do not keep it open.
    let mut pings = 0;
    let ended = wait_until("the connection or the stream to be closed", LONG, || {
        pings += 1;
        if client.send(PING, 0, 0, b"are you?").is_err() {
            return Some(());
        }
        match client.next() {
            None => Some(()),
            Some(frame) => (frame.kind == GOAWAY || frame.kind == frames::RST_STREAM).then_some(()),
        }
    });
    ended.unwrap();
}

/// Regression: the gateway closed the whole connection, without GOAWAY.
#[test]
fn an_unread_http2_response_resets_only_its_stream() {
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    let upstream = Upstream::start(move |exchange| match exchange.request.target() {
        "/large" => exchange.respond("200 OK", "", &[b'x'; 300_000]),
        _ => {
            let _ = gate.lock().recv();
            exchange.respond("200 OK", "", b"done")
        }
    });
    let diana = gateway_to(&upstream, "body: 500ms, response: 60s");
    let mut client = Frames::connect(diana.port(), &[]);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/held")).unwrap();
    client.send(HEADERS, END_HEADERS | END_STREAM, 3, &frames::get("/large")).unwrap();
    client.give_window(0, 1 << 20);
    let reset = client.next_of(frames::RST_STREAM).unwrap();
    assert_eq!((reset.kind, reset.stream), (frames::RST_STREAM, 3));
    go_on.send(()).unwrap();
    let done = client.next_of(DATA).unwrap();
    assert_eq!((done.kind, done.stream, done.payload.as_slice()), (DATA, 1, &b"done"[..]));
}

#[test]
fn silent_http2_connections_are_closed() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream, "header: 300ms, idle: 300ms, body: 300ms");
    // No request at all.
    let mut silent = Frames::connect(diana.port(), &[]);
    while silent.next().is_some() {}
    // A request whose headers never end.
    let mut half = Frames::connect(diana.port(), &[]);
    half.send(HEADERS, 0, 1, &frames::get("/half")).unwrap();
    while half.next().is_some() {}
    // A request whose body never ends: that stream is answered or reset, and then the connection is idle.
    let mut slow = Frames::connect(diana.port(), &[]);
    let post = frames::block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/slow")]);
    slow.send(HEADERS, END_HEADERS, 1, &post).unwrap();
    slow.send(DATA, 0, 1, b"some").unwrap();
    while slow.next().is_some() {}
    assert!(upstream.received().iter().all(|seen| seen.target() == "/slow"));
}

#[test]
fn an_idle_tunnel_is_closed() {
    let upstream = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")?;
        let _ = std::io::Read::read(&mut exchange.stream, &mut [0; 16]);
        Ok(AfterResponse::Close)
    });
    let diana = gateway_to(&upstream, "tunnel: 500ms");
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 101);
    assert_eq!(client.rest(), b"");
    upstream.wait_for_closed(1);
}

#[test]
fn a_disconnect_cancels_the_request_and_releases_its_permit() {
    let upstream = Upstream::start(|exchange| {
        // Reads until the gateway closes the connection, since the client has disconnected.
        let _ = std::io::Read::read(&mut exchange.stream, &mut [0; 16]);
        Ok(AfterResponse::Close)
    });
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', timeouts: {{response: 300s}}}}\nrules: [{{name: one, concurrent: 1, status: 429}}]\n",
        upstream.url()
    ));
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    upstream.wait_for(1);
    assert_eq!(get(diana.port(), "/").status, 429);
    drop(client);
    upstream.wait_for_closed(1);
    // Its permit is released.
    let mut second = Client::connect(diana.port());
    let again = || {
        second.stream().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        second.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        (second.head().is_none_or(|response| response.status != 429)).then_some(())
    };
    wait_until("its permit to be released", LONG, again).unwrap();
}
