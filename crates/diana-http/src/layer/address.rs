//! The address of the peer.

use http::request::Parts;
use std::net::IpAddr;
use std::sync::Arc;

/// The address of the peer: an extension of requests that the server adds, for rules with `by: ip`.
///
/// If the peer is a trusted proxy, the client's address is taken from its forwarding headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

/// Returns the address of the peer.
type Find = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

/// Finds the address of the peer: by a function, else in the request's extensions.
#[derive(Clone, Default)]
pub(super) struct PeerLookup(Option<Arc<Find>>);

impl PeerLookup {
    pub(super) fn by(find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(find)))
    }

    pub(super) fn peer(&self, head: &Parts) -> Option<IpAddr> {
        let address = self.0.as_ref().and_then(|find| find(head));
        let from_extension = || head.extensions.get::<ClientAddress>().map(|client| client.0);
        address.or_else(from_extension).or_else(|| connect_info(head))
    }
}

#[cfg(feature = "axum")]
fn connect_info(head: &Parts) -> Option<IpAddr> {
    head.extensions.get::<axum::extract::ConnectInfo<std::net::SocketAddr>>().map(|info| info.0.ip())
}

#[cfg(not(feature = "axum"))]
fn connect_info(_head: &Parts) -> Option<IpAddr> {
    None
}
