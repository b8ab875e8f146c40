//! A client that heeds what the other side says: who is told to come again later does, and so do the calls behind it.
//!
//! `Retry-After` of a 429 or 503, and `RateLimit` that says that nothing is left, hold back all calls to that host until then.
//! That is better for both sides than being refused again and again; many services shut out who goes on regardless.
//!
//! # What always holds (tests/it/heeding.rs)
//! - After an answer that says when to come again, no call goes out to that host before; others are not held back.
//! - A call that would have to wait longer than its maximum wait fails at once, unsent.
//! - With a limit, no more calls go out than it grants, not even when a pause is over.
//! - No answer holds calls back for longer than the layer allows, and no more than [`MOST`] hosts are remembered.

mod parse;
mod pauses;
mod service;
mod waiting;

use crate::client_ext::RequestHost;
use crate::client_limit::{ClientLimit, ClientRateLimitLayer, NoLimit};
use pauses::Pauses;
pub use service::{RetryAfter, RetryAfterFuture};
use std::sync::Arc;
use std::time::Duration;
use tower_layer::Layer;
use waiting::Waiting;

/// How many hosts are remembered.
const MOST: usize = 1_024;
/// How long a call waits unless it is told otherwise, and how long an answer can hold calls back.
const MAX_WAIT: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Makes a client of HTTP heed `Retry-After` and `RateLimit`: calls to a host that asked for a pause wait until it is over.
///
/// The call that was refused is not made again: whether that does no harm, only its caller knows. To keep under a limit of one's
/// own as well: [`limit`](Self::limit).
///
/// ```
/// use diana_http::RetryAfterLayer;
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
/// let call = || Request::get("https://api.example.com/things").body(()).unwrap();
/// assert_eq!(client.ready().await?.call(call()).await?.status(), 429);
/// let error = client.ready().await?.call(call()).await.unwrap_err();
/// assert!(error.to_string().starts_with("limit `api.example.com` has no room within 5s, and nothing was sent: try again in"));
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
    /// One with 30 seconds of maximum wait, which no answer holds back for more than an hour. Clones, and all clients that it is put
    /// before, know of the same pauses.
    pub fn new() -> Self {
        Self { pauses: Arc::new(Pauses::new(LONGEST)), max_wait: MAX_WAIT, limit: None }
    }
}

impl<L> RetryAfterLayer<L> {
    /// Keeps calls under a limit of one's own as well: each waits for the pause to end, and then for its turn. It is one layer for
    /// both, since a call whose turn comes during a pause must stand in line again. Next to each other, two layers would let those
    /// go out together when the pause is over, or, the other way round, let them go out during it.
    ///
    /// ```
    /// use diana::core::{Limiter, Quota};
    /// use diana_http::{RetryAfterLayer, ClientRateLimitLayer};
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

    /// How long a call waits for pauses to end; beyond it, it fails at once, unsent. A limit has a maximum wait of its own.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// How long one answer can hold calls back, whatever it says. For setting up: what was said before is forgotten.
    #[must_use]
    pub fn longest(self, longest: Duration) -> Self {
        Self { pauses: Arc::new(Pauses::new(longest)), ..self }
    }

    /// Waits until a call's host wants it, and its turn is.
    pub(crate) fn wait<R: RequestHost>(&self, call: &R) -> Waiting<R, L>
    where
        L: ClientLimit<R>,
    {
        Waiting::new(call, self.clone())
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
