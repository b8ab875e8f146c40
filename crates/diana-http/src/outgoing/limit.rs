//! What tells a call when its turn is.

use diana::core::{InvalidCost, KeyedLimiter, Limiter, Permit, Permits, Retry};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A call that waits for its turn: what it holds while it is under way, or why it has none.
pub type Turn<H> = Pin<Box<dyn Future<Output = Result<H, NoTurn>> + Send>>;

/// Why a call's turn does not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTurn {
    /// The limit, if it has a name of its own beside the layer's.
    pub limit: Option<Arc<str>>,
    /// When it would be granted.
    pub retry: Retry,
}

impl From<Retry> for NoTurn {
    fn from(retry: Retry) -> Self {
        Self { limit: None, retry }
    }
}

/// What tells a call `R` when its turn is.
pub trait OutgoingLimit<R>: Send + Sync + 'static {
    /// What a call holds until its response is there.
    type Held: Send + 'static;

    /// Waits for the turn of `request`, no longer than `patience`. Dropped, it gives its turn to the next.
    fn turn(self: Arc<Self>, request: &R, patience: Duration) -> Turn<Self::Held>;
}

impl<R> OutgoingLimit<R> for Limiter {
    type Held = ();

    fn turn(self: Arc<Self>, _request: &R, patience: Duration) -> Turn<()> {
        Box::pin(async move { granted(self.try_acquire_async(1, patience).await.map(|answer| answer.retry())) })
    }
}

impl<R> OutgoingLimit<R> for Permits {
    type Held = Permit;

    fn turn(self: Arc<Self>, _request: &R, patience: Duration) -> Turn<Permit> {
        Box::pin(async move { self.try_acquire_async(1, patience).await.map_err(|_| Retry::WhenReturned.into()) })
    }
}

/// The limit of who has none: there is no such value.
#[derive(Clone, Copy, Debug)]
pub enum NoLimit {}

impl<R> OutgoingLimit<R> for NoLimit {
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

impl<R, F> OutgoingLimit<R> for ByKey<F>
where
    F: Fn(&R) -> Option<String> + Send + Sync + 'static,
{
    type Held = ();

    fn turn(self: Arc<Self>, request: &R, patience: Duration) -> Turn<()> {
        let Some(key) = (self.key)(request) else { return Box::pin(std::future::ready(Ok(()))) };
        let limiter = Arc::clone(&self.limiter);
        Box::pin(
            async move { granted(limiter.try_acquire_async(&key, 1, patience).await.map(|answer| answer.retry())) },
        )
    }
}

/// What a limiter answered to an ask for one permit.
fn granted(retry: Result<Option<Retry>, InvalidCost>) -> Result<(), NoTurn> {
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
