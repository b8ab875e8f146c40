//! Client middleware that keeps outgoing calls under a limit, by waiting.
//!
//! For a client of an API with 10 requests per second, waiting is better than being denied by the API. This is a tower
//! layer for any client: hyper-util's, reqwest's, tonic's channel, or a function.
//!
//! # What always holds (tests/it/client_limit.rs)
//! - No more calls are sent than the limit grants; waiting calls are sent in FIFO order if the limit is a [`Limiter`],
//!   a [`KeyedLimiter`] or a [`ConcurrencyLimiter`].
//! - A call that is not granted within the maximum wait fails without having been sent, and the error names the limit.
//! - A call that is dropped while it waits releases its reservation to the next call; calls that already wait keep
//!   their reserved times.

mod error;
mod limit_trait;
pub(crate) mod rules;
mod service;

use diana::{ConcurrencyLimiter, KeyedLimiter, Limiter};
use diana_http::Filter;
pub use error::{ClientRateLimitError, Overloaded};
pub use limit_trait::{ByKey, ClientLimit, ClientLimitError, NoLimit, PermitFuture};
pub(crate) use service::PermitWait;
pub use service::{ClientRateLimit, ClientRateLimitFuture};
use std::sync::Arc;
use std::time::Duration;
use tower_layer::Layer;

/// The default maximum wait of a call.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Keeps the calls of a client under a limit: each waits until it is granted.
///
/// ```
/// use diana::{Limiter, Quota};
/// use diana_client::ClientRateLimitLayer;
/// use std::time::Duration;
/// use tower::{Service, ServiceExt, ServiceBuilder};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let limit = Limiter::new("2/h".parse::<Quota>()?);
/// let layer = ClientRateLimitLayer::new("partner", limit).max_wait(Duration::from_secs(5));
///
/// let call = tower::service_fn(|name: &'static str| async move { Ok::<_, std::io::Error>(format!("hello {name}")) });
/// let mut client = ServiceBuilder::new().layer(layer).service(call);
///
/// assert_eq!(client.ready().await?.call("alice").await?, "hello alice");
/// assert_eq!(client.ready().await?.call("alice").await?, "hello alice");
/// let error = client.ready().await?.call("alice").await.unwrap_err();
/// assert!(error.to_string().starts_with("call not sent: limit `partner` does not grant it within 5s, retry after"));
/// # Ok(())
/// # }
/// ```
///
/// The maximum wait is 30 seconds by default. Rules from a file: [`by_rules`](Self::by_rules).
#[derive(Debug)]
pub struct ClientRateLimitLayer<L> {
    limit: Arc<L>,
    name: Arc<str>,
    max_wait: Duration,
}

impl ClientRateLimitLayer<Limiter> {
    /// Creates one limit for all calls, with a name for errors.
    pub fn new(name: impl Into<Arc<str>>, limiter: impl Into<Arc<Limiter>>) -> Self {
        Self { limit: limiter.into(), name: name.into(), max_wait: MAX_WAIT }
    }
}

impl ClientRateLimitLayer<ConcurrencyLimiter> {
    /// Limits concurrent calls: each releases its permit when its response has arrived.
    pub fn concurrency(name: impl Into<Arc<str>>, limiter: ConcurrencyLimiter) -> Self {
        Self { limit: Arc::new(limiter), name: name.into(), max_wait: MAX_WAIT }
    }
}

impl<F> ClientRateLimitLayer<ByKey<F>> {
    /// Creates a limit for each key that `key` returns: a host, an account. A call without a key is not limited.
    pub fn keyed(name: impl Into<Arc<str>>, limiter: impl Into<Arc<KeyedLimiter<str>>>, key: F) -> Self {
        Self { limit: Arc::new(ByKey::new(limiter.into(), key)), name: name.into(), max_wait: MAX_WAIT }
    }
}

impl ClientRateLimitLayer<Filter> {
    /// Applies the rules of an engine to an HTTP client: `path`, `host`, `method` and headers in rules refer to
    /// outgoing calls. A call holds its concurrency permits (`concurrent`) until its response head has arrived.
    ///
    /// Rules without `wait` are waited for as well, up to the maximum wait; then the order is FIFO only among calls
    /// that wait for the same time.
    pub fn by_rules(filter: Filter) -> Self {
        Self { limit: Arc::new(filter), name: "rules".into(), max_wait: MAX_WAIT }
    }
}

impl<L> ClientRateLimitLayer<L> {
    /// Creates a layer with any limit, and a name for errors.
    pub fn with_limit(name: impl Into<Arc<str>>, limit: impl Into<Arc<L>>) -> Self {
        Self { limit: limit.into(), name: name.into(), max_wait: MAX_WAIT }
    }

    /// Sets how long a call waits; a call that needs longer fails, immediately if that can be predicted.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// Waits until a call is granted.
    pub(crate) fn acquire<R>(&self, request: &R) -> PermitWait<L::Permit>
    where
        L: ClientLimit<R>,
    {
        let permit = Arc::clone(&self.limit).acquire(request, self.max_wait);
        PermitWait::new(permit, Arc::clone(&self.name), self.max_wait)
    }
}

impl<L, C> Layer<C> for ClientRateLimitLayer<L> {
    type Service = ClientRateLimit<L, C>;

    fn layer(&self, inner: C) -> ClientRateLimit<L, C> {
        ClientRateLimit::new(inner, self.clone())
    }
}

impl<L> Clone for ClientRateLimitLayer<L> {
    fn clone(&self) -> Self {
        Self { limit: Arc::clone(&self.limit), name: Arc::clone(&self.name), max_wait: self.max_wait }
    }
}
