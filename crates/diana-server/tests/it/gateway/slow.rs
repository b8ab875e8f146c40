//! Deliberately slow clients: each is disconnected when its timeout expires, and the others are not affected.

use crate::support::client::{Client, get};
use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{Then, Upstream};
use diana_testing::wait_until;
use std::time::Duration;

fn before(upstream: &Upstream, timeouts: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', timeouts: {{{timeouts}}}}}\nrules: []\n",
        upstream.url()
    ))
}

/// Sends single bytes until the connection is closed. Panics if it is never closed.
fn drip(client: &mut Client, bytes: &str) {
    let mut endless = bytes.bytes().cycle();
    let sent = || client.try_send([endless.next().unwrap_or(b'x')]).is_err().then_some(());
    wait_until("a slow client to be cut", LONG, sent).unwrap();
}

#[test]
fn headers_that_never_end_are_cut_while_others_are_served() {
    let upstream = Upstream::echo();
    let diana = before(&upstream, "header: 500ms");
    let mut slow: Vec<Client> = (0..100).map(|_| Client::connect(diana.port())).collect();
    for client in &mut slow {
        client.send("GET / HTTP/1.1\r\nhost: a\r\nx-slow: ");
    }
    for _ in 0..20 {
        assert_eq!(get(diana.port(), "/").status, 200);
    }
    // Bytes that keep coming do not prolong it.
    drip(&mut slow[0], "x-a: b\r\n");
    for client in &mut slow[1..] {
        client.rest();
    }
    assert_eq!(upstream.count(), 20);
    let gone = || (diana.metric("diana_connections") == 0.0).then_some(());
    wait_until("all to be gone", LONG, gone).unwrap();
}

#[test]
fn who_connects_and_says_nothing_is_cut() {
    let upstream = Upstream::echo();
    let diana = before(&upstream, "header: 300ms, idle: 300ms");
    let mut silent = Client::connect(diana.port());
    let mut undecided = Client::connect(diana.port());
    undecided.send("PRI * HT"); // the beginning of HTTP/2, and then nothing
    let mut idle = Client::connect(diana.port());
    assert_eq!(idle.get("/").status, 200);
    for client in [&mut silent, &mut undecided, &mut idle] {
        assert_eq!(client.rest(), b"");
    }
}

#[test]
fn the_second_header_of_a_connection_must_come_in_time_too() {
    let upstream = Upstream::echo();
    let diana = before(&upstream, "header: 300ms, idle: 60s");
    let mut client = Client::connect(diana.port());
    assert_eq!(client.get("/").status, 200);
    client.send("GET / HTTP/1.1\r\nx-slow: ");
    drip(&mut client, "y");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn bodies_that_never_end_are_cut_and_the_upstream_is_let_go() {
    let upstream = Upstream::echo();
    let diana = before(&upstream, "body: 300ms");
    let mut silent = Client::connect(diana.port());
    silent.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nsome");
    assert_eq!(silent.answer().status, 408);
    silent.rest();
    // The next byte always comes in time, and still it is too slow.
    let mut slow = Client::connect(diana.port());
    slow.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    drip(&mut slow, "1\r\nx\r\n");
    // Both were cut off at the upstream.
    upstream.wait_for_closed(2);
    assert_eq!(get(diana.port(), "/").status, 200);
}

#[test]
fn a_client_that_does_not_read_its_answer_is_cut() {
    let upstream = Upstream::start(|talk| {
        talk.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        loop {
            talk.send([b"10000\r\n".as_slice(), &[b'x'; 0x1_0000], b"\r\n"].concat())?;
        }
    });
    let diana = before(&upstream, "body: 500ms, response: 60s");
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    // The upstream sends for ever, and nobody reads: only the gateway can end this.
    upstream.wait_for_closed(1);
    let gone = || (diana.metric("diana_connections") == 0.0).then_some(());
    wait_until("it to be gone", LONG, gone).unwrap();
    drop(client);
}

#[test]
fn a_client_that_gives_no_window_for_its_answer_is_cut() {
    let upstream = Upstream::start(|talk| talk.answer("200 OK", "", &[b'x'; 1000]));
    let diana = before(&upstream, "body: 500ms, response: 60s, idle: 500ms");
    // HTTP/2 with a window of no bytes: the answer's head comes, its body never can.
    let mut client = Frames::connect(diana.port(), &[(4, 0)]);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/")).unwrap();
    assert_eq!(client.next_of(HEADERS).unwrap().kind, HEADERS);
    // Neither silence nor pings keep it.
    let mut pings = 0;
    let ended = wait_until("the connection or the stream to be cut", LONG, || {
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
fn a_client_that_does_not_read_one_answer_over_http2_loses_that_one_alone() {
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    let upstream = Upstream::start(move |talk| match talk.seen.target() {
        "/large" => talk.answer("200 OK", "", &[b'x'; 300_000]),
        _ => {
            let _ = gate.lock().recv();
            talk.answer("200 OK", "", b"done")
        }
    });
    let diana = before(&upstream, "body: 500ms, response: 60s");
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
fn http2_that_says_nothing_is_cut() {
    let upstream = Upstream::echo();
    let diana = before(&upstream, "header: 300ms, idle: 300ms, body: 300ms");
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
    assert!(upstream.seen().iter().all(|seen| seen.target() == "/slow"));
}

#[test]
fn a_silent_tunnel_is_cut() {
    let upstream = Upstream::start(|talk| {
        talk.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")?;
        let _ = std::io::Read::read(&mut talk.stream, &mut [0; 16]);
        Ok(Then::Close)
    });
    let diana = before(&upstream, "tunnel: 500ms");
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 101);
    assert_eq!(client.rest(), b"");
    upstream.wait_for_closed(1);
}

#[test]
fn a_client_that_goes_takes_its_request_along() {
    let upstream = Upstream::start(|talk| {
        // Reads until the gateway closes the connection: nobody waits for the answer any more.
        let _ = std::io::Read::read(&mut talk.stream, &mut [0; 16]);
        Ok(Then::Close)
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
    // What it held is given back.
    let mut second = Client::connect(diana.port());
    let again = || {
        second.stream().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        second.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        (second.head().is_none_or(|answer| answer.status != 429)).then_some(())
    };
    wait_until("its place to be given back", LONG, again).unwrap();
}
