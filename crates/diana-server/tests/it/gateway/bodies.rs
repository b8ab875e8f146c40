//! Bodies are streamed in both directions: nothing waits for the end, and nothing is buffered.

use crate::support::client::{Client, ask};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{Then, Upstream};
use diana_testing::wait_until;
use parking_lot::Mutex;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc;

fn before(upstream: &Upstream) -> Diana {
    with(upstream, "")
}

fn with(upstream: &Upstream, more: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', workers: 1{more}}}\nrules: []\n",
        upstream.url()
    ))
}

#[test]
fn a_request_body_flows_while_it_is_sent() {
    let (pieces, came) = mpsc::channel();
    let upstream = Upstream::start(move |talk| {
        while let Some(piece) = talk.piece()? {
            pieces.send(piece).unwrap();
        }
        talk.answer("200 OK", "", b"")
    });
    let diana = before(&upstream);
    let mut client = Client::connect(diana.port());
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    for _ in 0..5 {
        // The next is not sent before the last has arrived: whoever collects them never gets on.
        client.send("5\r\nhello\r\n");
        assert_eq!(came.recv_timeout(LONG).unwrap(), b"hello");
    }
    assert_eq!(client.send("0\r\n\r\n").answer().status, 200);
}

#[test]
fn an_answers_body_flows_while_it_is_made() {
    let (go, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |talk| {
        talk.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        while let Ok(()) = wait.lock().recv_timeout(LONG) {
            talk.send("5\r\nhello\r\n")?;
        }
        talk.send("0\r\n\r\n")?;
        Ok(Then::Close)
    });
    let diana = before(&upstream);
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    for _ in 0..5 {
        go.send(()).unwrap();
        assert_eq!(client.chunk().unwrap(), b"hello");
    }
    drop(go);
    assert_eq!(client.chunk().unwrap(), b"");
}

#[test]
fn trailers_pass_both_ways() {
    let upstream = Upstream::start(|talk| {
        talk.body()?;
        talk.send(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 42\r\n\r\n",
        )?;
        Ok(Then::KeepAlive)
    });
    let diana = before(&upstream);
    let request = "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntrailer: x-digest\r\ntransfer-encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n0\r\nx-digest: 900150983cd24fb0\r\n\r\n";
    let answer = ask(diana.port(), request).unwrap();
    assert_eq!(answer.text(), "hi");
    assert_eq!(answer.trailer("x-sum"), Some("42"));
    let seen = upstream.last();
    assert_eq!(seen.body, b"abc");
    assert_eq!(crate::support::client::find(&seen.trailers, "x-digest"), Some("900150983cd24fb0"));
}

#[test]
fn who_expects_to_be_told_to_go_on_is_told_when_the_body_is_wanted() {
    let upstream = Upstream::echo();
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: one, limit: 1/h, status: 429}}]\n",
        upstream.url()
    ));
    let request = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
    let mut client = Client::connect(diana.port());
    assert_eq!(client.send(request).answer().status, 100);
    let answer = client.send("hello").answer();
    assert_eq!(answer.status, 200);
    assert!(answer.text().ends_with("\r\n\r\nhello"));
    assert_eq!(upstream.last().header("expect"), None);
    // Who is refused hears that at once, and need not send the body.
    let mut client = Client::connect(diana.port());
    assert_eq!(client.send(request).answer().status, 429);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn a_connection_becomes_what_both_sides_agree_on() {
    let upstream = Upstream::start(|talk| {
        assert_eq!(talk.seen.header("upgrade"), Some("websocket"));
        assert_eq!(talk.seen.header("connection"), Some("upgrade"));
        talk.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\nfirst")?;
        let mut buffer = [0; 1024];
        loop {
            let length = talk.stream.read(&mut buffer)?;
            if length == 0 {
                return Ok(Then::Close);
            }
            talk.stream.write_all(&buffer[..length])?;
        }
    });
    let diana = before(&upstream);
    let mut client = Client::connect(diana.port());
    client.send("GET /chat HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n");
    let answer = client.head().unwrap();
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("websocket")));
    assert_eq!(answer.header("sec-websocket-accept"), Some("x"));
    assert_eq!(client.exactly(5).unwrap(), b"first");
    for n in 0..100 {
        let message = format!("message {n} \0\r\n\r\n");
        client.send(&message);
        assert_eq!(client.exactly(message.len()).unwrap(), message.as_bytes());
    }
    // What was never HTTP does not become requests.
    assert_eq!(upstream.count(), 1);
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"");
}

#[test]
fn what_an_upgrade_holds_is_held_until_it_ends() {
    let upstream = Upstream::start(|talk| {
        talk.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")?;
        let _ = talk.stream.read(&mut [0; 16]);
        Ok(Then::Close)
    });
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', bounds: {{connections: 5}}}}\nrules: [{{name: tunnels, concurrent: 1, status: 429}}]\n",
        upstream.url()
    ));
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    let mut first = Client::connect(diana.port());
    assert_eq!(first.send(request).head().unwrap().status, 101);
    assert_eq!(ask(diana.port(), request).unwrap().status, 429);
    // It is an open connection all the time.
    wait_until("one connection", LONG, || (diana.metric("diana_connections") == 1.0).then_some(())).unwrap();
    drop(first);
    let again = || (Client::connect(diana.port()).send(request).head().unwrap().status == 101).then_some(());
    wait_until("the place to be given back", LONG, again).unwrap();
}

/// The rate bounds how much passes an upgraded connection, so the speed of the machine does not matter.
#[test]
fn an_upgrade_is_as_slow_as_the_rules_say() {
    let upstream = Upstream::start(|talk| {
        talk.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")?;
        std::io::copy(&mut talk.stream.try_clone()?, &mut talk.stream)?;
        Ok(Then::Close)
    });
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}'}}\nrules: [{{name: slow, by: ip, bandwidth: {{rate: 1KiB/h, burst: 4KiB, of: response}}}}]\n",
        upstream.url()
    ));
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 101);
    client.send("x".repeat(16 << 10));
    // All that may go at once does; the rest would take half a day.
    assert_eq!(client.exactly(4 << 10).unwrap(), vec![b'x'; 4 << 10]);
    client.stream().set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    let mut more = [0; 64];
    assert!(client.stream().read(&mut more).is_err(), "more than the rate came");
}

#[test]
fn an_answer_that_refuses_to_change_is_an_answer() {
    let upstream = Upstream::echo();
    let diana = before(&upstream);
    let mut client = Client::connect(diana.port());
    client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    // Nobody changes to HTTP/2 like this, and the upstream is not asked to.
    client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    let seen = upstream.last();
    assert_eq!((seen.header("upgrade"), seen.header("connection"), seen.header("http2-settings")), (None, None, None));
}

#[test]
fn large_bodies_pass_both_ways_in_little_memory() {
    const SIZE: usize = 100 << 20;
    let upstream = Upstream::start(|talk| {
        let mut come = 0;
        while let Some(piece) = talk.piece()? {
            assert!(piece.iter().all(|byte| *byte == b'u'));
            come += piece.len();
        }
        assert_eq!(come, SIZE);
        talk.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n"))?;
        for _ in 0..SIZE >> 20 {
            talk.send(vec![b'd'; 1 << 20])?;
        }
        Ok(Then::KeepAlive)
    });
    let diana = before(&upstream);
    let before = diana.memory();
    let mut client = Client::connect(diana.port());
    let most = Arc::new(Mutex::new(0));
    client.send(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {SIZE}\r\n\r\n"));
    for _ in 0..SIZE >> 20 {
        client.send(vec![b'u'; 1 << 20]);
        let mut most = most.lock();
        *most = diana.memory().max(*most);
    }
    assert_eq!(client.head().unwrap().status, 200);
    for _ in 0..SIZE >> 20 {
        assert!(client.exactly(1 << 20).unwrap().iter().all(|byte| *byte == b'd'));
        let mut most = most.lock();
        *most = diana.memory().max(*most);
    }
    let grown = most.lock().saturating_sub(before);
    assert!(grown < 20 << 20, "it took {} KiB more", grown >> 10);
}

#[test]
fn an_upload_takes_its_time_without_being_late() {
    let upstream = Upstream::echo();
    let diana = with(&upstream, ", timeouts: {response: 500ms, body: 20s}");
    let mut client = Client::connect(diana.port());
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 20\r\n\r\n");
    // The upstream's time begins when it has all it was sent, not before: two seconds are four times its time.
    for byte in 0..20u8 {
        let mut tick = 0;
        let _ = wait_until("a moment", std::time::Duration::from_millis(100), || {
            tick += 1;
            None::<()>
        });
        client.send([b'a' + byte]);
    }
    let answer = client.answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().ends_with("\r\n\r\nabcdefghijklmnopqrst"));
}

#[test]
fn an_answer_before_the_end_of_the_request_ends_it() {
    let upstream = Upstream::start(|talk| {
        if talk.seen.target() == "/early" {
            talk.answer("413 Content Too Large", "connection: close\r\n", b"too much")?;
            // It has said what it had to say, and does not read the rest.
            return Ok(Then::Close);
        }
        talk.body()?;
        talk.answer("200 OK", "", b"")
    });
    let diana = before(&upstream);
    let mut client = Client::connect(diana.port());
    client.send("POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\nsome");
    let answer = client.answer();
    assert_eq!((answer.status, answer.text().as_str()), (413, "too much"));
    // The client goes, or goes on sending: nothing of it is a request, and others are served.
    let _ = client.try_send(vec![b'x'; 4 << 20]);
    let mut other = Client::connect(diana.port());
    for n in 0..5 {
        assert_eq!(other.get("/").status, 200, "{n}");
    }
    assert!(upstream.seen().iter().all(|seen| seen.target() == "/early" || seen.target() == "/"));
}

#[test]
fn a_body_beyond_the_bound_is_cut_off() {
    let upstream = Upstream::echo();
    let diana = with(&upstream, ", bounds: {body: 1000B}");
    let mut client = Client::connect(diana.port());
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1001\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    assert_eq!(upstream.count(), 0);
    // Without a length it is seen when it has come so far.
    let mut client = Client::connect(diana.port());
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    for _ in 0..11 {
        client.send(format!("64\r\n{}\r\n", "x".repeat(100)));
    }
    assert_eq!(client.answer().status, 413);
    assert_eq!(client.rest(), b"");
    let whole = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{}", "x".repeat(1000));
    assert_eq!(ask(diana.port(), &whole).unwrap().status, 200);
}

#[test]
fn an_answer_that_breaks_off_breaks_off_for_the_client_too() {
    let upstream = Upstream::start(|talk| {
        if talk.seen.target() == "/length" {
            talk.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")?;
        } else {
            talk.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n")?;
        }
        Ok(Then::Close)
    });
    let diana = before(&upstream);
    for path in ["/length", "/chunked"] {
        let mut client = Client::connect(diana.port());
        client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
        // If it all comes at once, not even the head goes on.
        if let Some(answer) = client.head() {
            assert_eq!(answer.status, 200);
        }
        let rest = client.rest();
        // Neither the end of chunks nor the right length: the client can tell.
        assert!(!rest.ends_with(b"0\r\n\r\n") && rest.len() < 100, "{}", rest.escape_ascii());
    }
}
