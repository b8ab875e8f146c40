//! A client that heeds what the other side says: who is told to come again later does, and so do the calls behind it.
//!
//! `Retry-After` of a 429 or 503, and `RateLimit` that says that nothing is left, hold back all calls to that host until then.
//! That is better for both sides than being refused again and again; many services shut out who goes on regardless.
//!
//! # What always holds (tests/heeding.rs)
//! - After an answer that says when to come again, no call goes out to that host before; others are not held back.
//! - A call that would have to wait longer than its patience fails at once, unsent.
//! - No answer holds calls back for longer than the layer allows, and no more than [`MOST`] hosts are remembered.

mod pauses;
mod said;
mod service;
mod waiting;

use crate::call::HttpCall;
use pauses::Pauses;
pub use service::{Heeding, HeedingFuture};
use std::sync::Arc;
use std::time::Duration;
use tower_layer::Layer;
use waiting::Waiting;

/// How many hosts are remembered.
const MOST: usize = 1_024;
/// How long a call waits unless it is told otherwise, and how long an answer can hold calls back.
const PATIENCE: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Makes a client of HTTP heed `Retry-After` and `RateLimit`: calls to a host that asked for a pause wait until it is over.
///
/// The call that was refused is not made again: whether that does no harm, only its caller knows. To keep under a limit of one's
/// own as well, put an [`OutgoingLayer`](crate::OutgoingLayer) before it.
///
/// ```
/// use diana_http::HeedLayer;
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
/// let layer = HeedLayer::new().patience(Duration::from_secs(5));
/// let mut client = ServiceBuilder::new().layer(layer).service(partner);
///
/// let call = || Request::get("https://api.example.com/things").body(()).unwrap();
/// assert_eq!(client.ready().await?.call(call()).await?.status(), 429);
/// let error = client.ready().await?.call(call()).await.unwrap_err();
/// assert!(error.to_string().starts_with("limit `api.example.com` has no room within 5s, and nothing was sent: try again in"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HeedLayer {
    pauses: Arc<Pauses>,
    patience: Duration,
}

impl Default for HeedLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl HeedLayer {
    /// One with 30 seconds of patience, which no answer holds back for more than an hour. Clones, and all clients that it is put
    /// before, know of the same pauses.
    pub fn new() -> Self {
        Self { pauses: Arc::new(Pauses::new(LONGEST)), patience: PATIENCE }
    }

    /// How long a call waits for a pause to end; beyond it, it fails at once, unsent.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// How long one answer can hold calls back, whatever it says. For setting up: what was said before is forgotten.
    #[must_use]
    pub fn longest(self, longest: Duration) -> Self {
        Self { pauses: Arc::new(Pauses::new(longest)), ..self }
    }

    /// Waits until a call's host wants it.
    pub(crate) fn wait(&self, call: &impl HttpCall) -> Waiting {
        Waiting::new(call, Arc::clone(&self.pauses), self.patience)
    }
}

impl<C> Layer<C> for HeedLayer {
    type Service = Heeding<C>;

    fn layer(&self, inner: C) -> Heeding<C> {
        Heeding::new(inner, self.clone())
    }
}
