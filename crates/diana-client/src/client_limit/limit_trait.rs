//! The trait of limits for client calls, and its implementations for limiters.

use diana::{AcquireError, ConcurrencyLimiter, ConcurrencyPermit, Grant, KeyedLimiter, Limiter, Retry};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The future of a call's permit, or of the error why it is not granted.
pub type PermitFuture<P> = Pin<Box<dyn Future<Output = Result<P, ClientLimitError>> + Send>>;

/// The reason why a call is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimitError {
    /// The limit, if it has its own name besides the layer's.
    pub limit: Option<Arc<str>>,
    /// The time at which it would be granted.
    pub retry: Retry,
}

impl From<Retry> for ClientLimitError {
    fn from(retry: Retry) -> Self {
        Self { limit: None, retry }
    }
}

/// A limit for calls of type `R`.
pub trait ClientLimit<R>: Send + Sync + 'static {
    /// The permit that a call holds until its response has arrived.
    type Permit: Send + 'static;

    /// Waits until `request` is granted, at most `max_wait`. Dropping the future releases its reservation to the next
    /// call.
    fn acquire(self: Arc<Self>, request: &R, max_wait: Duration) -> PermitFuture<Self::Permit>;
}

impl<R> ClientLimit<R> for Limiter {
    type Permit = ();

    fn acquire(self: Arc<Self>, _request: &R, max_wait: Duration) -> PermitFuture<()> {
        Box::pin(async move { granted(self.acquire_timeout(1, max_wait).await) })
    }
}

impl<R> ClientLimit<R> for ConcurrencyLimiter {
    type Permit = ConcurrencyPermit;

    fn acquire(self: Arc<Self>, _request: &R, max_wait: Duration) -> PermitFuture<ConcurrencyPermit> {
        Box::pin(async move { self.acquire_timeout(1, max_wait).await.map_err(|_| Retry::WhenReleased.into()) })
    }
}

/// The absence of a limit: this type has no values.
#[derive(Clone, Copy, Debug)]
pub enum NoLimit {}

impl<R> ClientLimit<R> for NoLimit {
    type Permit = ();

    fn acquire(self: Arc<Self>, _request: &R, _max_wait: Duration) -> PermitFuture<()> {
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
    type Permit = ();

    fn acquire(self: Arc<Self>, request: &R, max_wait: Duration) -> PermitFuture<()> {
        let Some(key) = (self.key)(request) else { return Box::pin(std::future::ready(Ok(()))) };
        let limiter = Arc::clone(&self.limiter);
        Box::pin(async move { granted(limiter.acquire_timeout(&key, 1, max_wait).await) })
    }
}

/// Converts the answer of a limiter about one permit.
fn granted(acquired: Result<Grant, AcquireError>) -> Result<(), ClientLimitError> {
    acquired.map(drop).map_err(|error| error.retry().unwrap_or(Retry::Never).into())
}

impl<F> fmt::Debug for ByKey<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByKey").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
