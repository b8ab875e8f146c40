//! Call sites with shared counts.

use super::{AttributeOptions, CallKey};
#[cfg(feature = "redis")]
use crate::limited::Limits;
use crate::limited::{Cause, Limited};
#[cfg(feature = "redis")]
use {
    super::attribute_options::{AttributeAlgorithm, denial_cause},
    super::block_on::block_on,
    super::cache::Cache,
    diana_redis::SharedLimiter,
    tokio::runtime::Handle,
};

/// A call site with shared counts.
#[derive(Debug)]
pub struct SharedCallSite {
    options: AttributeOptions,
    #[cfg(feature = "redis")]
    cache: Cache<SharedLimiter>,
}

#[cfg(feature = "redis")]
impl SharedCallSite {
    /// Creates a call site that was not called yet.
    pub const fn new(options: AttributeOptions) -> Self {
        Self { options, cache: Cache::new() }
    }

    /// Acquires one permit, blocking this thread for at most the attribute's timeout.
    pub fn wait(&'static self, key: &CallKey<'_>) -> Result<(), Limited> {
        let limiter = self.limiter(key)?;
        let acquiring = limiter.acquire_timeout(key.to_bytes(), self.options.cost(), self.options.timeout);
        let acquired = block_on(Some(limiter.store().runtime()), acquiring);
        let acquired = acquired.and_then(|acquired| acquired.map_err(denial_cause));
        acquired.map(drop).map_err(|cause| self.options.limited(key, cause))
    }

    /// Acquires one permit, waiting for at most the attribute's timeout. Dropping the future refunds the permit.
    pub async fn wait_async(&'static self, key: CallKey<'_>) -> Result<(), Limited> {
        let limiter = self.limiter(&key)?;
        if Handle::try_current().is_err() {
            return Err(self.options.limited(&key, Cause::NoRuntime));
        }
        let acquired = limiter.acquire_timeout(key.to_bytes(), self.options.cost(), self.options.timeout).await;
        acquired.map(drop).map_err(|error| self.options.limited(&key, denial_cause(error)))
    }

    fn limiter(&'static self, key: &CallKey<'_>) -> Result<SharedLimiter, Limited> {
        let limiter = self.cache.with(self.options.instance, |limits| self.look_up(limits), Clone::clone);
        limiter.map_err(|cause| self.options.limited(key, cause))
    }

    fn look_up(&'static self, limits: &Limits) -> Result<SharedLimiter, Cause> {
        let store = limits.shared().ok_or(Cause::NoSharedStore)?;
        // Processes share counts by name only, so the name must be unique.
        limits.claim(self.options.name, std::ptr::from_ref(self).addr())?;
        let limiter = match self.options.algorithm()? {
            AttributeAlgorithm::Rate(bucket) => SharedLimiter::new(store, self.options.name, bucket),
            AttributeAlgorithm::Smooth(smooth) => SharedLimiter::new(store, self.options.name, smooth),
            AttributeAlgorithm::Count(window) => SharedLimiter::new(store, self.options.name, window),
        };
        Ok(match self.options.expire {
            Some(expire) => limiter.with_min_expiry(expire),
            None => limiter,
        })
    }
}

/// Fails with an error at every call: there is no shared store without the `redis` feature.
#[cfg(not(feature = "redis"))]
impl SharedCallSite {
    /// Creates a call site that was not called yet.
    pub const fn new(options: AttributeOptions) -> Self {
        Self { options }
    }

    /// Always fails.
    pub fn wait(&'static self, key: &CallKey<'_>) -> Result<(), Limited> {
        Err(self.options.limited(key, Cause::NoSharedStore))
    }

    /// Always fails.
    pub async fn wait_async(&'static self, key: CallKey<'_>) -> Result<(), Limited> {
        self.wait(&key)
    }
}
