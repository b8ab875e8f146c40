//! Limits that are no limiters of this process: of a rule, or counts that many processes share. Pools hold their permits
//! ([`PermitSource`]), and paced streams take them ([`RateSource`]).

use crate::{MaxWait, Retry};
use std::any::Any;
use std::pin::Pin;
use tokio::time::Instant;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A permit of a [`PermitSource`], which is released when it is dropped.
pub type SourcePermit = Box<dyn Any + Send + Sync>;

/// A limit of which each resource of a [`Pool`](crate::Pool) holds a permit for as long as it exists, also while it is idle:
/// a database counts idle connections too.
pub trait PermitSource: Send + Sync + 'static {
    /// Takes a permit, waiting for at most `max_wait`. Dropping the future takes none.
    fn acquire(&self, max_wait: MaxWait) -> BoxFuture<'_, Result<SourcePermit, SourceError>>;

    /// Returns the number of permits for all that share them, if it is known.
    fn limit(&self) -> Option<u64>;

    /// Runs a task that closes idle resources.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Blocks this thread until `work` is done.
    fn block_on(&self, work: Pin<&mut dyn Future<Output = ()>>);
}

/// A limit whose permits are consumed, such as by each message of a paced stream.
pub trait RateSource: Send + Sync + 'static {
    /// Takes `permits`, and completes when they can be used. Dropping the future takes none.
    fn take(&self, permits: u64) -> BoxFuture<'_, Result<(), TakeError>>;

    /// Blocks this thread until `work` is done.
    fn block_on(&self, work: Pin<&mut dyn Future<Output = ()>>);
}

/// Why a source did not grant permits. None was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// The limit denied them.
    #[error("denied")]
    Denied {
        /// Whether and when they would be granted.
        retry: Retry,
        /// The capacity, if more was requested than is ever granted at once.
        capacity: Option<u64>,
    },
    /// The limit can't be asked, or its permits can't be consumed.
    #[error("{0}")]
    Failed(String),
}

/// Combines two sources: each resource holds a permit of the first, such as the allotment of an application, and one of the second,
/// such as the total of all applications. Tasks run on the runtime of the first.
impl<A: PermitSource, B: PermitSource> PermitSource for (A, B) {
    fn acquire(&self, max_wait: MaxWait) -> BoxFuture<'_, Result<SourcePermit, SourceError>> {
        Box::pin(async move {
            let began = Instant::now();
            let first = self.0.acquire(max_wait).await?;
            let left = match max_wait {
                MaxWait::FOREVER => max_wait,
                wait => MaxWait::up_to(wait.as_duration().saturating_sub(began.elapsed())),
            };
            let second = self.1.acquire(left).await?;
            Ok(Box::new((second, first)) as SourcePermit)
        })
    }

    fn limit(&self) -> Option<u64> {
        self.0.limit().into_iter().chain(self.1.limit()).min()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }

    fn block_on(&self, work: Pin<&mut dyn Future<Output = ()>>) {
        self.0.block_on(work);
    }
}

/// Why a source grants no permit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// All permits are in use. The text names the limit that denied, and the reason.
    #[error("{0}")]
    Denied(String),
    /// The limit can't be asked, or its permits can't be held.
    #[error("{0}")]
    Failed(String),
    /// Nothing was free in time.
    #[error("all permits stayed in use")]
    TimedOut,
}
