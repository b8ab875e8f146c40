//! The client's address behind trusted and untrusted proxies.

use crate::support::client::{Client, ClientResponse};
use crate::support::program::Diana;
use crate::support::upstream::Upstream;

/// One request an hour for each address.
const RULES: &str = "rules: [{name: each-address, by: ip, limit: 1/h, status: 429}]\n";

fn serve(more: &str, upstream: &Upstream) -> Diana {
    Diana::serve(&format!("gateway: {{listen: $LISTEN, upstream: '{}', {more}}}\n{RULES}", upstream.url()))
}

fn from(address: [u8; 4], port: u16, headers: &str) -> ClientResponse {
    let mut client = Client::connect_from(address, port);
    client.send(format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\n")).response()
}

#[test]
fn ignores_forwarding_headers_of_untrusted_peers() {
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
            let response = from([127, 0, 0, 1], diana.port(), &format!("{header}\r\n"));
            assert_eq!(response.status, 429, "{header}");
        }
    }
    assert_eq!(upstream.count(), 1);
    // Another client.
    assert_eq!(from([127, 0, 0, 2], diana.port(), "x-forwarded-for: 127.0.0.1\r\n").status, 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("127.0.0.2"));
}

#[test]
fn uses_the_last_untrusted_hop_of_trusted_proxies() {
    let upstream = Upstream::echo();
    let diana = serve("trusted_proxies: [127.0.0.1, 10.0.0.0/8]", &upstream);
    let status_of = |hops: &str| from([127, 0, 0, 1], diana.port(), &format!("x-forwarded-for: {hops}\r\n")).status;
    assert_eq!(status_of("203.0.113.7"), 200);
    assert_eq!(status_of("203.0.113.7"), 429);
    // Earlier entries were written by the client.
    assert_eq!(status_of("6.6.6.6, 203.0.113.7"), 429);
    assert_eq!(status_of("6.6.6.7, 203.0.113.7, 10.1.2.3"), 429);
    assert_eq!(status_of("203.0.113.7, 203.0.113.8"), 200);
    assert_eq!(status_of("::ffff:203.0.113.8"), 429);
    // Repeated headers are one list.
    let lines = "x-forwarded-for: 6.6.6.8\r\nx-forwarded-for: 203.0.113.7\r\n";
    assert_eq!(from([127, 0, 0, 1], diana.port(), lines).status, 429);
    // The same header from an untrusted peer.
    assert_eq!(from([127, 0, 0, 2], diana.port(), "x-forwarded-for: 203.0.113.99\r\n").status, 200);
    assert_eq!(from([127, 0, 0, 2], diana.port(), "x-forwarded-for: 203.0.113.98\r\n").status, 429);
}

#[test]
fn appends_to_the_hops_of_trusted_proxies() {
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

fn proxied(port: u16, header: &[u8]) -> Option<ClientResponse> {
    let mut client = Client::connect(port);
    client.try_send([header, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"].concat()).ok()?;
    client.try_response()
}

fn version_2(address: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(address);
    header.extend([10, 0, 0, 1, 0x12, 0x67, 0, 80]);
    header
}

#[test]
fn reads_the_client_from_the_proxy_protocol() {
    let upstream = Upstream::echo();
    let diana = serve("trusted_proxies: [127.0.0.1], proxy_protocol: true", &upstream);
    let status = |header: &[u8]| proxied(diana.port(), header).map(|response| response.status);
    assert_eq!(status(b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\n"), Some(200));
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("203.0.113.7"));
    assert_eq!(status(b"PROXY TCP4 203.0.113.7 10.0.0.1 4712 80\r\n"), Some(429));
    assert_eq!(status(&version_2([203, 0, 113, 7])), Some(429));
    assert_eq!(status(&version_2([203, 0, 113, 8])), Some(200));
    assert_eq!(upstream.last().header("forwarded"), Some("for=203.0.113.8;proto=http"));
    assert_eq!(status(b"PROXY TCP6 2001:db8::7 ::1 4711 80\r\n"), Some(200));
    assert_eq!(upstream.last().header("forwarded"), Some("for=\"[2001:db8::7]\";proto=http"));
    // A header that arrives byte by byte.
    let mut client = Client::connect(diana.port());
    for byte in b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 80\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.response().status, 200);
    assert_eq!(upstream.last().header("x-forwarded-for"), Some("203.0.113.9"));
    // Headers of the client behind the load balancer are untrusted.
    let spoofed =
        b"PROXY TCP4 203.0.113.7 10.0.0.1 1 80\r\nGET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 9.9.9.9\r\n\r\n";
    let mut client = Client::connect(diana.port());
    assert_eq!(client.send(spoofed).response().status, 429);
}

#[test]
fn rejects_connections_without_a_valid_proxy_header() {
    let upstream = Upstream::echo();
    let diana = serve("trusted_proxies: [127.0.0.1], proxy_protocol: true", &upstream);
    for header in
        [&b""[..], b"PROXY TCP4 203.0.113.7 10.0.0.1\r\n", b"PROXY\r\n", b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\x0c"]
    {
        assert!(proxied(diana.port(), header).is_none(), "{}", header.escape_ascii());
    }
    // A valid header of an untrusted peer.
    let mut untrusted = Client::connect_from([127, 0, 0, 2], diana.port());
    let _ = untrusted.try_send("PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(untrusted.try_response().is_none());
    assert_eq!(upstream.count(), 0);
}
