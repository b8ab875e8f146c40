//! A client's connection: the properties that are known before its first request and apply to all its requests, its
//! timeouts, and the file descriptors that connections may use.

mod coarse_timer;
pub(crate) mod descriptors;
mod timeouts;

pub(crate) use coarse_timer::{Deadline, Deadlines, StartTime};
pub(crate) use timeouts::ConnTimeouts;

use crate::worker::{ConnGuard, WorkerState};
use diana_http::is_trusted_proxy;
use http::uri::Scheme;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// A client's connection, with the state that its requests share.
pub(crate) struct Connection {
    pub(crate) worker: Arc<WorkerState>,
    pub(crate) conn_info: ConnInfo,
    pub(crate) timeouts: Arc<ConnTimeouts>,
    /// Counts the connection as open while any owner exists, including an upgraded connection.
    pub(crate) _guard: ConnGuard,
}

/// The HTTP version of a connection, of a client or to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// The properties of a client's connection.
#[derive(Debug)]
pub(crate) struct ConnInfo {
    /// The remote address: that of the client, or of a proxy in front of the gateway.
    pub(crate) peer: IpAddr,
    /// Whether forwarding headers from the peer are trusted.
    pub(crate) trust: PeerTrust,
    scheme: Scheme,
    /// Built when the first request is forwarded: under attack, most connections have none.
    forwarded: OnceLock<Box<ForwardedHeaders>>,
}

/// The forwarding headers that describe the peer to upstreams.
#[derive(Debug)]
pub(crate) struct ForwardedHeaders {
    /// The peer's address, for `X-Forwarded-For`.
    pub(crate) forwarded_for: String,
    /// `for=...;proto=...`, for `Forwarded`.
    pub(crate) forwarded: String,
    /// For `X-Forwarded-Proto`.
    pub(crate) proto: String,
    /// These three as HTTP/1 header lines, which almost every request of an untrusted client needs.
    pub(crate) lines: String,
}

/// Whether the peer's forwarding headers are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerTrust {
    Trusted,
    Untrusted,
}

impl ConnInfo {
    pub(crate) fn new(peer: SocketAddr, trusted: &[IpNet], scheme: Scheme) -> Self {
        let peer = peer.ip().to_canonical();
        let trust = if is_trusted_proxy(peer, trusted) { PeerTrust::Trusted } else { PeerTrust::Untrusted };
        Self { peer, trust, scheme, forwarded: OnceLock::new() }
    }

    /// Returns the forwarding headers that describe the peer to upstreams.
    pub(crate) fn forwarded(&self) -> &ForwardedHeaders {
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
