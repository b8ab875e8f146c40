//! The permits of items: of a limiter of this process, or of a limit that is asked elsewhere.

use super::acquire_until_granted::Exhausted;
use super::paced_permits::PacedPermits;
use diana_core::{BoxFuture, Limiter, MAX_PERMITS, RateSource, Retry, TakeError};
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How often a limit is asked whose next free time is unknown.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often a limit is asked that failed: its rule was removed, or its store can't answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The limit that paces streams, sinks and iterators: a [`Limiter`], alone or in an `Arc` that several share; a rule of the rule file
/// (`Engine::limiter`); or one key of a limit that several processes share (`SharedLimiter::key`).
///
/// A rule or a shared limit that can't be asked is asked again each second: nothing passes meanwhile, and nothing is lost.
pub struct PaceLimiter(Kind);

#[derive(Clone)]
enum Kind {
    Local(Arc<Limiter>),
    Source(Arc<dyn RateSource>),
}

impl From<Limiter> for PaceLimiter {
    fn from(limiter: Limiter) -> Self {
        Self(Kind::Local(Arc::new(limiter)))
    }
}

impl From<Arc<Limiter>> for PaceLimiter {
    fn from(limiter: Arc<Limiter>) -> Self {
        Self(Kind::Local(limiter))
    }
}

impl PaceLimiter {
    /// Paces by any source of permits.
    pub fn from_source(source: impl RateSource) -> Self {
        Self(Kind::Source(Arc::new(source)))
    }
}

#[cfg(feature = "rules")]
impl From<crate::RuleLimiter> for PaceLimiter {
    fn from(rule: crate::RuleLimiter) -> Self {
        Self::from_source(rule)
    }
}

#[cfg(feature = "redis")]
impl From<crate::redis::SharedKeyLimiter> for PaceLimiter {
    fn from(key: crate::redis::SharedKeyLimiter) -> Self {
        Self::from_source(key)
    }
}

impl fmt::Debug for PaceLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Local(limiter) => f.debug_tuple("PaceLimiter").field(limiter).finish(),
            Kind::Source(_) => f.debug_struct("PaceLimiter").finish_non_exhaustive(),
        }
    }
}

/// The permits of one paced user.
pub(super) enum ItemPermits {
    Local(PacedPermits),
    Source { source: Arc<dyn RateSource>, wait: Option<BoxFuture<'static, Result<(), Exhausted>>> },
}

impl From<PaceLimiter> for ItemPermits {
    fn from(limiter: PaceLimiter) -> Self {
        match limiter.0 {
            Kind::Local(limiter) => Self::Local(PacedPermits::new(limiter)),
            Kind::Source(source) => Self::Source { source, wait: None },
        }
    }
}

impl ItemPermits {
    /// Pays all of `cost`, blocking this thread. Zero is free.
    pub(super) fn blocking_pay(&mut self, cost: u64) -> Result<(), Exhausted> {
        match self {
            Self::Local(permits) => permits.blocking_pay(cost),
            Self::Source { source, .. } => {
                let mut paid = Ok(());
                source.block_on(pin!(async { paid = pay(&**source, cost).await }));
                paid
            }
        }
    }

    /// Polls [`blocking_pay`](Self::blocking_pay); further polls must pass the same cost.
    pub(super) fn poll_pay(&mut self, context: &mut Context<'_>, cost: u64) -> Poll<Result<(), Exhausted>> {
        match self {
            Self::Local(permits) => permits.poll_pay(context, cost),
            Self::Source { .. } if cost == 0 => Poll::Ready(Ok(())),
            Self::Source { source, wait } => {
                let paying = wait.get_or_insert_with(|| {
                    let source = Arc::clone(source);
                    Box::pin(async move { pay(&*source, cost).await })
                });
                let paid = ready!(Pin::new(paying).poll(context));
                *wait = None;
                Poll::Ready(paid)
            }
        }
    }

    /// Records that there is nothing to pass.
    pub(super) fn record_idle(&mut self) {
        if let Self::Local(permits) = self {
            permits.record_idle();
        }
    }

    /// Stops waiting and refunds the reservation.
    pub(super) fn cancel_wait(&mut self) {
        match self {
            Self::Local(permits) => permits.cancel_wait(),
            Self::Source { wait, .. } => *wait = None,
        }
    }
}

/// Pays `cost`, in instalments if it is over the capacity. Dropping the future keeps earlier instalments.
async fn pay(source: &dyn RateSource, cost: u64) -> Result<(), Exhausted> {
    let (mut remaining, mut largest) = (cost, MAX_PERMITS);
    while remaining > 0 {
        let permits = remaining.min(largest);
        let wait = match source.take(permits).await {
            Ok(()) => {
                remaining -= permits;
                continue;
            }
            Err(TakeError::Denied { retry: Retry::Never, capacity: Some(capacity) })
                if (1..permits).contains(&capacity) =>
            {
                largest = capacity;
                continue;
            }
            Err(TakeError::Denied { retry: Retry::After(wait), .. }) => wait,
            Err(TakeError::Denied { retry: Retry::WhenReleased, .. }) => POLL_INTERVAL,
            Err(TakeError::Denied { retry: Retry::Never, .. }) => return Err(Exhausted),
            Err(_) => RETRY_INTERVAL,
        };
        tokio::time::sleep(wait).await;
    }
    Ok(())
}

impl fmt::Debug for ItemPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(permits) => permits.fmt(f),
            Self::Source { wait, .. } => {
                f.debug_struct("ItemPermits").field("is_waiting", &wait.is_some()).finish_non_exhaustive()
            }
        }
    }
}
