//! A pool of permits, for resources with bounded concurrency.

use crate::clock::LimiterClock;
use crate::limiter::MAX_WAITING;
use crate::sync::Arc;
use crate::wait::Source;
use crate::{Answer, Clock, Concurrency, InvalidCost, InvalidQuota, Limiter, MaxWait, Receipt, Status, Timestamp};
use std::fmt;
use std::time::Duration;

/// A counted resource: database connections, worker slots, bytes in flight.
///
/// Permits are held by a guard and released when it is dropped. If none is free, a request is queued in FIFO order, up
/// to its timeout and while the queue has space; a large request at the head is not overtaken by smaller ones. Clones
/// share the pool.
///
/// ```
/// use diana_core::ConcurrencyLimiter;
/// use std::time::Duration;
///
/// let connections = ConcurrencyLimiter::new("database", 2)?.with_max_waiting(100);
///
/// let first = connections.blocking_acquire(1)?;
/// let second = connections.blocking_acquire_timeout(1, Duration::from_millis(50))?;
/// let error = connections.try_acquire(1).unwrap_err();
/// assert_eq!(error.to_string(), "no permit of `database` is free: 2 of 2 in use, 0 requests queued");
///
/// drop(first);
/// assert!(connections.try_acquire(1).is_ok());
/// # drop(second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ConcurrencyLimiter {
    pool: Arc<PermitPool>,
}

struct PermitPool {
    resource: Box<str>,
    limiter: Limiter,
    /// The initial parameters of the pool.
    initial: Concurrency,
    max_waiting: usize,
}

impl ConcurrencyLimiter {
    /// Creates a pool of `limit` permits. Errors name it `resource`.
    pub fn new(resource: impl Into<Box<str>>, limit: u64) -> Result<Self, InvalidQuota> {
        let initial = Concurrency::new(limit)?;
        let limiter = Limiter::with_algorithm(initial.clone());
        Ok(Self {
            pool: Arc::new(PermitPool { resource: resource.into(), limiter, initial, max_waiting: MAX_WAITING }),
        })
    }

    /// Returns a pool like this one on another clock. For setup only: permits in use belong to the old pool.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        let max_waiting = self.pool.max_waiting;
        self.rebuilt(LimiterClock::from_clock(clock), max_waiting)
    }

    /// Returns a pool like this one with at most `max` queued requests; the default is 10,000. For setup only: permits
    /// in use belong to the old pool.
    #[must_use]
    pub fn with_max_waiting(self, max: usize) -> Self {
        let time = self.pool.limiter.time().clone();
        self.rebuilt(time, max)
    }

    /// Takes `n` permits without waiting.
    pub fn try_acquire(&self, n: u64) -> Result<ConcurrencyPermit, PermitError> {
        self.guard(n, self.pool.limiter.check_n(n)?)
    }

    /// Takes `n` permits, and completes when they are free. Dropping the future leaves the queue.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire(&self, n: u64) -> Result<ConcurrencyPermit, PermitError> {
        self.guard(n, self.pool.limiter.wait(n, MaxWait::FOREVER).await?)
    }

    /// Takes `n` permits, waiting for at most `timeout`. Dropping the future leaves the queue.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire_timeout(&self, n: u64, timeout: Duration) -> Result<ConcurrencyPermit, PermitError> {
        self.guard(n, self.pool.limiter.wait(n, MaxWait::up_to(timeout)).await?)
    }

    /// Takes `n` permits, blocking this thread until they are free.
    pub fn blocking_acquire(&self, n: u64) -> Result<ConcurrencyPermit, PermitError> {
        self.guard(n, self.pool.limiter.blocking_wait(n, MaxWait::FOREVER)?)
    }

    /// Takes `n` permits, blocking this thread for at most `timeout`.
    pub fn blocking_acquire_timeout(&self, n: u64, timeout: Duration) -> Result<ConcurrencyPermit, PermitError> {
        self.guard(n, self.pool.limiter.blocking_wait(n, MaxWait::up_to(timeout))?)
    }

    /// Changes the size of the pool. Permits in use stay valid: a smaller pool waits until they are released.
    pub fn resize(&self, limit: u64) -> Result<(), InvalidQuota> {
        self.pool.limiter.set(Concurrency::new(limit)?);
        Ok(())
    }

    /// Returns the size of the pool.
    pub fn limit(&self) -> u64 {
        self.pool.limiter.status().limit
    }

    /// Returns the number of free permits.
    pub fn available(&self) -> u64 {
        self.pool.limiter.status().remaining
    }

    /// Returns the number of queued requests.
    pub fn waiting(&self) -> usize {
        self.pool.limiter.waiting()
    }

    /// Returns the maximum number of queued requests.
    pub fn max_waiting(&self) -> usize {
        self.pool.max_waiting
    }

    /// Returns the time of the pool's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.pool.limiter.time().now()
    }

    fn rebuilt(self, time: LimiterClock, max_waiting: usize) -> Self {
        let (resource, initial) = (self.pool.resource.clone(), self.pool.initial.clone());
        let limiter = Limiter::with_algorithm(initial.clone()).with_max_waiting(max_waiting).with_time(time);
        Self { pool: Arc::new(PermitPool { resource, limiter, initial, max_waiting }) }
    }

    fn guard(&self, n: u64, answer: Answer) -> Result<ConcurrencyPermit, PermitError> {
        if let Some(receipt) = answer.receipt() {
            return Ok(ConcurrencyPermit { pool: Arc::clone(&self.pool), receipt });
        }
        let Status { limit, remaining, .. } = answer.status();
        let resource = self.pool.resource.to_string();
        Err(if n > limit {
            PermitError::TooMany { resource, requested: n, limit }
        } else {
            PermitError::InUse { resource, in_use: limit - remaining, limit, waiting: self.waiting() }
        })
    }
}

impl fmt::Debug for ConcurrencyLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { limit, remaining, .. } = self.pool.limiter.status();
        f.debug_struct("ConcurrencyLimiter")
            .field("resource", &self.pool.resource)
            .field("limit", &limit)
            .field("available", &remaining)
            .finish()
    }
}

/// Permits of a pool, released when this is dropped.
#[must_use = "dropping it releases the permits"]
pub struct ConcurrencyPermit {
    pool: Arc<PermitPool>,
    receipt: Receipt,
}

impl ConcurrencyPermit {
    /// Returns the number of permits in this guard.
    pub fn count(&self) -> u64 {
        self.receipt.cost().get()
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.pool.limiter.refund(&self.receipt);
    }
}

impl fmt::Debug for ConcurrencyPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConcurrencyPermit({} of `{}`)", self.count(), self.pool.resource)
    }
}

/// Why no permit was granted. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PermitError {
    /// All permits stayed in use until the timeout, or the queue was full. Retry later, or wait longer.
    #[error("no permit of `{resource}` is free: {in_use} of {limit} in use, {waiting} requests queued")]
    InUse {
        /// The resource.
        resource: String,
        /// Permits in use.
        in_use: u64,
        /// The size of the pool.
        limit: u64,
        /// The number of queued requests.
        waiting: usize,
    },
    /// More permits than the pool has. Ask for fewer, or resize the pool.
    #[error("cannot acquire {requested} permits of `{resource}`: the limit is {limit}")]
    TooMany {
        /// The resource.
        resource: String,
        /// The number of requested permits.
        requested: u64,
        /// The size of the pool.
        limit: u64,
    },
    /// An invalid number of permits.
    #[error(transparent)]
    Cost(#[from] InvalidCost),
}
