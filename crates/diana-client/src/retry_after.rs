//! Client middleware that respects `Retry-After`: a host's request for a pause delays all calls to it.
//!
//! `Retry-After` of a 429 or 503, and a `RateLimit` with no permits left, delay all calls to that host until then. That
//! is better for both sides than repeated denials; many services ban clients that ignore it.
//!
//! # What always holds (tests/it/retry_after.rs)
//! - After a response with a retry time, no call is sent to that host before; other hosts are not affected.
//! - A call that would have to wait longer than its maximum wait fails immediately, unsent.
//! - With a limit, no more calls are sent than it grants, not even at the end of a pause.
//! - No response delays calls for longer than the layer allows, and at most [`MAX_HOSTS`] hosts are stored.

mod parse;
mod pause_wait;
mod pauses;
mod service;

use crate::client_limit::{ClientLimit, ClientRateLimitLayer, NoLimit};
use crate::client_messages::RequestHost;
use pause_wait::PauseWait;
use pauses::Pauses;
pub use service::{RetryAfter, RetryAfterFuture};
use std::sync::Arc;
use std::time::Duration;
use tower_layer::Layer;

/// The maximum number of stored hosts.
const MAX_HOSTS: usize = 1_024;
/// The default maximum wait of a call, and the longest delay by a response.
const MAX_WAIT: Duration = Duration::from_secs(30);
const MAX_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Makes an HTTP client respect `Retry-After` and `RateLimit`: calls to a host that asked for a pause wait until it is
/// over.
///
/// The denied call is not retried: only its caller knows whether that is safe. To add a limit of your own:
/// [`limit`](Self::limit).
///
/// ```
/// use diana_client::RetryAfterLayer;
/// use http::{Request, Response};
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Service, ServiceBuilder, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let partner = tower::service_fn(|_: Request<()>| async {
///     Ok::<_, Infallible>(Response::builder().status(429).header("retry-after", "120").body(()).unwrap())
/// });
/// let layer = RetryAfterLayer::new().max_wait(Duration::from_secs(5));
/// let mut client = ServiceBuilder::new().layer(layer).service(partner);
///
/// let request = || Request::get("https://api.example.com/things").body(()).unwrap();
/// assert_eq!(client.ready().await?.call(request()).await?.status(), 429);
/// let error = client.ready().await?.call(request()).await.unwrap_err();
/// assert!(error.to_string().starts_with("call not sent: limit `api.example.com` does not grant it within 5s, retry after"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RetryAfterLayer<L = NoLimit> {
    pauses: Arc<Pauses>,
    max_wait: Duration,
    limit: Option<ClientRateLimitLayer<L>>,
}

impl Default for RetryAfterLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl RetryAfterLayer {
    /// Creates a layer with a maximum wait of 30 seconds, in which no response delays calls for more than an hour.
    /// Clones, and all clients of the layer, share their pauses.
    pub fn new() -> Self {
        Self { pauses: Arc::new(Pauses::new(MAX_PAUSE)), max_wait: MAX_WAIT, limit: None }
    }
}

impl<L> RetryAfterLayer<L> {
    /// Adds a limit: each call waits for the end of the pause, and then for its permit. One layer handles both, since a
    /// call that is granted during a pause must be queued again. Two separate layers would send those calls together at
    /// the end of the pause or, in the other order, during it.
    ///
    /// ```
    /// use diana::{Limiter, Quota};
    /// use diana_client::{RetryAfterLayer, ClientRateLimitLayer};
    ///
    /// let limit = ClientRateLimitLayer::new("partner", Limiter::new("10/s".parse::<Quota>()?));
    /// let layer = RetryAfterLayer::new().limit(limit);
    /// # drop(layer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn limit<N>(self, limit: ClientRateLimitLayer<N>) -> RetryAfterLayer<N> {
        RetryAfterLayer { pauses: self.pauses, max_wait: self.max_wait, limit: Some(limit) }
    }

    /// Sets how long a call waits for pauses; a longer pause fails it immediately, unsent. A limit has its own maximum
    /// wait.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// Sets how long one response can delay calls at most. For configuration only: stored pauses are discarded.
    #[must_use]
    pub fn max_pause(self, max_pause: Duration) -> Self {
        Self { pauses: Arc::new(Pauses::new(max_pause)), ..self }
    }

    /// Waits until the pause of the call's host is over and the limit grants the call.
    pub(crate) fn wait<R: RequestHost>(&self, request: &R) -> PauseWait<R, L>
    where
        L: ClientLimit<R>,
    {
        PauseWait::new(request, self.clone())
    }
}

impl<L, C> Layer<C> for RetryAfterLayer<L> {
    type Service = RetryAfter<C, L>;

    fn layer(&self, inner: C) -> RetryAfter<C, L> {
        RetryAfter::new(inner, self.clone())
    }
}

impl<L> Clone for RetryAfterLayer<L> {
    fn clone(&self) -> Self {
        Self { pauses: Arc::clone(&self.pauses), max_wait: self.max_wait, limit: self.limit.clone() }
    }
}
