//! What is known about a client's connection before its first request, and is the same for all of them.

use http::HeaderValue;
use http::uri::Scheme;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// What is known about a client's connection.
#[derive(Debug)]
pub(super) struct Facts {
    /// Who is at the other end: the client, or a proxy before it.
    pub(super) peer: IpAddr,
    /// Whether the other end's word about the client is believed.
    pub(super) trust: Trust,
    /// The peer's address, for `X-Forwarded-For`.
    pub(super) forwarded_for: HeaderValue,
    /// `for=...;proto=...`, for `Forwarded`.
    pub(super) forwarded: HeaderValue,
    /// For `X-Forwarded-Proto`.
    pub(super) proto: HeaderValue,
    /// These three as HTTP/1 writes them, which is what almost every request of an untrusted client needs.
    pub(super) lines: Box<str>,
}

/// Whether somebody's word about the client is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    Trusted,
    Nobody,
}

impl Facts {
    pub(super) fn new(peer: SocketAddr, trusted: &[IpNet], scheme: Scheme) -> Self {
        let peer = peer.ip().to_canonical();
        let trust = if is_trusted(peer, trusted) { Trust::Trusted } else { Trust::Nobody };
        let node = match peer {
            IpAddr::V4(ip) => format!("for={ip};proto={scheme}"),
            IpAddr::V6(ip) => format!("for=\"[{ip}]\";proto={scheme}"),
        };
        let lines = format!("x-forwarded-for: {peer}\r\nforwarded: {node}\r\nx-forwarded-proto: {scheme}\r\n");
        let value = |text: &str| HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        Self {
            peer,
            trust,
            forwarded_for: value(&peer.to_string()),
            forwarded: value(&node),
            proto: value(scheme.as_str()),
            lines: lines.into(),
        }
    }
}

/// Whether an address is one of a trusted proxy.
pub(super) fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    let address = address.to_canonical();
    trusted.iter().any(|network| network.contains(&address))
}
