//! What tells a call when its turn is.

use diana::core::{ConcurrencyLimiter, InvalidCost, KeyedLimiter, Limiter, Permit, Retry};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A call that waits for its turn: what it holds while it is under way, or why it has none.
pub type Turn<H> = Pin<Box<dyn Future<Output = Result<H, ClientLimitError>> + Send>>;

/// Why a call's turn does not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimitError {
    /// The limit, if it has a name of its own beside the layer's.
    pub limit: Option<Arc<str>>,
    /// When it would be granted.
    pub retry: Retry,
}

impl From<Retry> for ClientLimitError {
    fn from(retry: Retry) -> Self {
        Self { limit: None, retry }
    }
}

/// What tells a call `R` when its turn is.
pub trait ClientLimit<R>: Send + Sync + 'static {
    /// What a call holds until its response is there.
    type Held: Send + 'static;

    /// Waits for the turn of `request`, no longer than `max_wait`. Dropped, it gives its turn to the next.
    fn turn(self: Arc<Self>, request: &R, max_wait: Duration) -> Turn<Self::Held>;
}

impl<R> ClientLimit<R> for Limiter {
    type Held = ();

    fn turn(self: Arc<Self>, _request: &R, max_wait: Duration) -> Turn<()> {
        Box::pin(async move { granted(self.try_acquire_async(1, max_wait).await.map(|answer| answer.retry())) })
    }
}

impl<R> ClientLimit<R> for ConcurrencyLimiter {
    type Held = Permit;

    fn turn(self: Arc<Self>, _request: &R, max_wait: Duration) -> Turn<Permit> {
        Box::pin(async move { self.try_acquire_async(1, max_wait).await.map_err(|_| Retry::WhenReturned.into()) })
    }
}

/// The limit of who has none: there is no such value.
#[derive(Clone, Copy, Debug)]
pub enum NoLimit {}

impl<R> ClientLimit<R> for NoLimit {
    type Held = ();

    fn turn(self: Arc<Self>, _request: &R, _patience: Duration) -> Turn<()> {
        match *self {}
    }
}

/// A limit for each key of a call.
pub struct ByKey<F> {
    limiter: Arc<KeyedLimiter<str>>,
    key: F,
}

impl<F> ByKey<F> {
    pub(super) fn new(limiter: Arc<KeyedLimiter<str>>, key: F) -> Self {
        Self { limiter, key }
    }
}

impl<R, F> ClientLimit<R> for ByKey<F>
where
    F: Fn(&R) -> Option<String> + Send + Sync + 'static,
{
    type Held = ();

    fn turn(self: Arc<Self>, request: &R, max_wait: Duration) -> Turn<()> {
        let Some(key) = (self.key)(request) else { return Box::pin(std::future::ready(Ok(()))) };
        let limiter = Arc::clone(&self.limiter);
        Box::pin(
            async move { granted(limiter.try_acquire_async(&key, 1, max_wait).await.map(|answer| answer.retry())) },
        )
    }
}

/// What a limiter answered to an ask for one permit.
fn granted(retry: Result<Option<Retry>, InvalidCost>) -> Result<(), ClientLimitError> {
    match retry {
        Ok(None) => Ok(()),
        Ok(Some(retry)) => Err(retry.into()),
        Err(_) => Err(Retry::Never.into()),
    }
}

impl<F> fmt::Debug for ByKey<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByKey").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
