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
fn a_flood_of_accounts_stays_under_its_ceiling() {
    const ACCOUNTS: usize = 200_000;
    let diana = Diana::serve(
        "
gateway: {listen: $LISTEN, workers: 2}
identity: {account: header(x-account)}
store: {memory: 1MiB}
rules: [{name: each-account, by: account, limit: 2/h, status: 429}]
",
    );
    // One that is limited is not forgiven, whatever comes after it.
    let limited = "x-account: limited\r\n";
    let first: Vec<u16> = (0..3).map(|_| get_with(diana.port(), "/", limited).status).collect();
    assert_eq!(first, [204, 204, 429]);
    let ask = |thread: usize| {
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
            let status = client.answer().status;
            assert!(matches!(status, 204 | 429), "{status}");
            answered += 1;
        }
        sending.join().unwrap();
        answered
    };
    // Workers have warmed up, and what they took for that is not the accounts'.
    ask(9);
    let before = diana.memory();
    let answered: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || ask(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(answered, ACCOUNTS / 4 * 3);
    let grown = diana.memory().saturating_sub(before);
    assert!(grown < 8 << 20, "it took {} KiB more", grown >> 10);
    assert_eq!(get_with(diana.port(), "/", limited).status, 429);
}

#[test]
fn beyond_its_connections_it_takes_no_more_until_some_are_gone() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', bounds: {{connections: 10}}}}\nrules: []\n",
        upstream.url()
    ));
    let mut kept: Vec<Client> = (0..10).map(|_| Client::connect(diana.port())).collect();
    for client in &mut kept {
        assert_eq!(client.get("/").status, 200);
    }
    for _ in 0..5 {
        let mut beyond = Client::connect(diana.port());
        let _ = beyond.try_send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert!(beyond.try_answer().is_none());
    }
    // Those who were there first are served still.
    for client in &mut kept {
        assert_eq!(client.get("/").status, 200);
    }
    kept.truncate(5);
    let served = || {
        let mut client = Client::connect(diana.port());
        client.try_send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").ok()?;
        client.try_answer().filter(|answer| answer.status == 200)
    };
    wait_until("a place to be free", LONG, served).unwrap();
}

#[test]
fn many_idle_connections_hurt_nobody() {
    let diana = Diana::serve("gateway: {listen: $LISTEN, timeouts: {header: 300s, idle: 300s}}\nrules: []\n");
    let before = diana.memory();
    let mut idle: Vec<Client> = (0..400).map(|_| Client::connect(diana.port())).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").status, 204);
    }
    assert_eq!(get(diana.port(), "/").status, 204);
    let each = diana.memory().saturating_sub(before) / 400;
    assert!(each < 32 << 10, "each takes {each} bytes");
    // And they are no strangers when they come back.
    for client in &mut idle {
        assert_eq!(client.get("/").status, 204);
    }
}

#[test]
fn clients_that_only_half_close_are_let_go() {
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
    let gone = || (diana.metric("diana_connections") == 0.0).then_some(());
    wait_until("all to be gone", LONG, gone).unwrap();
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
    assert!(grown < 24 << 20, "it took {} KiB more", grown >> 10);
    is_ended
}

fn before(upstream: &Upstream) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', bounds: {{streams: 50}}, timeouts: {{body: 2s, header: 2s}}}}\nrules: []\n",
        upstream.url()
    ))
}

#[test]
fn requests_that_are_taken_back_at_once_are_no_way_to_work_for_nothing() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    let get = frames::get("/rapid");
    let is_ended = http2_flood(&diana, &[], |n| {
        let stream = 2 * n + 1;
        let mut bytes = frames::frame(HEADERS, END_HEADERS | END_STREAM, stream, &get);
        bytes.extend(frames::frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
        bytes
    });
    assert!(is_ended, "a connection that resets 20,000 requests is kept");
}

#[test]
fn a_head_that_goes_on_for_ever_ends_the_connection() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    let (get, more) = (frames::get("/continued"), frames::block(&[("x-more", &"y".repeat(1000))]));
    let is_ended = http2_flood(&diana, &[], |n| match n {
        0 => frames::frame(HEADERS, END_STREAM, 1, &get),
        _ => frames::frame(CONTINUATION, 0, 1, &more),
    });
    assert!(is_ended, "a head of 20 MB is kept");
    assert!(upstream.seen().iter().all(|seen| seen.target() == "/"));
}

#[test]
fn frames_that_say_nothing_are_no_way_to_take_memory() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    // Nobody reads the answers to these.
    http2_flood(&diana, &[], |_| frames::frame(PING, 0, 0, b"are you?"));
    http2_flood(&diana, &[], |n| frames::frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, u8::try_from(n % 250).unwrap()]));
    let post = frames::block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/empty")]);
    http2_flood(&diana, &[], |n| match n {
        0 => frames::frame(HEADERS, END_HEADERS, 1, &post),
        _ => frames::frame(DATA, 0, 1, b""),
    });
}

#[test]
fn more_streams_than_allowed_do_not_reach_the_upstream() {
    let upstream = Upstream::start(|talk| {
        let _ = std::io::Read::read(&mut talk.stream, &mut [0; 16]);
        Ok(crate::support::upstream::Then::Close)
    });
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', bounds: {{streams: 20}}}}\nrules: []\n",
        upstream.url()
    ));
    let mut client = Frames::connect(diana.port(), &[]);
    let settings = client.next_of(SETTINGS).unwrap();
    let told = settings.payload.chunks(6).find(|setting| setting[..2] == [0, 3]).unwrap();
    assert_eq!(told[2..], 20u32.to_be_bytes());
    for n in 0..60 {
        let _ = client.send(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &frames::get("/"));
    }
    // Those beyond are refused one by one, or the connection is ended.
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
fn a_connection_that_resets_more_than_it_lets_end_is_ended() {
    const ENHANCE_YOUR_CALM: u32 = 11;
    let upstream = Upstream::start(|talk| {
        if talk.seen.target() == "/quick" {
            return talk.answer("200 OK", "", b"");
        }
        while std::io::Read::read(&mut talk.stream, &mut [0; 16])? > 0 {}
        Ok(crate::support::upstream::Then::Close)
    });
    let diana = before(&upstream);
    let mut client = Frames::connect(diana.port(), &[]);
    let mut stream = 1;
    // One more request that is reset, once it has been accepted; what the gateway says if it has had enough.
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
    // One that is answered allows for one more that is not.
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/quick")).unwrap();
    assert_eq!(client.next_of(HEADERS).unwrap().kind, HEADERS);
    for n in 0..101 {
        assert!(reset(&mut client).is_ok(), "it was ended after {n}");
    }
    // The next is one too many. It may be noticed a little later.
    let went = (0..50).find_map(|_| reset(&mut client).err().flatten());
    let went = went.expect("a connection that resets everything is kept");
    assert_eq!(went.payload[4..8], ENHANCE_YOUR_CALM.to_be_bytes());
    assert_eq!(get(diana.port(), "/quick").status, 200);
}
