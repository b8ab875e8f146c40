//! The client's address behind proxies.
//!
//! Clients can forge `X-Forwarded-For`. So only the entries that trusted proxies added are used: starting at the peer
//! of the connection, they are read from right to left as long as the addresses are trusted. The first untrusted
//! address is the client.
//!
//! ```text
//! X-Forwarded-For: 1.1.1.1, 203.0.113.7, 10.0.0.2      peer: 10.0.0.1      trusted: 10.0.0.0/8
//!                  └ sent by  └ added by   └ added by
//!                    the client 10.0.0.2     10.0.0.1    => the client is 203.0.113.7
//! ```
//!
//! # What always holds (tests/it/client_ip.rs)
//! - Whatever a client sends, its address is not left of the one that the last trusted proxy saw.
//! - An invalid address ends the search at the last valid one.
//! - An IPv4-mapped IPv6 address is the IPv4 address.

use http::header::{FORWARDED, HeaderName};
use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns the client's address, given the peer of the connection and the trusted proxies.
///
/// `Forwarded` is only read if there is no `X-Forwarded-For`: a trusted proxy that sets the former has to remove the
/// latter; one that sets the latter need not do anything.
pub fn client_address(headers: &HeaderMap, peer: IpAddr, trusted: &[IpNet]) -> IpAddr {
    let peer = peer.to_canonical();
    if !is_trusted_proxy(peer, trusted) {
        return peer;
    }
    if headers.contains_key(X_FORWARDED_FOR) {
        walk(peer, trusted, hops(headers, &X_FORWARDED_FOR).map(address))
    } else {
        walk(peer, trusted, hops(headers, &FORWARDED).map(|hop| address(forwarded_for(hop)?)))
    }
}

/// Returns the client's address as a proxy in front reports it in `X-Forwarded-For`: the last one that is not a trusted
/// proxy. `None` if the header is missing or invalid.
///
/// Only for requests that come from proxies: a client could forge its address.
pub fn forwarded_client(headers: &HeaderMap, trusted: &[IpNet]) -> Option<IpAddr> {
    let name = X_FORWARDED_FOR;
    let mut hops = hops(headers, &name).map(address);
    let last = hops.next()??;
    Some(if is_trusted_proxy(last, trusted) { walk(last, trusted, hops) } else { last })
}

/// Returns `true` if the address is that of a trusted proxy.
pub fn is_trusted_proxy(address: IpAddr, trusted: &[IpNet]) -> bool {
    let address = address.to_canonical();
    trusted.iter().any(|network| network.contains(&address))
}

/// Returns the first untrusted address; the last valid one if all are trusted.
fn walk(peer: IpAddr, trusted: &[IpNet], hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
    let mut last = peer;
    for hop in hops {
        let Some(hop) = hop else { break };
        last = hop;
        if !is_trusted_proxy(hop, trusted) {
            break;
        }
    }
    last
}

/// Returns the entries of the proxies, the nearest one first.
fn hops<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().rev().map(HeaderValue::to_str);
    // A line that is not valid text counts as one invalid entry.
    lines.flat_map(|line| line.unwrap_or("?").rsplit(',').map(str::trim))
}

/// Parses an address as proxies write it: with optional brackets and port.
fn address(hop: &str) -> Option<IpAddr> {
    let bare = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(hop);
    let address = bare.parse().or_else(|_| hop.parse::<SocketAddr>().map(|address| address.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

/// Returns the value of `for=` in an entry of `Forwarded`.
fn forwarded_for(hop: &str) -> Option<&str> {
    let pairs = hop.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    let value = value.trim();
    Some(value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value))
}
