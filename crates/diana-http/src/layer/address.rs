//! Who is connected.

use http::request::Parts;
use std::net::IpAddr;
use std::sync::Arc;

/// Who is connected: an extension of requests that whoever accepts connections adds, for rules `by: ip`.
///
/// It is the address of the peer. If that is a proxy which the file trusts, the client's own is taken from what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

/// How it is found out who is connected.
type Find = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

/// How it is found out who is connected: by a function, or by what servers add to requests.
#[derive(Clone, Default)]
pub(super) struct Finds(Option<Arc<Find>>);

impl Finds {
    pub(super) fn by(find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(find)))
    }

    pub(super) fn peer(&self, head: &Parts) -> Option<IpAddr> {
        match &self.0 {
            Some(find) => find(head),
            None => head.extensions.get::<ClientAddress>().map(|client| client.0).or_else(|| connected(head)),
        }
    }
}

#[cfg(feature = "axum")]
fn connected(head: &Parts) -> Option<IpAddr> {
    head.extensions.get::<axum::extract::ConnectInfo<std::net::SocketAddr>>().map(|info| info.0.ip())
}

#[cfg(not(feature = "axum"))]
fn connected(_head: &Parts) -> Option<IpAddr> {
    None
}
