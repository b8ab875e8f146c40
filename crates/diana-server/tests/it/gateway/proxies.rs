//! The client's address behind trusted and untrusted proxies.

use crate::support::client::{Answer, Client};
use crate::support::program::Diana;
use crate::support::upstream::Upstream;

/// One request an hour for each address.
const RULES: &str = "rules: [{name: each-address, by: ip, limit: 1/h, status: 429}]\n";

fn serve(more: &str, upstream: &Upstream) -> Diana {
    Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}', {more}}}\n{RULES}", upstream.url()))
}

fn from(address: [u8; 4], port: u16, headers: &str) -> Answer {
    let mut client = Client::connect_from(address, port);
    client.send(format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\n")).answer()
}

#[test]
fn what_an_untrusted_peer_says_about_itself_changes_nothing() {
    let upstream = Upstream::echo();
    let diana = serve("trusted_proxies: [10.0.0.0/8]", &upstream);
    assert_eq!(from([127, 0, 0, 1], diana.port(), "").status, 200);
    for n in 0..20 {
        for header in [
            "x-forwarded-for: 198.51.100.N",
            "forwarded: for=198.51.100.N",
            "x-real-ip: 198.51.100.N",
            "x-forwarded-for: 10.0.0.N",
        ] {
            let header = header.replace('N', &n.to_string());
            let answer = from([127, 0, 0, 1], diana.port(), &format!("{header}\r\n"));
            assert_eq!(answer.status, 429, "{header}");
        }
    }
    assert_eq!(upstream.count(), 1);
    // Somebody else is somebody else.
    assert_eq!(from([127, 0, 0, 2], diana.port(), "x-forwarded-for: 127.0.0.1\r\n").status, 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("127.0.0.2"));
}

#[test]
fn a_trusted_proxys_word_counts_and_only_the_last_untrusted_hop() {
    let upstream = Upstream::echo();
    let diana = serve("trusted_proxies: [127.0.0.1, 10.0.0.0/8]", &upstream);
    let asks = |hops: &str| from([127, 0, 0, 1], diana.port(), &format!("x-forwarded-for: {hops}\r\n")).status;
    assert_eq!(asks("203.0.113.7"), 200);
    assert_eq!(asks("203.0.113.7"), 429);
    // What stands before it was written by the client itself.
    assert_eq!(asks("6.6.6.6, 203.0.113.7"), 429);
    assert_eq!(asks("6.6.6.7, 203.0.113.7, 10.1.2.3"), 429);
    assert_eq!(asks("203.0.113.7, 203.0.113.8"), 200);
    assert_eq!(asks("::ffff:203.0.113.8"), 429);
    // Lines are one list.
    let lines = "x-forwarded-for: 6.6.6.8\r\nx-forwarded-for: 203.0.113.7\r\n";
    assert_eq!(from([127, 0, 0, 1], diana.port(), lines).status, 429);
    // The same word of somebody who is not trusted.
    assert_eq!(from([127, 0, 0, 2], diana.port(), "x-forwarded-for: 203.0.113.99\r\n").status, 200);
    assert_eq!(from([127, 0, 0, 2], diana.port(), "x-forwarded-for: 203.0.113.98\r\n").status, 429);
}

#[test]
fn a_trusted_proxys_hops_go_on_with_one_more() {
    let upstream = Upstream::echo();
    let diana = serve("trusted_proxies: [127.0.0.1]", &upstream);
    let headers = "x-forwarded-for: 6.6.6.6\r\nx-forwarded-for: 203.0.113.7\r\nforwarded: for=203.0.113.7;proto=https\r\n\
                   x-forwarded-proto: https\r\nx-forwarded-host: shop.example.com\r\n";
    assert_eq!(from([127, 0, 0, 1], diana.port(), headers).status, 200);
    let seen = upstream.last();
    assert_eq!(seen.header("x-forwarded-for"), Some("6.6.6.6, 203.0.113.7, 127.0.0.1"));
    assert_eq!(seen.count("x-forwarded-for"), 1);
    assert_eq!(seen.header("forwarded"), Some("for=203.0.113.7;proto=https, for=127.0.0.1;proto=http"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.header("x-forwarded-host"), Some("shop.example.com"));
}

fn proxied(port: u16, header: &[u8]) -> Option<Answer> {
    let mut client = Client::connect(port);
    client.try_send([header, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"].concat()).ok()?;
    client.try_answer()
}

fn version_2(address: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(address);
    header.extend([10, 0, 0, 1, 0x12, 0x67, 0, 80]);
    header
}

#[test]
fn the_proxy_protocol_tells_who_asks() {
    let upstream = Upstream::echo();
    let diana = serve("trusted_proxies: [127.0.0.1], proxy_protocol: true", &upstream);
    let status = |header: &[u8]| proxied(diana.port(), header).map(|answer| answer.status);
    assert_eq!(status(b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\n"), Some(200));
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("203.0.113.7"));
    assert_eq!(status(b"PROXY TCP4 203.0.113.7 10.0.0.1 4712 80\r\n"), Some(429));
    assert_eq!(status(&version_2([203, 0, 113, 7])), Some(429));
    assert_eq!(status(&version_2([203, 0, 113, 8])), Some(200));
    assert_eq!(upstream.last().header("forwarded"), Some("for=203.0.113.8;proto=http"));
    assert_eq!(status(b"PROXY TCP6 2001:db8::7 ::1 4711 80\r\n"), Some(200));
    assert_eq!(upstream.last().header("forwarded"), Some("for=\"[2001:db8::7]\";proto=http"));
    // A header that comes byte by byte is the same.
    let mut client = Client::connect(diana.port());
    for byte in b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 80\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.answer().status, 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("203.0.113.9"));
    // What the client behind the balancer says about itself is the client's word.
    let spoofed =
        b"PROXY TCP4 203.0.113.7 10.0.0.1 1 80\r\nGET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 9.9.9.9\r\n\r\n";
    let mut client = Client::connect(diana.port());
    assert_eq!(client.send(spoofed).answer().status, 429);
}

#[test]
fn who_does_not_speak_the_proxy_protocol_is_not_heard() {
    let upstream = Upstream::echo();
    let diana = serve("trusted_proxies: [127.0.0.1], proxy_protocol: true", &upstream);
    for header in
        [&b""[..], b"PROXY TCP4 203.0.113.7 10.0.0.1\r\n", b"PROXY\r\n", b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\x0c"]
    {
        assert!(proxied(diana.port(), header).is_none(), "{}", header.escape_ascii());
    }
    // Nor a stranger who does.
    let mut stranger = Client::connect_from([127, 0, 0, 2], diana.port());
    let _ = stranger.try_send("PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(stranger.try_answer().is_none());
    assert_eq!(upstream.count(), 0);
}
