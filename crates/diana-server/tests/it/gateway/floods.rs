//! Floods of accounts, connections and frames: resource use stays bounded, and other clients are served.

use crate::support::client::{Client, get, get_with};
use crate::support::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, PING, RST_STREAM, SETTINGS,
};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::Upstream;
use diana_testing::wait_until;
use std::io::Write;

#[test]
fn a_flood_of_accounts_stays_within_the_memory_limit() {
    const ACCOUNTS: usize = 200_000;
    let diana = Diana::serve(
        "
gateway: {listen: $LISTEN, workers: 2}
identity: {account: header(x-account)}
store: {memory: 1MiB}
rules: [{name: each-account, by: account, limit: 2/h, status: 429}]
",
    );
    // A limited account stays limited during the flood.
    let limited = "x-account: limited\r\n";
    let first: Vec<u16> = (0..3).map(|_| get_with(diana.port(), "/", limited).status).collect();
    assert_eq!(first, [204, 204, 429]);
    let send_request = |thread: usize| {
        let mut client = Client::connect(diana.port());
        let mut sender = client.stream().try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            for start in (0..ACCOUNTS / 4).step_by(500) {
                let one = |n| format!("GET / HTTP/1.1\r\nhost: a\r\nx-account: {thread}-{n}\r\n\r\n");
                let requests: String = (start..start + 500).map(one).collect();
                sender.write_all(requests.as_bytes()).unwrap();
            }
        });
        let mut answered = 0;
        for _ in 0..ACCOUNTS / 4 {
            let status = client.response().status;
            assert!(matches!(status, 204 | 429), "{status}");
            answered += 1;
        }
        sending.join().unwrap();
        answered
    };
    // The memory of warmed-up workers does not count.
    send_request(9);
    let before = diana.memory();
    let answered: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || send_request(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(answered, ACCOUNTS / 4 * 3);
    let grown = diana.memory().saturating_sub(before);
    assert!(grown < 8 << 20, "memory grew by {} KiB", grown >> 10);
    assert_eq!(get_with(diana.port(), "/", limited).status, 429);
}

#[test]
fn rejects_connections_over_the_limit() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', bounds: {{connections: 10, accept_queue: 0}}}}\nrules: []\n",
        upstream.url()
    ));
    let mut open: Vec<Client> = (0..10).map(|_| Client::connect(diana.port())).collect();
    for client in &mut open {
        assert_eq!(client.get("/").status, 200);
    }
    for _ in 0..5 {
        let mut rejected = Client::connect(diana.port());
        let _ = rejected.try_send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert!(rejected.try_response().is_none());
    }
    // Earlier connections are still served.
    for client in &mut open {
        assert_eq!(client.get("/").status, 200);
    }
    open.truncate(5);
    let served = || {
        let mut client = Client::connect(diana.port());
        client.try_send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").ok()?;
        client.try_response().filter(|response| response.status == 200)
    };
    wait_until("a free connection slot", LONG, served).unwrap();
}

#[test]
fn idle_connections_use_little_memory() {
    let diana = Diana::serve("gateway: {listen: $LISTEN, timeouts: {header: 300s, idle: 300s}}\nrules: []\n");
    let before = diana.memory();
    let mut idle: Vec<Client> = (0..400).map(|_| Client::connect(diana.port())).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").status, 204);
    }
    assert_eq!(get(diana.port(), "/").status, 204);
    let each = diana.memory().saturating_sub(before) / 400;
    assert!(each < 32 << 10, "each connection uses {each} bytes");
    // All of them can be reused.
    for client in &mut idle {
        assert_eq!(client.get("/").status, 204);
    }
}

#[test]
fn half_closed_connections_are_closed() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: []\n", upstream.url()));
    let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(diana.port())).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(["", "GET / HTT", "GET / HTTP/1.1\r\nhost: a\r\n\r\n"][n % 3]);
        client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    }
    for client in &mut clients {
        client.rest();
    }
    let closed = || (diana.metric("diana_connections") == 0.0).then_some(());
    wait_until("all connections to be closed", LONG, closed).unwrap();
}

/// Floods an HTTP/2 connection: it may be closed or not, but other clients are served and memory use stays bounded.
fn http2_flood(diana: &Diana, settings: &[(u16, u32)], bytes: impl Fn(u32) -> Vec<u8>) -> bool {
    let before = diana.memory();
    let mut flood = Frames::connect(diana.port(), settings);
    let mut is_ended = false;
    for n in 0..20_000u32 {
        if flood.send_raw(&bytes(n)).is_err() {
            is_ended = true;
            break;
        }
        if n % 5_000 == 4_999 {
            assert_eq!(get(diana.port(), "/").status, 200);
        }
    }
    assert_eq!(get(diana.port(), "/").status, 200);
    let grown = diana.memory().saturating_sub(before);
    assert!(grown < 24 << 20, "memory grew by {} KiB", grown >> 10);
    is_ended
}

fn gateway_to(upstream: &Upstream) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', bounds: {{streams: 50}}, timeouts: {{body: 2s, header: 2s}}}}\nrules: []\n",
        upstream.url()
    ))
}

#[test]
fn a_rapid_reset_flood_closes_the_connection() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let get = frames::get("/rapid");
    let is_ended = http2_flood(&diana, &[], |n| {
        let stream = 2 * n + 1;
        let mut bytes = frames::frame(HEADERS, END_HEADERS | END_STREAM, stream, &get);
        bytes.extend(frames::frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
        bytes
    });
    assert!(is_ended, "the connection stays open");
}

#[test]
fn an_endless_head_closes_the_connection() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    let (get, more) = (frames::get("/continued"), frames::block(&[("x-more", &"y".repeat(1000))]));
    let is_ended = http2_flood(&diana, &[], |n| match n {
        0 => frames::frame(HEADERS, END_STREAM, 1, &get),
        _ => frames::frame(CONTINUATION, 0, 1, &more),
    });
    assert!(is_ended, "the connection stays open");
    assert!(upstream.received().iter().all(|seen| seen.target() == "/"));
}

#[test]
fn ping_settings_and_empty_data_floods_use_bounded_memory() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream);
    // The client does not read the replies.
    http2_flood(&diana, &[], |_| frames::frame(PING, 0, 0, b"are you?"));
    http2_flood(&diana, &[], |n| frames::frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, u8::try_from(n % 250).unwrap()]));
    let post = frames::block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/empty")]);
    http2_flood(&diana, &[], |n| match n {
        0 => frames::frame(HEADERS, END_HEADERS, 1, &post),
        _ => frames::frame(DATA, 0, 1, b""),
    });
}

#[test]
fn streams_over_the_limit_do_not_reach_the_upstream() {
    let upstream = Upstream::start(|exchange| {
        let _ = std::io::Read::read(&mut exchange.stream, &mut [0; 16]);
        Ok(crate::support::upstream::AfterResponse::Close)
    });
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', bounds: {{streams: 20}}}}\nrules: []\n",
        upstream.url()
    ));
    let mut client = Frames::connect(diana.port(), &[]);
    let settings = client.next_of(SETTINGS).unwrap();
    let setting = settings.payload.chunks(6).find(|setting| setting[..2] == [0, 3]).unwrap();
    assert_eq!(setting[2..], 20u32.to_be_bytes());
    for n in 0..60 {
        let _ = client.send(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &frames::get("/"));
    }
    // Streams over the limit are refused, or the connection is closed.
    let mut refused = 0;
    while refused < 40 {
        match client.next_of(RST_STREAM) {
            Some(frame) if frame.kind == RST_STREAM => refused += 1,
            _ => break,
        }
    }
    assert!(upstream.count() <= 20, "{}", upstream.count());
}

/// Each reset request is wasted work.
#[test]
fn a_connection_with_too_many_resets_is_closed() {
    const ENHANCE_YOUR_CALM: u32 = 11;
    let upstream = Upstream::start(|exchange| {
        if exchange.request.target() == "/quick" {
            return exchange.respond("200 OK", "", b"");
        }
        while std::io::Read::read(&mut exchange.stream, &mut [0; 16])? > 0 {}
        Ok(crate::support::upstream::AfterResponse::Close)
    });
    let diana = gateway_to(&upstream);
    let mut client = Frames::connect(diana.port(), &[]);
    let mut stream = 1;
    // Sends a request and resets it once it is accepted; returns the GOAWAY if the gateway closes the connection.
    let mut reset = |client: &mut Frames| -> Result<(), Option<frames::Frame>> {
        stream += 2;
        let _ = client.send(HEADERS, END_HEADERS | END_STREAM, stream, &frames::get("/slow"));
        let _ = client.send(PING, 0, 0, b"accepted");
        loop {
            match client.next() {
                None => return Err(None),
                Some(frame) if frame.kind == frames::GOAWAY => return Err(Some(frame)),
                Some(frame) if (frame.kind, frame.flags) == (PING, frames::ACK) => break,
                Some(_) => {}
            }
        }
        let _ = client.send(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        Ok(())
    };
    // Each completed request allows for one more reset.
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/quick")).unwrap();
    assert_eq!(client.next_of(HEADERS).unwrap().kind, HEADERS);
    for n in 0..101 {
        assert!(reset(&mut client).is_ok(), "closed after {n}");
    }
    // The next reset exceeds the limit, which may be detected a little later.
    let goaway = (0..50).find_map(|_| reset(&mut client).err().flatten());
    let goaway = goaway.expect("the connection stays open");
    assert_eq!(goaway.payload[4..8], ENHANCE_YOUR_CALM.to_be_bytes());
    assert_eq!(get(diana.port(), "/quick").status, 200);
}
