//! The client's address, behind trusted and untrusted proxies.

use diana_http::client_address;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use proptest::prelude::*;
use std::net::IpAddr;

fn trusted() -> Vec<IpNet> {
    ["10.0.0.0/8", "2001:db8:1::/48"].map(|network| network.parse().unwrap()).to_vec()
}

fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
    let line = |(name, value): &(&'static str, &[u8])| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
    };
    lines.iter().map(line).collect::<Vec<_>>().into_iter().fold(HeaderMap::new(), |mut headers, (name, value)| {
        headers.append(name, value);
        headers
    })
}

fn client(peer: &str, lines: &[(&'static str, &[u8])]) -> String {
    client_address(&headers(lines), peer.parse().unwrap(), &trusted()).to_string()
}

#[test]
fn the_client_is_the_first_untrusted_address() {
    for (peer, forwarded, expected) in [
        // Headers of an untrusted peer are ignored.
        ("203.0.113.9", "1.1.1.1", "203.0.113.9"),
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "1.1.1.1, 203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "1.1.1.1, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("10.0.0.1", "203.0.113.7,10.0.0.3 ,\t10.0.0.2", "203.0.113.7"),
        ("2001:db8:1::1", "2001:db8:2::7, 2001:db8:1::2", "2001:db8:2::7"),
        // All are trusted: the leftmost one.
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        // With port and brackets.
        ("10.0.0.1", "203.0.113.7:51234", "203.0.113.7"),
        ("10.0.0.1", "[2001:db8:2::7]:443", "2001:db8:2::7"),
        ("10.0.0.1", "[2001:db8:2::7]", "2001:db8:2::7"),
        // IPv4-mapped.
        ("::ffff:10.0.0.1", "::ffff:203.0.113.7, ::ffff:10.0.0.2", "203.0.113.7"),
        ("::ffff:203.0.113.9", "1.1.1.1", "203.0.113.9"),
        // An invalid address ends the search.
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.7, unknown, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "203.0.113.7, , 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "fe80::1%eth0", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.7.evil.example", "10.0.0.1"),
    ] {
        assert_eq!(client(peer, &[("x-forwarded-for", forwarded.as_bytes())]), expected, "{forwarded}");
    }
}

#[test]
fn repeated_headers_are_one_list() {
    let lines = [("x-forwarded-for", &b"1.1.1.1, 203.0.113.7"[..]), ("x-forwarded-for", b"10.0.0.2")];
    assert_eq!(client("10.0.0.1", &lines), "203.0.113.7");
    let lines = [("x-forwarded-for", &b"203.0.113.7"[..]), ("x-forwarded-for", b"\xff, 10.0.0.2")];
    assert_eq!(client("10.0.0.1", &lines), "10.0.0.1", "a header that is not text is ignored");
}

#[test]
fn reads_forwarded_without_x_forwarded_for() {
    for (forwarded, expected) in [
        ("for=203.0.113.7", "203.0.113.7"),
        ("For=\"[2001:db8:2::7]:4711\";proto=https", "2001:db8:2::7"),
        ("for=1.1.1.1, for=203.0.113.7;by=10.0.0.2, proto=http; for=\"10.0.0.2:80\"", "203.0.113.7"),
        ("for=203.0.113.7, for=_hidden", "10.0.0.1"),
        ("proto=https", "10.0.0.1"),
        ("for=unknown", "10.0.0.1"),
    ] {
        assert_eq!(client("10.0.0.1", &[("forwarded", forwarded.as_bytes())]), expected, "{forwarded}");
    }
    let both = [("forwarded", &b"for=1.1.1.1"[..]), ("x-forwarded-for", b"203.0.113.7")];
    assert_eq!(client("10.0.0.1", &both), "203.0.113.7");
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u16; 8]>().prop_map(IpAddr::from)]
}

/// Values that a client may send: addresses, trusted ones too, and anything else.
fn claim() -> impl Strategy<Value = String> {
    let good = prop_oneof![address().prop_map(|address| address.to_string()), Just("10.0.0.9".to_owned())];
    let one = prop_oneof![3 => good, 1 => "[ -~]{0,20}"];
    prop::collection::vec(one, 1..4).prop_map(|hops| hops.join(", "))
}

proptest! {
    /// Whatever a client sends, the proxy appends the address that it sees, and that is the result.
    #[test]
    fn a_client_cannot_choose_its_address(claimed in claim(), client in address(), hops in 0_u8..4) {
        prop_assume!(!trusted().iter().any(|network| network.contains(&client.to_canonical())));
        let chain = (0..hops).fold(format!("{claimed}, {client}"), |chain, hop| format!("{chain}, 10.1.1.{hop}"));
        let headers = headers(&[("x-forwarded-for", chain.as_bytes())]);
        prop_assert_eq!(client_address(&headers, [10, 0, 0, 1].into(), &trusted()), client.to_canonical());
    }

    #[test]
    fn headers_of_untrusted_peers_are_ignored(value in any::<Vec<u8>>(), peer in address()) {
        prop_assume!(!trusted().iter().any(|network| network.contains(&peer.to_canonical())));
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let headers = HeaderMap::from_iter([(HeaderName::from_static("x-forwarded-for"), value)]);
            prop_assert_eq!(client_address(&headers, peer, &trusted()), peer.to_canonical());
        }
    }
}
