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
//! With a [`PermitSource`], a new resource needs a permit of the source as well, which it holds until it is dropped. A request
//! that waits for one takes an idle resource instead, if one is returned first.
//!
//! # What always holds (tests/shuttle/pool.rs, tests/it/pool.rs)
//! - At most as many resources exist as there are permits: one is created only with a permit, and only if none is idle; and
//!   it is idle or dropped before its permit is released.
//! - Requests are served in order, or time out. An error or a panic of `create`, or of a user of a resource, loses no
//!   permit.

mod error;
mod stock;
#[cfg(feature = "async")]
mod with_source;

pub use error::PoolError;

#[cfg(feature = "async")]
use crate::permit_source::{PermitSource, SourceError, SourcePermit};
use crate::sync::{Arc, Mutex};
use crate::{Clock, ConcurrencyLimiter, ConcurrencyPermit, InvalidQuota, PermitError, Timestamp};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc as StdArc;
use std::time::Duration;
use stock::{Existing, Stock};

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
/// | [`with_idle_timeout`](Self::with_idle_timeout) | HikariCP's `idleTimeout` |
/// | [`with_check`](Self::with_check) | Tomcat JDBC's `testOnBorrow` |
/// | [`resize`](Self::resize) | HikariCP's `setMaximumPoolSize` |
///
/// [`from_source`](Self::from_source) takes the permits of a rule, or of a total that several processes share.
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
    stock: Mutex<Stock<T>>,
}

/// Returns whether an idle resource is still usable.
type Check<T> = StdArc<dyn Fn(&mut T) -> bool + Send + Sync>;

struct Settings<T> {
    resource: Box<str>,
    max_idle: usize,
    idle_timeout: Option<Duration>,
    check: Option<Check<T>>,
    #[cfg(feature = "async")]
    source: Option<with_source::Source<T>>,
}

impl<T> Pool<T> {
    /// Creates a pool of at most `size` resources, and none yet. Errors name it `name`.
    pub fn new(name: impl Into<Box<str>>, size: u64) -> Result<Self, InvalidQuota> {
        let name = name.into();
        let permits = ConcurrencyLimiter::new(name.clone(), size)?;
        let settings = Settings {
            resource: "resource".into(),
            max_idle: usize::MAX,
            idle_timeout: None,
            check: None,
            #[cfg(feature = "async")]
            source: None,
        };
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

    /// Returns a pool like this one that closes resources that are unused for `timeout`. Without a source, they are closed at
    /// the next use of the pool. The default is to keep them; with a source it is a minute, so that others get its permits. For
    /// setup only.
    #[must_use]
    pub fn with_idle_timeout(self, timeout: Duration) -> Self {
        self.rebuilt(|settings| settings.idle_timeout = Some(timeout))
    }

    /// Returns a pool like this one that checks an idle resource before it is used again, and drops it if `is_usable` returns
    /// `false`. For setup only.
    #[must_use]
    pub fn with_check(self, is_usable: impl Fn(&mut T) -> bool + Send + Sync + 'static) -> Self {
        self.rebuilt(|settings| settings.check = Some(StdArc::new(is_usable)))
    }

    /// Returns a pool like this one on another clock. For setup only.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        let permits = self.shared.permits.clone().with_clock(clock);
        Self::build(self.shared.name.clone(), self.shared.settings.clone(), permits)
    }

    /// Returns an idle resource or a new one, without waiting. A source that is shared over a network blocks this thread until it
    /// has answered.
    pub fn try_get<E>(&self, create: impl FnOnce() -> Result<T, E>) -> Result<Pooled<T>, PoolError<E>> {
        let permit = self.shared.permits.try_acquire(1).map_err(|error| self.none_free(&error, None))?;
        self.fill(permit, Some(Duration::ZERO), create)
    }

    /// Returns an idle resource or a new one, blocking this thread until there is one.
    pub fn blocking_get<E>(&self, create: impl FnOnce() -> Result<T, E>) -> Result<Pooled<T>, PoolError<E>> {
        let permit = self.shared.permits.blocking_acquire(1).map_err(|error| self.none_free(&error, None))?;
        self.fill(permit, None, create)
    }

    /// Returns an idle resource or a new one, blocking this thread for at most `timeout`. The time that `create` takes is not
    /// part of it.
    pub fn blocking_get_timeout<E>(
        &self,
        timeout: Duration,
        create: impl FnOnce() -> Result<T, E>,
    ) -> Result<Pooled<T>, PoolError<E>> {
        let began = self.shared.permits.now();
        let permit = self.shared.permits.blocking_acquire_timeout(1, timeout);
        let permit = permit.map_err(|error| self.none_free(&error, Some((began, timeout))))?;
        self.fill(permit, Some(timeout.saturating_sub(self.shared.permits.now().since(began))), create)
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
        self.fill_async(permit, None, create).await
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
        let began = self.shared.permits.now();
        let permit = self.shared.permits.acquire_timeout(1, timeout).await;
        let permit = permit.map_err(|error| self.none_free(&error, Some((began, timeout))))?;
        let left = timeout.saturating_sub(self.shared.permits.now().since(began));
        self.fill_async(permit, Some(left), create).await
    }

    /// Drops all idle resources, for example after a failover. Resources in use stay.
    pub fn clear_idle(&self) {
        // Dropped after the lock is released: closing a connection may take a while.
        let idle = self.shared.stock.lock().take_idle_over(0);
        self.shared.close(idle);
    }

    /// Changes the maximum number of resources. Those in use stay; over the new size, they are dropped instead of returned.
    pub fn resize(&self, size: u64) -> Result<(), InvalidQuota> {
        self.shared.permits.resize(size)?;
        let size = self.size();
        let excess = self.shared.stock.lock().take_idle_over(size);
        self.shared.close(excess);
        Ok(())
    }

    /// Returns the maximum number of resources: its own size, or the limit of its source if that is smaller.
    pub fn size(&self) -> u64 {
        let own_size = self.shared.permits.limit();
        #[cfg(feature = "async")]
        if let Some(limit) = self.shared.settings.source.as_ref().and_then(|source| source.permits.limit()) {
            return own_size.min(limit);
        }
        own_size
    }

    /// Returns the number of resources in use.
    pub fn in_use(&self) -> u64 {
        let permits = &self.shared.permits;
        // After `resize` more may be in use than there are permits; while one is created, fewer.
        permits.limit().saturating_sub(permits.available()).max(self.shared.stock.lock().in_use())
    }

    /// Returns the number of idle resources.
    pub fn idle(&self) -> usize {
        self.shared.stock.lock().idle()
    }

    /// Returns the number of queued requests.
    pub fn waiting(&self) -> usize {
        let queued = self.shared.permits.waiting();
        #[cfg(feature = "async")]
        return queued + self.shared.stock.lock().waiting();
        #[cfg(not(feature = "async"))]
        queued
    }

    fn build(name: Box<str>, settings: Settings<T>, permits: ConcurrencyLimiter) -> Self {
        Self { shared: Arc::new(PoolState { name, settings, permits, stock: Mutex::new(Stock::new()) }) }
    }

    fn rebuilt(self, change: impl FnOnce(&mut Settings<T>)) -> Self {
        let PoolState { name, settings, permits, .. } = &*self.shared;
        let mut settings = settings.clone();
        change(&mut settings);
        Self::build(name.clone(), settings, permits.clone())
    }

    /// Returns a new resource, or one that becomes idle first. A panic of `create` releases the permits. `timeout` is for the source.
    #[cfg_attr(not(feature = "async"), expect(unused_variables, reason = "there is no source"))]
    fn fill<E>(
        &self,
        permit: ConcurrencyPermit,
        timeout: Option<Duration>,
        create: impl FnOnce() -> Result<T, E>,
    ) -> Result<Pooled<T>, PoolError<E>> {
        #[cfg(feature = "async")]
        if let Some(source) = &self.shared.settings.source {
            return match self.blocking_obtain(source, timeout)? {
                with_source::Obtained::Idle(existing) => Ok(self.guard(existing, permit)),
                with_source::Obtained::Permit(of_source) => {
                    let resource = create().map_err(|error| self.not_created(error))?;
                    Ok(self.guard_new(Existing { resource, _permit: Some(of_source) }, permit))
                }
            };
        }
        if let Some(existing) = self.take_idle() {
            return Ok(self.guard(existing, permit));
        }
        let resource = create().map_err(|error| self.not_created(error))?;
        let existing = Existing {
            resource,
            #[cfg(feature = "async")]
            _permit: None,
        };
        Ok(self.guard_new(existing, permit))
    }

    #[cfg(feature = "async")]
    async fn fill_async<E, F>(
        &self,
        permit: ConcurrencyPermit,
        timeout: Option<Duration>,
        create: impl FnOnce() -> F,
    ) -> Result<Pooled<T>, PoolError<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let of_source = match &self.shared.settings.source {
            Some(source) => match self.obtain(source, timeout).await? {
                with_source::Obtained::Idle(existing) => return Ok(self.guard(existing, permit)),
                with_source::Obtained::Permit(of_source) => Some(of_source),
            },
            None => match self.take_idle() {
                Some(existing) => return Ok(self.guard(existing, permit)),
                None => None,
            },
        };
        let resource = create().await.map_err(|error| self.not_created(error))?;
        Ok(self.guard_new(Existing { resource, _permit: of_source }, permit))
    }

    fn take_idle(&self) -> Option<Existing<T>> {
        self.close_expired();
        loop {
            let existing = self.shared.stock.lock().take()?;
            if let Some(usable) = self.checked(existing) {
                return Some(usable);
            }
        }
    }

    /// Returns the resource if it is still usable.
    fn checked(&self, mut existing: Existing<T>) -> Option<Existing<T>> {
        let is_usable = self.shared.settings.check.as_ref().is_none_or(|is_usable| is_usable(&mut existing.resource));
        if is_usable {
            return Some(existing);
        }
        self.shared.close([existing]);
        None
    }

    /// Closes the resources that were idle for too long.
    fn close_expired(&self) {
        let PoolState { settings, permits, stock, .. } = &*self.shared;
        let Some(timeout) = settings.idle_timeout else { return };
        let (expired, _) = stock.lock().take_expired(permits.now(), timeout);
        self.shared.close(expired);
    }

    /// Returns the resource to the idle ones, or drops it.
    fn put_back(&self, existing: Existing<T>) {
        self.close_expired();
        let (max, size, now) = (self.shared.settings.max_idle, self.size(), self.shared.permits.now());
        let excess = self.shared.stock.lock().put(existing, now, max, size);
        match excess {
            Some(excess) => self.shared.close([excess]),
            #[cfg(feature = "async")]
            None => self.sweep_later(),
            #[cfg(not(feature = "async"))]
            None => {}
        }
    }

    fn guard_new(&self, existing: Existing<T>, permit: ConcurrencyPermit) -> Pooled<T> {
        self.shared.stock.lock().created();
        self.guard(existing, permit)
    }

    fn guard(&self, existing: Existing<T>, permit: ConcurrencyPermit) -> Pooled<T> {
        Pooled { existing: Some(existing), pool: self.clone(), _permit: permit }
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
        let within = limit.filter(|(start, timeout)| !timeout.is_zero() && permits.now().since(*start) >= *timeout);
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

impl<T> PoolState<T> {
    /// Drops resources, while the lock is not held since that may take a while, and then their permits of the source; those that
    /// wait for a permit are woken last.
    fn close(&self, resources: impl IntoIterator<Item = Existing<T>>) {
        let closed = resources.into_iter().map(drop).count();
        self.stock.lock().count_closed(closed);
    }
}

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Clone for Settings<T> {
    fn clone(&self) -> Self {
        Self {
            resource: self.resource.clone(),
            max_idle: self.max_idle,
            idle_timeout: self.idle_timeout,
            check: self.check.clone(),
            #[cfg(feature = "async")]
            source: self.source.clone(),
        }
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
    existing: Option<Existing<T>>,
    pool: Pool<T>,
    // Dropped last, when the resource is idle or dropped.
    _permit: ConcurrencyPermit,
}

impl<T> Pooled<T> {
    /// Drops the resource instead of returning it, since it is broken. Another one may be created.
    pub fn discard(mut self) {
        self.close();
    }

    fn close(&mut self) {
        if let Some(existing) = self.existing.take() {
            self.pool.shared.close([existing]);
        }
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.existing {
            Some(existing) => &existing.resource,
            None => unreachable!("it is taken only when the guard is dropped"),
        }
    }
}

impl<T> DerefMut for Pooled<T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.existing {
            Some(existing) => &mut existing.resource,
            None => unreachable!("it is taken only when the guard is dropped"),
        }
    }
}

impl<T> Drop for Pooled<T> {
    fn drop(&mut self) {
        // After a panic, the resource may be in the middle of something: a transaction, a half-read response.
        if std::thread::panicking() {
            self.close();
        }
        if let Some(existing) = self.existing.take() {
            self.pool.put_back(existing);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = self.existing.as_ref().map(|existing| &existing.resource);
        f.debug_struct("Pooled").field("pool", &self.pool.shared.name).field("resource", &resource).finish()
    }
}
