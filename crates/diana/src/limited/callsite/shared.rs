//! Call sites with shared counts.

use super::{Key, Spec};
#[cfg(feature = "redis")]
use crate::limited::Limits;
use crate::limited::{Cause, Limited};
#[cfg(feature = "redis")]
use {
    super::block_on,
    super::cache::Cache,
    super::spec::{Counting, not_acquired},
    diana_redis::SharedLimiter,
    tokio::runtime::Handle,
};

/// A call site with shared counts.
#[derive(Debug)]
pub struct SharedSite {
    says: Spec,
    #[cfg(feature = "redis")]
    found: Cache<SharedLimiter>,
}

#[cfg(feature = "redis")]
impl SharedSite {
    /// Creates a call site that was not called yet.
    pub const fn new(says: Spec) -> Self {
        Self { says, found: Cache::new() }
    }

    /// Acquires one permit, blocking this thread for at most the attribute's timeout.
    pub fn wait(&'static self, key: &Key<'_>) -> Result<(), Limited> {
        let limiter = self.limiter(key)?;
        let asking = limiter.acquire_timeout(key.to_bytes(), 1, self.says.timeout);
        let acquired = block_on::on(Some(limiter.store().runtime()), asking);
        let acquired = acquired.and_then(|acquired| acquired.map_err(not_acquired));
        acquired.map(drop).map_err(|cause| self.says.limited(key, cause))
    }

    /// Acquires one permit, waiting for at most the attribute's timeout. Dropping the future refunds the permit.
    pub async fn wait_async(&'static self, key: Key<'_>) -> Result<(), Limited> {
        if Handle::try_current().is_err() {
            return Err(self.says.limited(&key, Cause::NoRuntime));
        }
        let limiter = self.limiter(&key)?;
        let acquired = limiter.acquire_timeout(key.to_bytes(), 1, self.says.timeout).await;
        acquired.map(drop).map_err(|error| self.says.limited(&key, not_acquired(error)))
    }

    fn limiter(&'static self, key: &Key<'_>) -> Result<SharedLimiter, Limited> {
        let found = self.found.ask(self.says.instance, |limits| self.look_up(limits), Clone::clone);
        found.map_err(|cause| self.says.limited(key, cause))
    }

    fn look_up(&'static self, limits: &Limits) -> Result<SharedLimiter, Cause> {
        let store = limits.shared().ok_or(Cause::NotShared)?;
        // Processes share counts by name only, so the name must be unique.
        limits.claim(self.says.name, std::ptr::from_ref(self).addr())?;
        let limiter = match self.says.counting()? {
            Counting::Rate(smooth) => SharedLimiter::new(store, self.says.name, smooth),
            Counting::Count(window) => SharedLimiter::new(store, self.says.name, window),
        };
        Ok(match self.says.expire {
            Some(expire) => limiter.with_min_expiry(expire),
            None => limiter,
        })
    }
}

/// Without the `redis` feature there is no shared store; every call fails with an error.
#[cfg(not(feature = "redis"))]
impl SharedSite {
    /// Creates a call site that was not called yet.
    pub const fn new(says: Spec) -> Self {
        Self { says }
    }

    /// Always fails.
    pub fn wait(&'static self, key: &Key<'_>) -> Result<(), Limited> {
        Err(self.says.limited(key, Cause::NotShared))
    }

    /// Always fails.
    pub async fn wait_async(&'static self, key: Key<'_>) -> Result<(), Limited> {
        self.wait(&key)
    }
}
