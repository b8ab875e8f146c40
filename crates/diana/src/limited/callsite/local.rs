//! Call sites with local counts.

use super::attribute_options::{denial_cause, invalid_limit};
use super::cache::Cache;
use super::local_counts::Limit;
use super::{AttributeOptions, CallKey};
use crate::limited::{Cause, Limited, Limits};
use diana_core::{Answer, Outcome, Retry};
use std::sync::Arc;

/// A call site with local counts.
#[derive(Debug)]
pub struct LocalCallSite {
    options: AttributeOptions,
    cache: Cache<Arc<Limit>>,
}

impl LocalCallSite {
    /// Creates a call site that was not called yet.
    pub const fn new(options: AttributeOptions) -> Self {
        Self { options, cache: Cache::new() }
    }

    /// Acquires one permit without waiting.
    #[inline]
    pub fn check(&'static self, key: &CallKey<'_>) -> Result<(), Limited> {
        let check = |limit: &Arc<Limit>| limit.check(key, self.options.cost());
        match self.cache.with(self.options.instance, |limits| self.look_up(limits), check) {
            Ok(Ok(answer)) => self.to_result(key, answer),
            Ok(Err(invalid)) => Err(self.options.limited(key, invalid_limit(invalid))),
            Err(cause) => Err(self.options.limited(key, cause)),
        }
    }

    /// Acquires one permit, blocking this thread for at most the attribute's timeout.
    pub fn wait(&'static self, key: &CallKey<'_>) -> Result<(), Limited> {
        // The common case without a wait need not clone the counts.
        match self.check(key) {
            Err(limited) if self.is_worth_waiting(&limited) => {}
            result => return result,
        }
        let acquired = self.limit(key)?.blocking_acquire(key, self.options.cost(), self.options.timeout);
        acquired.map(drop).map_err(|error| self.options.limited(key, denial_cause(error)))
    }

    /// Acquires one permit, waiting for at most the attribute's timeout. Dropping the future refunds the permit if it
    /// is the last reservation.
    pub async fn wait_async(&'static self, key: CallKey<'_>) -> Result<(), Limited> {
        match self.check(&key) {
            Err(limited) if self.is_worth_waiting(&limited) => {}
            result => return result,
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(self.options.limited(&key, Cause::NoRuntime));
        }
        let limit = self.limit(&key)?;
        let acquired = limit.acquire(&key, self.options.cost(), self.options.timeout).await;
        acquired.map(drop).map_err(|error| self.options.limited(&key, denial_cause(error)))
    }

    /// Returns `true` if the timeout is long enough. If another call comes in between, the limiter decides again anyway.
    fn is_worth_waiting(&self, limited: &Limited) -> bool {
        limited.retry_after().is_some_and(|wait| wait <= self.options.timeout)
    }

    #[inline]
    fn to_result(&self, key: &CallKey<'_>, answer: Answer) -> Result<(), Limited> {
        match answer.outcome {
            Outcome::Granted { .. } => Ok(()),
            Outcome::Denied { retry } => Err(self.denied(key, retry)),
        }
    }

    #[cold]
    fn denied(&self, key: &CallKey<'_>, retry: Retry) -> Limited {
        self.options.limited(key, Cause::Exhausted { retry })
    }

    fn limit(&'static self, key: &CallKey<'_>) -> Result<Arc<Limit>, Limited> {
        let limit = self.cache.with(self.options.instance, |limits| self.look_up(limits), Arc::clone);
        limit.map_err(|cause| self.options.limited(key, cause))
    }

    fn look_up(&'static self, limits: &Limits) -> Result<Arc<Limit>, Cause> {
        limits.of_call_site(std::ptr::from_ref(self).addr(), |options| Limit::new(&self.options, options))
    }
}
