//! Diana as middleware: a tower layer for axum, hyper and tonic servers.
//!
//! ```text
//!  request ──▶ RateLimit ──▶ Filter::check ──▶ your service ──▶ RequestPermit::answer ──▶ response
//!                                     └─ refused ──────────────────────────────────▲
//! ```
//!
//! # What always holds (tests/it/layer.rs, tests/it/examples.rs)
//! - A denied request does not reach the inner service.
//! - A request's permits are released when its response body ends, or when the request is cancelled before that.
//! - A gRPC call is denied with a gRPC status: `RESOURCE_EXHAUSTED`, with `RetryInfo`.

mod address;
mod body;
mod caller;
mod future;
mod malformed;
mod service;

use crate::filter::Filter;
use crate::options::FilterOptions;
use crate::overload::LoadSampler;
pub use address::ClientAddress;
use address::Finds;
pub use body::RateLimitBody;
use diana::Engine;
use diana::rules::Upstream;
use diana::store::{MemoryStore, Store};
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
/// let mut service = ServiceBuilder::new().layer(RateLimitLayer::new(&file)).service(hello);
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
/// function](Self::client_address). Forwarding headers are trusted according to `trusted_proxies` in the file's
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
pub struct RateLimitLayer<S: Store + 'static = MemoryStore>(Arc<LayerState<S>>);

/// The state that all services of a layer share.
pub(crate) struct LayerState<S: Store + 'static> {
    filter: Filter<S>,
    finds: Finds,
    diverting: Rerouting,
    sampler: Arc<LoadSampler<S>>,
}

/// What happens to requests that a rule reroutes (`over: {divert: ...}`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rerouting {
    /// They are denied: a server has no other upstream.
    #[default]
    Refuse,
    /// They reach the inner service, with the target in their extensions.
    Pass,
}

/// The target of a request that a rule reroutes: an extension of the request. See [`RateLimitLayer::pass_diverted`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReroutedTo(pub Upstream);

impl RateLimitLayer {
    /// Creates a layer with the rules of a file; all counts are in this process.
    pub fn new(file: &diana::rules::RuleFile) -> Self {
        let filter = Filter::with_options(Arc::new(Engine::new(file)), FilterOptions::of(file));
        Self::of(filter)
    }
}

impl<S: Store + 'static> RateLimitLayer<S> {
    /// Creates a layer with the rules of an engine, which may have a shared store and may be reloaded.
    pub fn with_engine(engine: Arc<Engine<S>>) -> Self {
        Self::of(Filter::new(engine))
    }

    /// Creates a layer from a filter.
    pub fn of(filter: Filter<S>) -> Self {
        let sampler = Arc::new(LoadSampler::new(filter.engine()));
        Self(Arc::new(LayerState { filter, finds: Finds::default(), diverting: Rerouting::default(), sampler }))
    }

    /// Sets the function that returns the address of the peer.
    ///
    /// With tonic:
    ///
    /// ```
    /// use diana_http::RateLimitLayer;
    /// use tonic::transport::server::TcpConnectInfo;
    ///
    /// # let file = diana::rules::RuleFile::default();
    /// let layer = RateLimitLayer::new(&file)
    ///     .client_address(|head| Some(head.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()));
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn client_address(self, find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.changed(|set| LayerState { finds: Finds::by(find), ..set })
    }

    /// Passes rerouted requests to the inner service, with a [`ReroutedTo`] in their extensions; by default they are
    /// denied.
    #[must_use]
    pub fn pass_diverted(self) -> Self {
        self.changed(|set| LayerState { diverting: Rerouting::Pass, ..set })
    }

    /// Returns the filter.
    pub fn filter(&self) -> &Filter<S> {
        &self.0.filter
    }

    /// Returns the thread that samples the machine's load, if a rule needs it. After changing the engine's rules, call
    /// its [`follow`](LoadSampler::follow).
    pub fn load_sampler(&self) -> &LoadSampler<S> {
        &self.0.sampler
    }

    fn changed(self, change: impl FnOnce(LayerState<S>) -> LayerState<S>) -> Self {
        Self(Arc::new(change((*self.0).clone())))
    }
}

impl<S: Store + 'static, C> Layer<C> for RateLimitLayer<S> {
    type Service = RateLimit<C, S>;

    fn layer(&self, inner: C) -> RateLimit<C, S> {
        RateLimit::new(inner, Arc::clone(&self.0))
    }
}

impl<S: Store + 'static> Clone for RateLimitLayer<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Store + 'static> Clone for LayerState<S> {
    fn clone(&self) -> Self {
        let Self { filter, finds, diverting, sampler } = self;
        Self { filter: filter.clone(), finds: finds.clone(), diverting: *diverting, sampler: Arc::clone(sampler) }
    }
}

impl<S: Store + 'static> fmt::Debug for RateLimitLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("filter", &self.0.filter)
            .field("diverting", &self.0.diverting)
            .finish_non_exhaustive()
    }
}
