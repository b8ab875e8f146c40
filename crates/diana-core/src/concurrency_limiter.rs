//! A pool of permits: for what there is only so much of at a time.

use crate::sync::Arc;
use crate::{Answer, Clock, Concurrency, InvalidCost, InvalidQuota, Limiter, Receipt, Status};
use std::fmt;
use std::time::Duration;

/// A counted resource: database connections, worker slots, bytes in flight.
///
/// Permits are held by a guard and given back when it is dropped. Whoever finds none waits in line, first come, first
/// served, for as long as it says and while the line has room; a large request at its head is not overtaken by small
/// ones behind it. Clones are the same pool.
///
/// ```
/// use diana_core::ConcurrencyLimiter;
/// use std::time::Duration;
///
/// let connections = ConcurrencyLimiter::new("database", 2)?.max_waiting(100);
///
/// let first = connections.acquire(1)?;
/// let second = connections.try_acquire(1, Duration::from_millis(50))?;
/// let error = connections.try_acquire(1, Duration::ZERO).unwrap_err();
/// assert_eq!(error.to_string(), "`database` has no permit left: 2 of 2 are in use, 0 wait in line");
///
/// drop(first);
/// assert!(connections.try_acquire(1, Duration::ZERO).is_ok());
/// # drop(second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ConcurrencyLimiter {
    pool: Arc<Pool>,
}

struct Pool {
    resource: Box<str>,
    limiter: Limiter,
    /// What the pool was made with.
    began_with: Concurrency,
}

impl ConcurrencyLimiter {
    /// A pool of `limit` permits of `resource`, which is what errors call it.
    pub fn new(resource: impl Into<Box<str>>, limit: u64) -> Result<Self, InvalidQuota> {
        let began_with = Concurrency::new(limit)?;
        let limiter = Limiter::with_algorithm(began_with.clone());
        Ok(Self { pool: Arc::new(Pool { resource: resource.into(), limiter, began_with }) })
    }

    /// A pool like this one on another clock. For setting up: permits that are out belong to the old one.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        self.rebuilt(|limiter| limiter.with_clock(clock))
    }

    /// A pool like this one with room for `most` in line; 10,000 unless said otherwise. For setting up: permits that are
    /// out belong to the old one.
    #[must_use]
    pub fn max_waiting(self, most: usize) -> Self {
        self.rebuilt(|limiter| limiter.max_waiting(most))
    }

    /// Takes `n` permits, blocking this thread until they are there.
    pub fn acquire(&self, n: u64) -> Result<Permit, NoPermit> {
        self.guard(n, self.pool.limiter.acquire(n))
    }

    /// Takes `n` permits, blocking this thread for at most `timeout`.
    pub fn try_acquire(&self, n: u64, timeout: Duration) -> Result<Permit, NoPermit> {
        self.guard(n, self.pool.limiter.try_acquire(n, timeout))
    }

    /// [`acquire`](Self::acquire) as a future. Dropped, it leaves the line.
    ///
    /// # Panics
    /// When it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire_async(&self, n: u64) -> Result<Permit, NoPermit> {
        self.guard(n, self.pool.limiter.acquire_async(n).await)
    }

    /// [`try_acquire`](Self::try_acquire) as a future. Dropped, it leaves the line.
    ///
    /// # Panics
    /// When it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn try_acquire_async(&self, n: u64, timeout: Duration) -> Result<Permit, NoPermit> {
        self.guard(n, self.pool.limiter.try_acquire_async(n, timeout).await)
    }

    /// Makes the pool larger or smaller. Permits that are out stay out: a smaller pool waits for them to come back.
    pub fn resize(&self, limit: u64) -> Result<(), InvalidQuota> {
        self.pool.limiter.set(Concurrency::new(limit)?);
        Ok(())
    }

    /// How many permits there are.
    pub fn limit(&self) -> u64 {
        self.pool.limiter.status().limit
    }

    /// How many permits are free.
    pub fn available(&self) -> u64 {
        self.pool.limiter.status().remaining
    }

    /// How many wait in line.
    pub fn waiting(&self) -> usize {
        self.pool.limiter.waiting()
    }

    fn rebuilt(self, change: impl FnOnce(Limiter) -> Limiter) -> Self {
        let (resource, began_with) = (self.pool.resource.clone(), self.pool.began_with.clone());
        let limiter = change(Limiter::with_algorithm(began_with.clone()));
        Self { pool: Arc::new(Pool { resource, limiter, began_with }) }
    }

    fn guard(&self, n: u64, answer: Result<Answer, InvalidCost>) -> Result<Permit, NoPermit> {
        let answer = answer?;
        if let Some(receipt) = answer.receipt() {
            return Ok(Permit { pool: Arc::clone(&self.pool), receipt });
        }
        let Status { limit, remaining, .. } = answer.status;
        let resource = self.pool.resource.to_string();
        Err(if n > limit {
            NoPermit::TooMany { resource, wanted: n, limit }
        } else {
            NoPermit::InUse { resource, in_use: limit - remaining, limit, waiting: self.waiting() }
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

/// Permits of a pool, given back when this is dropped.
#[must_use = "dropping it gives the permits back"]
pub struct Permit {
    pool: Arc<Pool>,
    receipt: Receipt,
}

impl Permit {
    /// How many permits this holds.
    pub fn count(&self) -> u64 {
        self.receipt.cost().get()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pool.limiter.refund(&self.receipt);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({} of `{}`)", self.count(), self.pool.resource)
    }
}

/// Why no permit was to be had. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPermit {
    /// They were in use for as long as the asker would wait, or the line was full. Try again later, or wait longer.
    #[error("`{resource}` has no permit left: {in_use} of {limit} are in use, {waiting} wait in line")]
    InUse {
        /// Of what.
        resource: String,
        /// Permits that are out.
        in_use: u64,
        /// Permits that there are.
        limit: u64,
        /// How many stood in line.
        waiting: usize,
    },
    /// More than there will ever be. Ask for less, or make the pool larger.
    #[error("{wanted} permits of `{resource}` can't be had: there are {limit}")]
    TooMany {
        /// Of what.
        resource: String,
        /// How many were asked for.
        wanted: u64,
        /// Permits that there are.
        limit: u64,
    },
    /// Not a number of permits.
    #[error(transparent)]
    Cost(#[from] InvalidCost),
}
