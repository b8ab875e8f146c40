//! One key of a shared limiter, for pools and paced streams.

use super::SharedLimiter;
use diana_core::{
    AcquireError, BoxFuture, MaxWait, PermitSource, RateSource, Restores, SourceError, SourcePermit, TakeError,
};
use std::pin::Pin;

/// One key of a [`SharedLimiter`]; created by [`SharedLimiter::key`].
///
/// A `Pool` takes its permits from it, so that the pools of several processes have one total:
///
/// ```no_run
/// use diana_core::{Concurrency, Pool};
/// use diana_redis::{Options, RedisStore, SharedLimiter};
/// # use std::convert::Infallible;
/// # async fn connect() -> Result<u32, Infallible> { Ok(1) }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379", Options::default()).await?;
/// // The database allows 150 connections in all, and this application at most 100.
/// let total = SharedLimiter::new(&store, "orders-connections", Concurrency::new(150)?);
/// let pool = Pool::from_source("orders", total.key("all"));
/// pool.resize(100)?;
/// let connection = pool.get(connect).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedKeyLimiter {
    limiter: SharedLimiter,
    key: Vec<u8>,
}

impl SharedLimiter {
    /// Returns the limiter of one key.
    pub fn key(&self, key: impl Into<Vec<u8>>) -> SharedKeyLimiter {
        SharedKeyLimiter { limiter: self.clone(), key: key.into() }
    }
}

impl SharedKeyLimiter {
    /// Returns the limiter of all keys.
    pub fn limiter(&self) -> &SharedLimiter {
        &self.limiter
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl PermitSource for SharedKeyLimiter {
    fn acquire(&self, max_wait: MaxWait) -> BoxFuture<'_, Result<SourcePermit, SourceError>> {
        Box::pin(async move {
            if !self.limiter.limit().properties().is_released() {
                let problem = format!(
                    "limit `{}` is no `Concurrency`, so a pool can't hold its permits",
                    self.limiter.limit().name()
                );
                return Err(SourceError::Failed(problem));
            }
            match self.limiter.hold(&self.key, 1, max_wait.as_duration()).await {
                Ok(permit) => Ok(Box::new(permit) as SourcePermit),
                Err(AcquireError::Denied { status, .. }) => Err(SourceError::Denied(format!(
                    "limit `{}`: all {} permits are in use",
                    self.limiter.limit().name(),
                    status.limit
                ))),
                Err(error) => Err(SourceError::Failed(format!("limit `{}`: {error}", self.limiter.limit().name()))),
            }
        })
    }

    fn limit(&self) -> Option<u64> {
        match self.limiter.limit().properties().restores {
            Restores::WhenReleased { limit } => Some(limit),
            _ => None,
        }
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.limiter.store().runtime().spawn(task);
    }

    fn block_on(&self, work: Pin<&mut dyn Future<Output = ()>>) {
        self.limiter.store().runtime().block_on(work);
    }
}

impl RateSource for SharedKeyLimiter {
    fn take(&self, permits: u64) -> BoxFuture<'_, Result<(), TakeError>> {
        Box::pin(async move {
            if self.limiter.limit().properties().is_released() {
                let problem =
                    format!("limit `{}` is a `Concurrency`, whose permits are released", self.limiter.limit().name());
                return Err(TakeError::Failed(problem));
            }
            match self.limiter.acquire(&self.key, permits).await {
                Ok(_) => Ok(()),
                Err(AcquireError::Denied { retry, status, .. }) => {
                    Err(TakeError::Denied { retry, capacity: (status.limit < permits).then_some(status.limit) })
                }
                Err(error) => Err(TakeError::Failed(format!("limit `{}`: {error}", self.limiter.limit().name()))),
            }
        })
    }

    fn block_on(&self, work: Pin<&mut dyn Future<Output = ()>>) {
        self.limiter.store().runtime().block_on(work);
    }
}
