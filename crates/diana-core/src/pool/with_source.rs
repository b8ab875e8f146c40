//! A pool whose resources hold permits of a [`PermitSource`].

use super::stock::{Existing, Freed};
use super::{PermitSource, Pool, PoolError, PoolState, SourceError, SourcePermit};
use crate::{MAX_PERMITS, MaxWait};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc as StdArc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// The time after which idle resources are closed, so that other pools get their permits.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The resource or permit that a request gets.
pub(super) enum Obtained<T> {
    Idle(Existing<T>),
    /// The permit of a new resource.
    Permit(SourcePermit),
}

impl<T: Send + 'static> Pool<T> {
    /// Creates a pool whose resources hold permits of `source` while they exist, such as a rule, or a total that several processes
    /// share. [`resize`](Self::resize) bounds the part of it that this pool takes.
    ///
    /// A request gets an idle resource, or a permit of the source for a new one, whichever is free first.
    ///
    /// # Panics
    /// The blocking methods of such a pool, and `try_get`, panic within an async task, which must not block.
    #[must_use]
    pub fn from_source(name: impl Into<Box<str>>, source: impl PermitSource) -> Self {
        let pool = Self::new(name, MAX_PERMITS).unwrap_or_else(|_| unreachable!("the maximum is valid"));
        let source: StdArc<dyn PermitSource> = StdArc::new(source);
        pool.rebuilt(|settings| {
            settings.source = Some(Source { permits: source, sweep: start_sweep::<T> });
            settings.idle_timeout = Some(IDLE_TIMEOUT);
        })
    }
}

/// A source, and how to start the task that closes idle resources.
pub(super) struct Source<T> {
    pub(super) permits: StdArc<dyn PermitSource>,
    sweep: fn(&StdArc<PoolState<T>>, &dyn PermitSource),
}

impl<T> Clone for Source<T> {
    fn clone(&self) -> Self {
        Self { permits: StdArc::clone(&self.permits), sweep: self.sweep }
    }
}

impl<T> Pool<T> {
    /// Waits for an idle resource or a permit of the source.
    pub(super) async fn obtain<E>(
        &self,
        source: &Source<T>,
        timeout: Option<Duration>,
    ) -> Result<Obtained<T>, PoolError<E>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(existing) = self.take_idle() {
                return Ok(Obtained::Idle(existing));
            }
            let waiting = Waiting::join(self).ok_or_else(|| self.queue_is_full())?;
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let max_wait = left.map_or(MaxWait::FOREVER, MaxWait::up_to);
            let freed = match waiting.or_permit(source.permits.acquire(max_wait)).await {
                Ok(Obtained::Permit(permit)) => return Ok(Obtained::Permit(permit)),
                Ok(Obtained::Idle(existing)) => Some(Freed::Idle(existing)),
                // Other resources of this pool may be returned in time.
                Err(_) if !left.is_some_and(|left| left.is_zero()) && waiting.is_any_in_use() => match deadline {
                    Some(deadline) => tokio::time::timeout_at(deadline, waiting.freed()).await.ok(),
                    None => Some(waiting.freed().await),
                },
                Err(error) => return Err(self.no_permit(error, timeout)),
            };
            match freed {
                Some(Freed::Idle(existing)) => {
                    if let Some(usable) = self.checked(existing) {
                        return Ok(Obtained::Idle(usable));
                    }
                }
                // Its permit may be free again.
                Some(Freed::Closed) => {}
                None => return Err(self.no_permit(SourceError::TimedOut, timeout)),
            }
        }
    }

    /// Blocks this thread until an idle resource or a permit of the source is available.
    pub(super) fn blocking_obtain<E>(
        &self,
        source: &Source<T>,
        timeout: Option<Duration>,
    ) -> Result<Obtained<T>, PoolError<E>> {
        let mut obtained = None;
        source.permits.block_on(pin!(async { obtained = Some(self.obtain(source, timeout).await) }));
        obtained.unwrap_or_else(|| Err(self.no_permit(SourceError::TimedOut, timeout)))
    }

    /// Starts the task that closes idle resources after their timeout, unless it runs.
    pub(super) fn sweep_later(&self) {
        if let Some(Source { permits, sweep }) = &self.shared.settings.source {
            sweep(&self.shared, &**permits);
        }
    }

    #[cold]
    fn queue_is_full<E>(&self) -> PoolError<E> {
        let PoolState { name, settings, permits, .. } = &*self.shared;
        PoolError::NoneFree {
            pool: name.to_string(),
            resource: settings.resource.to_string(),
            within: None,
            in_use: self.in_use(),
            waiting: self.waiting(),
            max_waiting: permits.max_waiting(),
        }
    }

    #[cold]
    fn no_permit<E>(&self, error: SourceError, within: Option<Duration>) -> PoolError<E> {
        let PoolState { name, settings, .. } = &*self.shared;
        PoolError::NoPermit {
            pool: name.to_string(),
            resource: settings.resource.to_string(),
            within: within.filter(|within| !within.is_zero()),
            error,
        }
    }
}

fn start_sweep<T: Send + 'static>(pool: &StdArc<PoolState<T>>, source: &dyn PermitSource) {
    let Some(timeout) = pool.settings.idle_timeout else { return };
    if std::mem::replace(&mut pool.stock.lock().is_swept, true) {
        return;
    }
    source.spawn(Box::pin(sweep(StdArc::downgrade(pool), timeout)));
}

/// Closes idle resources after their timeout, until none is idle.
async fn sweep<T>(pool: Weak<PoolState<T>>, timeout: Duration) {
    let mut delay = timeout;
    loop {
        tokio::time::sleep(delay).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut stock = pool.stock.lock();
        let (expired, next) = stock.take_expired(pool.permits.now(), timeout);
        stock.is_swept = next.is_some();
        drop(stock);
        pool.close(expired);
        let Some(next) = next else { return };
        // A clock that differs from the timer's by a fraction must not make it spin.
        delay = next.max(Duration::from_millis(1));
    }
}

/// A request that waits for a resource of the pool. Dropping it leaves the queue.
struct Waiting<'p, T> {
    pool: &'p PoolState<T>,
    ticket: u64,
}

impl<'p, T> Waiting<'p, T> {
    /// Joins the queue, if it has space.
    fn join(pool: &'p Pool<T>) -> Option<Self> {
        let max = pool.shared.permits.max_waiting();
        let ticket = pool.shared.stock.lock().join(max)?;
        Some(Self { pool: &pool.shared, ticket })
    }

    fn is_any_in_use(&self) -> bool {
        self.pool.stock.lock().in_use() > 0
    }

    /// Waits for an idle resource, or for this permit.
    async fn or_permit(
        &self,
        permit: impl Future<Output = Result<SourcePermit, SourceError>>,
    ) -> Result<Obtained<T>, SourceError> {
        let mut permit = pin!(permit);
        poll_fn(|context| match self.poll_idle(context) {
            Poll::Ready(existing) => Poll::Ready(Ok(Obtained::Idle(existing))),
            Poll::Pending => permit.as_mut().poll(context).map_ok(Obtained::Permit),
        })
        .await
    }

    /// Waits for an idle resource, or until another one is closed.
    async fn freed(&self) -> Freed<T> {
        poll_fn(|context| self.pool.stock.lock().poll_freed(self.ticket, context)).await
    }

    fn poll_idle(&self, context: &Context<'_>) -> Poll<Existing<T>> {
        self.pool.stock.lock().poll_idle(self.ticket, context)
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        self.pool.stock.lock().leave(self.ticket);
    }
}
