//! The other side: a client that keeps its calls under a limit, by waiting.
//!
//! Whoever calls an API that allows 10 requests a second is better off waiting for its turn than being refused there. This is
//! a tower layer for any client: hyper-util's, reqwest's, tonic's channel, or a function.
//!
//! # What always holds (tests/it/outgoing.rs)
//! - No more calls go out than the limit grants; those who wait go in the order in which they came, where the limit is a
//!   [`Limiter`], a [`KeyedLimiter`] or [`ConcurrencyLimiter`].
//! - A call whose turn does not come within the maximum wait fails without having been sent, and the error names the limit.
//! - A call that is dropped while it waits gives its turn to the next that comes; those who wait already keep the time that they
//!   were promised.

mod error;
mod limit;
pub(crate) mod rules;
mod service;
mod waiting;

use crate::filter::Filter;
use diana::core::{ConcurrencyLimiter, KeyedLimiter, Limiter, Store};
pub use error::{ClientRateLimitError, Overloaded};
pub use limit::{ByKey, ClientLimit, ClientLimitError, NoLimit, Turn};
pub use service::{ClientRateLimit, ClientRateLimitFuture};
use std::sync::Arc;
use std::time::Duration;
use tower_layer::Layer;
pub(crate) use waiting::Waiting;

/// How long a call waits for its turn unless it is told otherwise.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Keeps the calls of a client under a limit: each waits for its turn.
///
/// ```
/// use diana::core::{Limiter, Quota};
/// use diana_http::ClientRateLimitLayer;
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
/// assert!(error.to_string().starts_with("limit `partner` has no room within 5s, and nothing was sent: try again in"));
/// # Ok(())
/// # }
/// ```
///
/// the maximum wait is 30 seconds unless you say otherwise. Rules from a file: [`by_rules`](Self::by_rules).
#[derive(Debug)]
pub struct ClientRateLimitLayer<L> {
    limit: Arc<L>,
    name: Arc<str>,
    max_wait: Duration,
}

impl ClientRateLimitLayer<Limiter> {
    /// One limit for all calls, by a name that errors show.
    pub fn new(name: impl Into<Arc<str>>, limiter: impl Into<Arc<Limiter>>) -> Self {
        Self { limit: limiter.into(), name: name.into(), max_wait: MAX_WAIT }
    }
}

impl ClientRateLimitLayer<ConcurrencyLimiter> {
    /// So many calls at a time: each gives its place back when its response is there.
    pub fn at_a_time(name: impl Into<Arc<str>>, permits: ConcurrencyLimiter) -> Self {
        Self { limit: Arc::new(permits), name: name.into(), max_wait: MAX_WAIT }
    }
}

impl<F> ClientRateLimitLayer<ByKey<F>> {
    /// A limit for each key that `key` tells of a call: a host, an account. A call without a key is not limited.
    pub fn keyed(name: impl Into<Arc<str>>, limiter: impl Into<Arc<KeyedLimiter<str>>>, key: F) -> Self {
        Self { limit: Arc::new(ByKey::new(limiter.into(), key)), name: name.into(), max_wait: MAX_WAIT }
    }
}

impl<S: Store + 'static> ClientRateLimitLayer<Filter<S>> {
    /// The rules of an engine, for a client of HTTP: what they say about `path`, `host`, `method` and headers is about the calls
    /// that go out. A call holds what it holds (`concurrent`) until the head of its response is there.
    ///
    /// A rule that has no `wait` is waited for as well, as long as the maximum wait allows; then it is first come, first served
    /// only as far as calls wait for the same time.
    pub fn by_rules(filter: Filter<S>) -> Self {
        Self { limit: Arc::new(filter), name: "rules".into(), max_wait: MAX_WAIT }
    }
}

impl<L> ClientRateLimitLayer<L> {
    /// Any limit, by a name that errors show.
    pub fn with_limit(name: impl Into<Arc<str>>, limit: impl Into<Arc<L>>) -> Self {
        Self { limit: limit.into(), name: name.into(), max_wait: MAX_WAIT }
    }

    /// How long a call waits for its turn; beyond it, it fails, at once if that can be told.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// Waits for the turn of a call.
    pub(crate) fn turn<R>(&self, call: &R) -> Waiting<L::Held>
    where
        L: ClientLimit<R>,
    {
        Waiting::new(Arc::clone(&self.limit).turn(call, self.max_wait), Arc::clone(&self.name), self.max_wait)
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
