//! Diana before the handlers of a server: a tower layer for axum, hyper and tonic.
//!
//! ```text
//!  request ──▶ RateLimit ──▶ Filter::check ──▶ your service ──▶ RequestPermit::answer ──▶ response
//!                                     └─ refused ──────────────────────────────────▲
//! ```
//!
//! # What always holds (tests/it/layer.rs, tests/it/examples.rs)
//! - A refused request does not reach the inner service.
//! - What a request holds comes back when the body of its response ends, and when anybody gives up before that.
//! - A call by gRPC is refused in the words of gRPC: `RESOURCE_EXHAUSTED`, with `RetryInfo`.

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
use diana::core::{MemoryStore, Store};
use diana::rules::Upstream;
pub use future::RateLimitFuture;
use http::request::Parts;
pub use service::RateLimit;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use tower_layer::Layer;

/// Puts the rules of an [`Engine`] before a service.
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
/// # Who asks
/// Rules `by: ip` need the client's address, which only the server knows. The layer looks for a [`ClientAddress`] among the
/// request's extensions; with the feature `axum`, for axum's `ConnectInfo<SocketAddr>` too; or asks
/// [your own function](Self::client_address). What trusted proxies say is believed as `trusted_proxies` of the file's
/// `gateway` says.
///
/// With the feature `macros`, the handlers run as a [`Caller`](diana::limited::Caller) who has that address and what the file's
/// `identity` knows (`account` is the user), so that limits on functions can count by it. What tokens claim is verified once
/// more for that.
///
/// # Bodies
/// The inner service gets its request bodies as [`ThrottledBody<B>`](crate::Slowed), so that `bandwidth` of requests can hold them
/// back. axum's and tonic's routers take any body. A service that insists on one type gets it by tower's `map_request`
/// between the two: `.map_request(|request: Request<ThrottledBody<_>>| request.map(Body::new))`.
pub struct RateLimitLayer<S: Store + 'static = MemoryStore>(Arc<LayerState<S>>);

/// What the services of a layer have in common.
pub(crate) struct LayerState<S: Store + 'static> {
    filter: Filter<S>,
    finds: Finds,
    diverting: Rerouting,
    sampler: Arc<LoadSampler<S>>,
}

/// What becomes of requests that a rule sends elsewhere (`over: {divert: ...}`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rerouting {
    /// They are refused: a server has no other upstream.
    #[default]
    Refuse,
    /// They reach the inner service, and are told where they should go.
    RequestPermit,
}

/// Where a request should go that a rule sends elsewhere: an extension of the request. See [`RateLimitLayer::pass_diverted`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReroutedTo(pub Upstream);

impl RateLimitLayer {
    /// The rules of a file, with counts in this process alone.
    pub fn new(file: &diana::rules::RuleFile) -> Self {
        let filter = Filter::with_options(Arc::new(Engine::new(file)), FilterOptions::of(file));
        Self::of(filter)
    }
}

impl<S: Store + 'static> RateLimitLayer<S> {
    /// The rules of an engine, which may share its counts, and whose rules may change.
    pub fn with_engine(engine: Arc<Engine<S>>) -> Self {
        Self::of(Filter::new(engine))
    }

    /// A filter as a layer.
    pub fn of(filter: Filter<S>) -> Self {
        let sampler = Arc::new(LoadSampler::new(filter.engine()));
        Self(Arc::new(LayerState { filter, finds: Finds::default(), diverting: Rerouting::default(), sampler }))
    }

    /// The same layer, which finds out in this way who is connected.
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

    /// The same layer, which lets requests reach the inner service that a rule sends elsewhere. They have a [`ReroutedTo`]
    /// among their extensions; without this they are refused.
    #[must_use]
    pub fn pass_diverted(self) -> Self {
        self.changed(|set| LayerState { diverting: Rerouting::RequestPermit, ..set })
    }

    /// The filter that decides.
    pub fn filter(&self) -> &Filter<S> {
        &self.0.filter
    }

    /// The thread that looks how busy the machine is, if a rule asks for it. Whoever changes the rules of the engine tells it
    /// by [`follow`](LoadSampler::follow).
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
