//! A client's connection: the properties that apply to all its requests, and its timeouts.

mod guard;
mod timeouts;

pub(crate) use guard::{Admission, ConnGuard, ConnLimit};
pub(crate) use timeouts::{ConnTimeouts, SHUTDOWN_GRACE};

use crate::worker_state::WorkerState;
use diana_http::{RequestScheme, is_trusted_proxy};
use http::uri::Scheme;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// A client's connection, with the state that its requests share.
#[derive(Debug)]
pub struct Connection {
    /// The worker that serves it.
    pub worker: Arc<WorkerState>,
    /// The connection's properties.
    pub info: ConnInfo,
    pub(crate) timeouts: ConnTimeouts,
    /// Counts the connection as open while any owner exists, including an upgraded connection.
    pub(crate) guard: ConnGuard,
}

/// The HTTP version of a connection, of a client or to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The properties of a client's connection.
#[derive(Debug)]
pub struct ConnInfo {
    /// The remote address: that of the client, or of a proxy in front of the gateway.
    pub peer: IpAddr,
    /// Whether forwarding headers from the peer are trusted.
    pub trust: PeerTrust,
    scheme: Scheme,
    /// The scheme of its requests for rules.
    pub request_scheme: RequestScheme,
    /// Built when the first request is forwarded: under attack, most connections have none.
    forwarded: OnceLock<Box<ForwardedHeaders>>,
}

/// The forwarding headers that describe the peer to upstreams.
#[derive(Debug)]
pub struct ForwardedHeaders {
    /// The peer's address, for `X-Forwarded-For`.
    pub forwarded_for: String,
    /// `for=...;proto=...`, for `Forwarded`.
    pub forwarded: String,
    /// The scheme, for `X-Forwarded-Proto`.
    pub proto: String,
    /// The three fields as HTTP/1 header lines, which almost every request of an untrusted client needs.
    pub lines: String,
}

/// Whether the peer's forwarding headers are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerTrust {
    /// The peer is one of the trusted proxies.
    Trusted,
    /// The peer is a client.
    Untrusted,
}

impl ConnInfo {
    /// Creates the properties of a connection of this peer.
    pub fn new(peer: SocketAddr, trusted: &[IpNet], scheme: Scheme) -> Self {
        let peer = peer.ip().to_canonical();
        let trust = if is_trusted_proxy(peer, trusted) { PeerTrust::Trusted } else { PeerTrust::Untrusted };
        let transport = RequestScheme::of(scheme.as_str());
        let request_scheme = if trust == PeerTrust::Trusted { transport.or_forwarded() } else { transport };
        Self { peer, trust, scheme, request_scheme, forwarded: OnceLock::new() }
    }

    /// Returns the forwarding headers that describe the peer to upstreams.
    pub fn forwarded(&self) -> &ForwardedHeaders {
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
