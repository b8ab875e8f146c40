//! Diana as middleware: a tower layer for axum, hyper and tonic servers.
//!
//! ```text
//!  request ──▶ RateLimit ──▶ Filter::check ──▶ your service ──▶ RequestPermit::finish ──▶ response
//!                                     └─ denied ───────────────────────────────────▲
//! ```
//!
//! # What always holds (tests/it/layer.rs, tests/it/examples.rs)
//! - A denied request does not reach the inner service.
//! - A request's permits are released when its response body ends, or when the request is cancelled before that.
//! - A gRPC call is denied with a gRPC status: `RESOURCE_EXHAUSTED`, with `RetryInfo`.

mod address;
mod body;
mod future;
mod limited_caller;
mod service;

use crate::load_sampler::LoadSampler;
use crate::options::FilterOptions;
use crate::rate_limit_filter::Filter;
pub use address::ClientAddress;
use address::PeerLookup;
pub use body::RateLimitBody;
use diana::Engine;
use diana::rules::RuleFile;
use diana::rules::upstream_url::Upstream;
pub use future::RateLimitFuture;
use http::request::Parts;
pub use service::RateLimit;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use tower_layer::Layer;

/// Applies the rules of an [`Engine`] to a service.
///
/// ```
/// use diana::rules::{Document, Registry, RuleFile};
/// use diana_http::RateLimitLayer;
/// use http::{Request, Response, StatusCode};
/// use http_body_util::Empty;
/// use tower::{Service, ServiceBuilder, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = "rules: [{name: everyone, limit: 1/h, status: 429}]";
/// let file = RuleFile::read(&Document::new("diana.yaml", rules), &Registry::default())?;
///
/// let hello = tower::service_fn(|_request| async { Ok::<_, std::io::Error>(Response::new(Empty::<&[u8]>::new())) });
/// let mut service = ServiceBuilder::new().layer(RateLimitLayer::new(&file)?).service(hello);
///
/// let request = || Request::new(Empty::<&[u8]>::new());
/// assert_eq!(service.ready().await?.call(request()).await?.status(), StatusCode::OK);
/// assert_eq!(service.ready().await?.call(request()).await?.status(), StatusCode::TOO_MANY_REQUESTS);
/// # Ok(())
/// # }
/// ```
///
/// # Client address
/// Rules with `by: ip` need the client's address, which only the server knows. The layer reads a [`ClientAddress`] from
/// the request's extensions; with the feature `axum`, axum's `ConnectInfo<SocketAddr>` too; or calls [your own
/// function](Self::client_address). Requests without any share one count of each rule with `by: ip`, and the rule logs a
/// warning, once a minute. Forwarding headers are trusted according to `trusted_proxies` in the file's
/// `gateway`.
///
/// With the feature `macros`, the handlers run with a [`Caller`](diana::limited::Caller) that has this address and the
/// attributes of the file's `identity` (`account` is the user), so that limits on functions can count by them. Tokens
/// are verified once more for that.
///
/// # Bodies
/// The inner service gets its request bodies as [`ThrottledBody<B>`](crate::ThrottledBody), so that `bandwidth` of
/// requests can throttle them. axum's and tonic's routers accept any body. For a service that requires one type, add
/// tower's `map_request` between the two: `.map_request(|request: Request<ThrottledBody<_>>| request.map(Body::new))`.
pub struct RateLimitLayer(Arc<LayerState>);

/// The state that all services of a layer share.
pub(crate) struct LayerState {
    filter: Filter,
    peer_lookup: PeerLookup,
    rerouting: Rerouting,
    sampler: Arc<LoadSampler>,
}

/// The handling of requests that a rule reroutes (`over: {reroute: ...}`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rerouting {
    /// Denies them: a server has no other upstream.
    #[default]
    Deny,
    /// Passes them to the inner service, with the target in their extensions.
    Forward,
}

/// A file has a shared store, and a layer was to be created without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the file has `store.redis`, and `RateLimitLayer::new` counts in this process only: use \
     `RateLimitLayer::of(Filter::with_options(engine, FilterOptions::of(&file)))` with an engine on the store that \
     `diana::connect` returns, or with `Engine::new(&file)` to count in this process"
)]
pub struct SharedStoreIgnored;

/// The target of a request that a rule reroutes: an extension of the request. See [`RateLimitLayer::forward_rerouted`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReroutedTo(pub Upstream);

impl RateLimitLayer {
    /// Creates a layer with the rules of a file; all counts are in this process.
    ///
    /// # Errors
    /// The file has a store that processes share, which this layer would ignore: each process would allow the whole limit.
    pub fn new(file: &RuleFile) -> Result<Self, SharedStoreIgnored> {
        if file.store.redis.is_some() {
            return Err(SharedStoreIgnored);
        }
        Ok(Self::of(Filter::with_options(Engine::new(file), FilterOptions::of(file))))
    }

    /// Creates a layer with the rules of an engine, which may have a shared store and may be reloaded.
    pub fn with_engine(engine: Engine) -> Self {
        Self::of(Filter::new(engine))
    }

    /// Creates a layer from a filter.
    pub fn of(filter: Filter) -> Self {
        let sampler = Arc::new(LoadSampler::new(filter.engine()));
        Self(Arc::new(LayerState {
            filter,
            peer_lookup: PeerLookup::default(),
            rerouting: Rerouting::default(),
            sampler,
        }))
    }

    /// Sets the function that returns the address of the peer. Where it returns `None`, the address in the extensions of the
    /// request is used, so that leaving out a header is no way around a limit.
    ///
    /// With tonic:
    ///
    /// ```
    /// use diana_http::RateLimitLayer;
    /// use tonic::transport::server::TcpConnectInfo;
    ///
    /// # let file = diana::rules::RuleFile::default();
    /// let layer = RateLimitLayer::new(&file)?
    ///     .client_address(|head| Some(head.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()));
    /// # let _ = layer;
    /// # Ok::<(), diana_http::SharedStoreIgnored>(())
    /// ```
    #[must_use]
    pub fn client_address(self, find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.map_state(|state| LayerState { peer_lookup: PeerLookup::by(find), ..state })
    }

    /// Forwards rerouted requests to the inner service, with a [`ReroutedTo`] in their extensions; by default they are
    /// denied.
    #[must_use]
    pub fn forward_rerouted(self) -> Self {
        self.map_state(|state| LayerState { rerouting: Rerouting::Forward, ..state })
    }

    /// Returns the filter.
    pub fn filter(&self) -> &Filter {
        &self.0.filter
    }

    /// Returns the thread that samples the machine's load, if a rule needs it. After changing the engine's rules, call
    /// its [`follow`](LoadSampler::update).
    pub fn load_sampler(&self) -> &LoadSampler {
        &self.0.sampler
    }

    fn map_state(self, change: impl FnOnce(LayerState) -> LayerState) -> Self {
        Self(Arc::new(change((*self.0).clone())))
    }
}

impl<C> Layer<C> for RateLimitLayer {
    type Service = RateLimit<C>;

    fn layer(&self, inner: C) -> RateLimit<C> {
        RateLimit::new(inner, Arc::clone(&self.0))
    }
}

impl Clone for RateLimitLayer {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Clone for LayerState {
    fn clone(&self) -> Self {
        let Self { filter, peer_lookup, rerouting, sampler } = self;
        let (filter, peer_lookup) = (filter.clone(), peer_lookup.clone());
        Self { filter, peer_lookup, rerouting: *rerouting, sampler: Arc::clone(sampler) }
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("filter", &self.0.filter)
            .field("rerouting", &self.0.rerouting)
            .finish_non_exhaustive()
    }
}
