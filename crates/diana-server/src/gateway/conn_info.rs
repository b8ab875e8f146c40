//! What is known about a client's connection before its first request, and is the same for all of them.

use http::uri::Scheme;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

/// What is known about a client's connection.
#[derive(Debug)]
pub(super) struct ConnInfo {
    /// Who is at the other end: the client, or a proxy before it.
    pub(super) peer: IpAddr,
    /// Whether the other end's word about the client is believed.
    pub(super) trust: PeerTrust,
    scheme: Scheme,
    /// Written when the first request goes on: under attack most connections have none that does.
    forwarded: OnceLock<Box<ForwardedHeaders>>,
}

/// What upstreams are told about the other end.
#[derive(Debug)]
pub(super) struct ForwardedHeaders {
    /// The peer's address, for `X-Forwarded-For`.
    pub(super) forwarded_for: String,
    /// `for=...;proto=...`, for `Forwarded`.
    pub(super) forwarded: String,
    /// For `X-Forwarded-Proto`.
    pub(super) proto: String,
    /// These three as HTTP/1 writes them, which is what almost every request of an untrusted client needs.
    pub(super) lines: String,
}

/// Whether somebody's word about the client is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerTrust {
    Trusted,
    Nobody,
}

impl ConnInfo {
    pub(super) fn new(peer: SocketAddr, trusted: &[IpNet], scheme: Scheme) -> Self {
        let peer = peer.ip().to_canonical();
        let trust = if is_trusted(peer, trusted) { PeerTrust::Trusted } else { PeerTrust::Nobody };
        Self { peer, trust, scheme, forwarded: OnceLock::new() }
    }

    /// What upstreams are told about the other end.
    pub(super) fn forwarded(&self) -> &ForwardedHeaders {
        self.forwarded.get_or_init(|| Box::new(ForwardedHeaders::new(self.peer, &self.scheme)))
    }
}

impl ForwardedHeaders {
    fn new(peer: IpAddr, scheme: &Scheme) -> Self {
        let forwarded = match peer {
            IpAddr::V4(ip) => format!("for={ip};proto={scheme}"),
            IpAddr::V6(ip) => format!("for=\"[{ip}]\";proto={scheme}"),
        };
        let lines = format!("x-forwarded-for: {peer}\r\nforwarded: {forwarded}\r\nx-forwarded-proto: {scheme}\r\n");
        Self { forwarded_for: peer.to_string(), forwarded, proto: scheme.to_string(), lines }
    }
}

/// Whether an address is one of a trusted proxy.
pub(super) fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    let address = address.to_canonical();
    trusted.iter().any(|network| network.contains(&address))
}
