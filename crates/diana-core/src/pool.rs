//! A bounded pool of reusable resources: connections, worker threads, buffers.
//!
//! # How it works
//! A [`ConcurrencyLimiter`] has one permit for each resource that may exist, and the queue of the requests that wait.
//!
//! ```text
//!  get ───▶ a permit: FIFO, up to a timeout, in a bounded queue ───▶ an idle resource, else a new one
//!  drop ──▶ back to the idle ones, or dropped ───▶ then the permit is released, which wakes the next
//! ```
//!
//! # What always holds (tests/shuttle/pool.rs, tests/it/pool.rs)
//! - At most as many resources exist as there are permits: one is created only with a permit, and only if none is idle; and
//!   it is idle or dropped before its permit is released.
//! - Requests are served in order, or time out. An error or a panic of `create`, or of a user of a resource, loses no
//!   permit.

mod error;

pub use error::PoolError;

use crate::sync::{Arc, Mutex};
use crate::{Clock, ConcurrencyLimiter, InvalidQuota, Permit, PermitError, Timestamp};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc as Shared;
use std::time::Duration;

/// A bounded pool of reusable resources, such as the connections to a database.
///
/// A resource is created when one is needed and none is idle. The guard returns it to the pool when it is dropped, unless it
/// was [discarded](Pooled::discard) or its user panicked. If all are in use, a request is queued in FIFO order, up to its
/// timeout and while the queue has space. Clones share the pool.
///
/// | | |
/// |---|---|
/// | `size` | MySQL's `max_connections`, HikariCP's `maximumPoolSize`, Tomcat's `maxThreads` |
/// | [`with_max_waiting`](Self::with_max_waiting) | Tomcat's `acceptCount` |
/// | the timeout | HikariCP's `connectionTimeout` |
/// | [`with_max_idle`](Self::with_max_idle) | Tomcat JDBC's `maxIdle` |
/// | [`with_check`](Self::with_check) | Tomcat JDBC's `testOnBorrow` |
///
/// ```
/// use diana_core::Pool;
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// let pool = Pool::new("database", 1)?.with_resource_name("connection").with_max_waiting(32);
/// let connect = || Ok::<_, Infallible>(Vec::new());
///
/// let mut connection = pool.blocking_get(connect)?;
/// connection.push("SELECT 1");
/// let error = pool.blocking_get_timeout(Duration::from_millis(2), connect).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "pool `database`: no connection free within 2 ms (1 in use, 0 waiting, at most 32 may wait)"
/// );
///
/// drop(connection);
/// assert_eq!(*pool.try_get(connect)?, ["SELECT 1"], "the same connection");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pool<T> {
    shared: Arc<PoolState<T>>,
}

struct PoolState<T> {
    name: Box<str>,
    settings: Settings<T>,
    permits: ConcurrencyLimiter,
    /// The last one was used last, and is used next: those that are not needed stay idle.
    idle: Mutex<Vec<T>>,
}

/// Returns whether an idle resource is still usable.
type Check<T> = Shared<dyn Fn(&mut T) -> bool + Send + Sync>;

struct Settings<T> {
    resource: Box<str>,
    max_idle: usize,
    check: Option<Check<T>>,
}

impl<T> Pool<T> {
    /// Creates a pool of at most `size` resources, and none yet. Errors name it `name`.
    pub fn new(name: impl Into<Box<str>>, size: u64) -> Result<Self, InvalidQuota> {
        let name = name.into();
        let permits = ConcurrencyLimiter::new(name.clone(), size)?;
        let settings = Settings { resource: "resource".into(), max_idle: usize::MAX, check: None };
        Ok(Self::build(name, settings, permits))
    }

    /// Returns a pool like this one whose errors call a resource `name`, such as "connection". For setup only.
    #[must_use]
    pub fn with_resource_name(self, name: impl Into<Box<str>>) -> Self {
        self.rebuilt(|settings| settings.resource = name.into())
    }

    /// Returns a pool like this one with at most `max` queued requests; the default is 10,000. For setup only.
    #[must_use]
    pub fn with_max_waiting(self, max: usize) -> Self {
        let permits = self.shared.permits.clone().with_max_waiting(max);
        Self::build(self.shared.name.clone(), self.shared.settings.clone(), permits)
    }

    /// Returns a pool like this one that keeps at most `max` idle resources, and drops others when they are returned. The
    /// default is to keep all. For setup only.
    #[must_use]
    pub fn with_max_idle(self, max: usize) -> Self {
        self.rebuilt(|settings| settings.max_idle = max)
    }

    /// Returns a pool like this one that checks an idle resource before it is used again, and drops it if `is_usable` returns
    /// `false`. For setup only.
    #[must_use]
    pub fn with_check(self, is_usable: impl Fn(&mut T) -> bool + Send + Sync + 'static) -> Self {
        self.rebuilt(|settings| settings.check = Some(Shared::new(is_usable)))
    }

    /// Returns a pool like this one on another clock. For setup only.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        let permits = self.shared.permits.clone().with_clock(clock);
        Self::build(self.shared.name.clone(), self.shared.settings.clone(), permits)
    }

    /// Returns an idle resource or a new one, without waiting.
    pub fn try_get<E>(&self, create: impl FnOnce() -> Result<T, E>) -> Result<Pooled<T>, PoolError<E>> {
        let permit = self.shared.permits.try_acquire(1).map_err(|error| self.none_free(&error, None))?;
        self.fill(permit, create)
    }

    /// Returns an idle resource or a new one, blocking this thread until there is one.
    pub fn blocking_get<E>(&self, create: impl FnOnce() -> Result<T, E>) -> Result<Pooled<T>, PoolError<E>> {
        let permit = self.shared.permits.blocking_acquire(1).map_err(|error| self.none_free(&error, None))?;
        self.fill(permit, create)
    }

    /// Returns an idle resource or a new one, blocking this thread for at most `timeout`. The time that `create` takes is not
    /// part of it.
    pub fn blocking_get_timeout<E>(
        &self,
        timeout: Duration,
        create: impl FnOnce() -> Result<T, E>,
    ) -> Result<Pooled<T>, PoolError<E>> {
        let limit = Some((self.shared.permits.now(), timeout));
        let permit = self.shared.permits.blocking_acquire_timeout(1, timeout);
        self.fill(permit.map_err(|error| self.none_free(&error, limit))?, create)
    }

    /// Returns an idle resource or a new one, when there is one. Dropping the future leaves the queue.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn get<E, F>(&self, create: impl FnOnce() -> F) -> Result<Pooled<T>, PoolError<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let permit = self.shared.permits.acquire(1).await.map_err(|error| self.none_free(&error, None))?;
        self.fill_async(permit, create).await
    }

    /// Returns an idle resource or a new one, waiting for at most `timeout`. The time that `create` takes is not part of it.
    /// Dropping the future leaves the queue.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn get_timeout<E, F>(
        &self,
        timeout: Duration,
        create: impl FnOnce() -> F,
    ) -> Result<Pooled<T>, PoolError<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let limit = Some((self.shared.permits.now(), timeout));
        let permit = self.shared.permits.acquire_timeout(1, timeout).await;
        self.fill_async(permit.map_err(|error| self.none_free(&error, limit))?, create).await
    }

    /// Drops all idle resources, after a failover, say. Those in use stay.
    pub fn clear_idle(&self) {
        // Dropped after the lock is released: closing a connection may take a while.
        let idle = std::mem::take(&mut *self.shared.idle.lock());
        drop(idle);
    }

    /// The maximum number of resources.
    pub fn size(&self) -> u64 {
        self.shared.permits.limit()
    }

    /// The number of resources in use.
    pub fn in_use(&self) -> u64 {
        self.size().saturating_sub(self.shared.permits.available())
    }

    /// The number of idle resources.
    pub fn idle(&self) -> usize {
        self.shared.idle.lock().len()
    }

    /// The number of queued requests.
    pub fn waiting(&self) -> usize {
        self.shared.permits.waiting()
    }

    fn build(name: Box<str>, settings: Settings<T>, permits: ConcurrencyLimiter) -> Self {
        Self { shared: Arc::new(PoolState { name, settings, permits, idle: Mutex::new(Vec::new()) }) }
    }

    fn rebuilt(self, change: impl FnOnce(&mut Settings<T>)) -> Self {
        let PoolState { name, settings, permits, .. } = &*self.shared;
        let mut settings = settings.clone();
        change(&mut settings);
        Self::build(name.clone(), settings, permits.clone())
    }

    /// Without an idle resource, a new one. A panic of `create` releases the permit.
    fn fill<E>(&self, permit: Permit, create: impl FnOnce() -> Result<T, E>) -> Result<Pooled<T>, PoolError<E>> {
        let resource = match self.take_idle() {
            Some(resource) => resource,
            None => create().map_err(|error| self.not_created(error))?,
        };
        Ok(self.guard(resource, permit))
    }

    #[cfg(feature = "async")]
    async fn fill_async<E, F>(&self, permit: Permit, create: impl FnOnce() -> F) -> Result<Pooled<T>, PoolError<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let resource = match self.take_idle() {
            Some(resource) => resource,
            None => create().await.map_err(|error| self.not_created(error))?,
        };
        Ok(self.guard(resource, permit))
    }

    fn take_idle(&self) -> Option<T> {
        loop {
            let mut resource = self.shared.idle.lock().pop()?;
            if self.shared.settings.check.as_ref().is_none_or(|is_usable| is_usable(&mut resource)) {
                return Some(resource);
            }
        }
    }

    fn guard(&self, resource: T, permit: Permit) -> Pooled<T> {
        Pooled { resource: Some(resource), shared: Arc::clone(&self.shared), _permit: permit }
    }

    /// `limit` is the time at which the request began to wait, and its timeout.
    #[cold]
    fn none_free<E>(&self, error: &PermitError, limit: Option<(Timestamp, Duration)>) -> PoolError<E> {
        let PoolState { name, settings, permits, .. } = &*self.shared;
        let (in_use, waiting) = match error {
            PermitError::InUse { in_use, waiting, .. } => (*in_use, *waiting),
            _ => (self.in_use(), self.waiting()),
        };
        // A request that was denied earlier found a full queue.
        let within = limit.filter(|(start, timeout)| permits.now().since(*start) >= *timeout);
        PoolError::NoneFree {
            pool: name.to_string(),
            resource: settings.resource.to_string(),
            within: within.map(|(_, timeout)| timeout),
            in_use,
            waiting,
            max_waiting: permits.max_waiting(),
        }
    }

    #[cold]
    fn not_created<E>(&self, error: E) -> PoolError<E> {
        let PoolState { name, settings, .. } = &*self.shared;
        PoolError::Create { pool: name.to_string(), resource: settings.resource.to_string(), error }
    }
}

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Clone for Settings<T> {
    fn clone(&self) -> Self {
        let Self { resource, max_idle, check } = self;
        Self { resource: resource.clone(), max_idle: *max_idle, check: check.clone() }
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pool = f.debug_struct("Pool");
        pool.field("name", &self.shared.name).field("size", &self.size()).field("in_use", &self.in_use());
        pool.field("idle", &self.idle()).field("waiting", &self.waiting()).finish()
    }
}

/// A resource of a pool, which is returned when this is dropped.
#[must_use = "dropping it returns the resource"]
pub struct Pooled<T> {
    /// `None` only while it is dropped.
    resource: Option<T>,
    shared: Arc<PoolState<T>>,
    // Dropped last, when the resource is idle or dropped.
    _permit: Permit,
}

impl<T> Pooled<T> {
    /// Drops the resource instead of returning it, since it is broken. Another one may be created.
    pub fn discard(mut self) {
        drop(self.resource.take());
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.resource.as_ref().unwrap_or_else(|| unreachable!("it is taken only when the guard is dropped"))
    }
}

impl<T> DerefMut for Pooled<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.resource.as_mut().unwrap_or_else(|| unreachable!("it is taken only when the guard is dropped"))
    }
}

impl<T> Drop for Pooled<T> {
    fn drop(&mut self) {
        let Some(resource) = self.resource.take() else { return };
        // After a panic, the resource may be in the middle of something: a transaction, a half-read response.
        if std::thread::panicking() {
            return;
        }
        let mut idle = self.shared.idle.lock();
        if idle.len() < self.shared.settings.max_idle {
            idle.push(resource);
        }
        // Else it is dropped here, after the lock is released: locals are dropped in reverse order.
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled").field("pool", &self.shared.name).field("resource", &self.resource).finish()
    }
}
