//! Diana before the handlers of a server: a tower layer for axum, hyper and tonic.
//!
//! ```text
//!  request ──▶ DianaService ──▶ Filter::check ──▶ your service ──▶ Pass::answer ──▶ response
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
use crate::load::LoadSampler;
use crate::options::FilterOptions;
pub use address::ClientAddress;
use address::Finds;
pub use body::DianaBody;
use diana::Engine;
use diana::core::{MemoryStore, Store};
use diana::rules::Upstream;
pub use future::DianaFuture;
use http::request::Parts;
pub use service::DianaService;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use tower_layer::Layer;

/// Puts the rules of an [`Engine`] before a service.
///
/// ```
/// use diana::rules::{Document, Registry, RuleFile};
/// use diana_http::DianaLayer;
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
/// let mut service = ServiceBuilder::new().layer(DianaLayer::new(&file)).service(hello);
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
/// The inner service gets its request bodies as [`Slowed<B>`](crate::Slowed), so that `bandwidth` of requests can hold them
/// back. axum's and tonic's routers take any body. A service that insists on one type gets it by tower's `map_request`
/// between the two: `.map_request(|request: Request<Slowed<_>>| request.map(Body::new))`.
pub struct DianaLayer<S: Store + 'static = MemoryStore>(Arc<Set<S>>);

/// What the services of a layer have in common.
pub(crate) struct Set<S: Store + 'static> {
    filter: Filter<S>,
    finds: Finds,
    diverting: Diverting,
    sampler: Arc<LoadSampler<S>>,
}

/// What becomes of requests that a rule sends elsewhere (`over: {divert: ...}`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Diverting {
    /// They are refused: a server has no other upstream.
    #[default]
    Refuse,
    /// They reach the inner service, and are told where they should go.
    Pass,
}

/// Where a request should go that a rule sends elsewhere: an extension of the request. See [`DianaLayer::pass_diverted`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DivertedTo(pub Upstream);

impl DianaLayer {
    /// The rules of a file, with counts in this process alone.
    pub fn new(file: &diana::rules::RuleFile) -> Self {
        let filter = Filter::with_options(Arc::new(Engine::new(file)), FilterOptions::of(file));
        Self::of(filter)
    }
}

impl<S: Store + 'static> DianaLayer<S> {
    /// The rules of an engine, which may share its counts, and whose rules may change.
    pub fn with_engine(engine: Arc<Engine<S>>) -> Self {
        Self::of(Filter::new(engine))
    }

    /// A filter as a layer.
    pub fn of(filter: Filter<S>) -> Self {
        let sampler = Arc::new(LoadSampler::new(filter.engine()));
        Self(Arc::new(Set { filter, finds: Finds::default(), diverting: Diverting::default(), sampler }))
    }

    /// The same layer, which finds out in this way who is connected.
    ///
    /// With tonic:
    ///
    /// ```
    /// use diana_http::DianaLayer;
    /// use tonic::transport::server::TcpConnectInfo;
    ///
    /// # let file = diana::rules::RuleFile::default();
    /// let layer = DianaLayer::new(&file)
    ///     .client_address(|head| Some(head.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()));
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn client_address(self, find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.changed(|set| Set { finds: Finds::by(find), ..set })
    }

    /// The same layer, which lets requests reach the inner service that a rule sends elsewhere. They have a [`DivertedTo`]
    /// among their extensions; without this they are refused.
    #[must_use]
    pub fn pass_diverted(self) -> Self {
        self.changed(|set| Set { diverting: Diverting::Pass, ..set })
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

    fn changed(self, change: impl FnOnce(Set<S>) -> Set<S>) -> Self {
        Self(Arc::new(change((*self.0).clone())))
    }
}

impl<S: Store + 'static, C> Layer<C> for DianaLayer<S> {
    type Service = DianaService<C, S>;

    fn layer(&self, inner: C) -> DianaService<C, S> {
        DianaService::new(inner, Arc::clone(&self.0))
    }
}

impl<S: Store + 'static> Clone for DianaLayer<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Store + 'static> Clone for Set<S> {
    fn clone(&self) -> Self {
        let Self { filter, finds, diverting, sampler } = self;
        Self { filter: filter.clone(), finds: finds.clone(), diverting: *diverting, sampler: Arc::clone(sampler) }
    }
}

impl<S: Store + 'static> fmt::Debug for DianaLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DianaLayer")
            .field("filter", &self.0.filter)
            .field("diverting", &self.0.diverting)
            .finish_non_exhaustive()
    }
}
