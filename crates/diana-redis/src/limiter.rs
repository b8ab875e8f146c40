//! Waiting for permits that many processes share.
//!
//! Where the algorithm can compute its next free time (buckets, smooth, intervals), a caller that may wait *reserves*:
//! Redis advances that time once and returns how long to wait. So concurrent callers get consecutive times, over all
//! processes, in the order in which Redis received them, without a lock and without polling.
//!
//! Where it can't (windows, logs, concurrency), the callers of one process are queued, and the first of them retries at
//! the time that Redis returned. Where no time is known, since a permit has to be released first, it retries after a
//! short interval.
//!
//! A caller that stops waiting, by dropping the future, refunds its reservation, or the permits that Redis grants to a
//! query that was already in flight.

mod grant;
mod key_limiter;
mod reservation;
mod turn_queue;

use crate::store::RedisStore;
use diana_core::{AcquireError, Algorithm, Answer, Ask, Clock, Cost, Decision, Limit, MaxWait, Outcome, Retry, Store};
use diana_core::{RefundFuture, StoreError, SystemClock, Timestamp, WaitMode};
pub use grant::{SharedGrant, SharedPermit};
pub use key_limiter::SharedKeyLimiter;
use reservation::Reservation;
use std::sync::Arc;
use std::time::Duration;
use turn_queue::TurnQueues;

/// The retry interval of the first in the queue, where the time of the next release is unknown.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One limit for each key, over all processes that have a limiter of this name on the same Redis.
///
/// Cloning is cheap; clones share their state. Dropping a waiting future refunds its reservation.
///
/// ```no_run
/// use diana_core::{Quota, TokenBucket};
/// use diana_redis::{Options, RedisStore, SharedLimiter};
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379", Options::default()).await?;
/// let messages = SharedLimiter::new(&store, "messages", TokenBucket::new(Quota::per_second(1)?));
///
/// messages.acquire("alice", 1).await?; // waits for its turn
/// if messages.acquire_timeout("alice", 1, Duration::from_secs(2)).await.is_ok() {
///     // had its turn within two seconds
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedLimiter {
    store: RedisStore,
    limit: Limit,
    queues: Arc<TurnQueues>,
}

impl SharedLimiter {
    /// Creates a limiter with this name and algorithm. All processes that share it must use the same name and
    /// parameters.
    pub fn new(store: &RedisStore, name: impl Into<Box<str>>, algorithm: impl Algorithm) -> Self {
        Self { store: store.clone(), limit: Limit::new(name, algorithm), queues: Arc::default() }
    }

    /// Keeps the keys on Redis for at least `min_expiry` after a grant, so that they can be inspected. Only token
    /// buckets and Guava's limiters support this: it is what `expire` of `#[rate_limit]` means. It does not change any answer.
    #[must_use]
    pub fn with_min_expiry(self, min_expiry: Duration) -> Self {
        self.store.set_min_expiry(self.limit.id(), min_expiry);
        self
    }

    /// Returns the store that counts this limit.
    pub fn store(&self) -> &RedisStore {
        &self.store
    }

    /// Returns the limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Takes `n` permits for `key` if they are available now.
    pub async fn check(&self, key: impl AsRef<[u8]>, n: u64) -> Result<SharedGrant, AcquireError> {
        let ask = [self.ask(key.as_ref(), Cost::new(n)?)];
        SharedGrant::new(self.store.decide(&ask, SystemClock.now(), MaxWait::NONE).await?)
    }

    /// Takes `n` permits for `key`, and completes when they can be used.
    ///
    /// Denied only if waiting would not help: for a cost above the capacity, or a total that is used up; or if 10,000
    /// callers are queued already.
    pub async fn acquire(&self, key: impl AsRef<[u8]>, n: u64) -> Result<SharedGrant, AcquireError> {
        self.wait(key.as_ref(), Cost::new(n)?, MaxWait::FOREVER).await
    }

    /// Takes `n` permits for `key` if they can be used within `timeout`, and completes when they can. Denied at once if
    /// they are known not to be available in time.
    pub async fn acquire_timeout(
        &self,
        key: impl AsRef<[u8]>,
        n: u64,
        timeout: Duration,
    ) -> Result<SharedGrant, AcquireError> {
        self.wait(key.as_ref(), Cost::new(n)?, MaxWait::up_to(timeout)).await
    }

    /// Takes `n` permits for `key` within `timeout`, and releases them when the guard is dropped: for concurrency limits.
    ///
    /// ```no_run
    /// use diana_core::Concurrency;
    /// # use diana_redis::{Options, RedisStore, SharedLimiter};
    /// use std::time::Duration;
    ///
    /// # async fn example(store: RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let exports = SharedLimiter::new(&store, "exports", Concurrency::new(4)?);
    /// let permit = exports.hold("all", 1, Duration::from_secs(10)).await?;
    /// // at most four of these at a time, over all processes
    /// drop(permit);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hold(&self, key: impl AsRef<[u8]>, n: u64, timeout: Duration) -> Result<SharedPermit, AcquireError> {
        let grant = self.acquire_timeout(key.as_ref(), n, timeout).await?;
        Ok(SharedPermit::new(self, key.as_ref(), grant.into_decision()))
    }

    /// Acquires like [`acquire`](Self::acquire), blocking this thread.
    ///
    /// The store's runtime must be driven by other threads meanwhile, as a multi-threaded runtime is.
    ///
    /// # Panics
    /// Within an async task, which must not block.
    pub fn blocking_acquire(&self, key: impl AsRef<[u8]>, n: u64) -> Result<SharedGrant, AcquireError> {
        self.store.runtime().block_on(self.acquire(key, n))
    }

    /// Acquires like [`acquire_timeout`](Self::acquire_timeout), blocking this thread.
    ///
    /// # Panics
    /// Within an async task, which must not block.
    pub fn blocking_acquire_timeout(
        &self,
        key: impl AsRef<[u8]>,
        n: u64,
        timeout: Duration,
    ) -> Result<SharedGrant, AcquireError> {
        self.store.runtime().block_on(self.acquire_timeout(key, n, timeout))
    }

    /// Refunds the permits that were granted to `key`.
    pub async fn refund(&self, key: impl AsRef<[u8]>, grant: &SharedGrant) -> Result<(), StoreError> {
        self.store.refund(&[self.ask(key.as_ref(), Cost::ONE)], grant.decision(), SystemClock.now()).await
    }

    /// Starts the refund of the permits that `decision` granted to `key`.
    fn start_refund(&self, key: &[u8], decision: &Decision) -> RefundFuture {
        self.store.spawn_refund(&[self.ask(key, Cost::ONE)], decision, SystemClock.now())
    }

    /// Resets `key` for all processes.
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<(), StoreError> {
        self.store.reset(&self.limit, key.as_ref(), SystemClock.now()).await
    }

    async fn wait(&self, key: &[u8], cost: Cost, max_wait: MaxWait) -> Result<SharedGrant, AcquireError> {
        let began = SystemClock.now();
        let reserved = match self.limit.wait_mode() {
            WaitMode::Reserve => self.reserve_with_retry(key, cost, began, max_wait).await?,
            WaitMode::Queue => self.reserve_in_turn(key, cost, began, max_wait).await?,
        };
        if let Some(wait) = reserved.decision().wait().filter(|wait| !wait.is_zero()) {
            sleep(wait).await;
        }
        let decision = reserved.into_decision();
        let waited = |answer: &Answer| match answer.outcome {
            Outcome::Granted { receipt, .. } => {
                let outcome = Outcome::Granted { wait: SystemClock.now().since(began), receipt };
                answer.with_outcome(outcome)
            }
            Outcome::Denied { .. } => *answer,
        };
        SharedGrant::new(Decision::new(decision.answers().iter().map(waited)).with_note(decision.note()))
    }

    /// Reserves. A denial that is only due to an unreachable Redis is retried, since the caller may wait.
    async fn reserve_with_retry(
        &self,
        key: &[u8],
        cost: Cost,
        began: Timestamp,
        max_wait: MaxWait,
    ) -> Result<Reservation, AcquireError> {
        let deadline = began + max_wait.as_duration();
        let mut reserved = self.reserve(key, cost, max_wait).await?;
        loop {
            let decision = reserved.decision();
            let remaining = deadline.since(SystemClock.now());
            match decision.retry() {
                Some(Retry::After(after)) if RedisStore::is_local(decision) && after <= remaining => sleep(after).await,
                _ => return Ok(reserved),
            }
            reserved = self.reserve(key, cost, MaxWait::up_to(deadline.since(SystemClock.now()))).await?;
        }
    }

    /// Queries Redis in a separate task, so that a grant can be refunded if the caller no longer waits for it.
    async fn reserve(&self, key: &[u8], cost: Cost, max_wait: MaxWait) -> Result<Reservation, AcquireError> {
        let (limiter, key) = (self.clone(), key.to_vec());
        let query = tokio::spawn(async move {
            let ask = [limiter.ask(&key, cost)];
            let decision = limiter.store.decide(&ask, SystemClock.now(), max_wait).await?;
            Ok(Reservation::new(&limiter, &key, decision))
        });
        // The task does not panic; if the runtime shuts down, this future is dropped too.
        query.await.unwrap_or_else(|_| Err(AcquireError::Store(runtime_ended())))
    }

    /// Waits in this process's queue, and then for the limit.
    async fn reserve_in_turn(
        &self,
        key: &[u8],
        cost: Cost,
        began: Timestamp,
        max_wait: MaxWait,
    ) -> Result<Reservation, AcquireError> {
        let deadline = began + max_wait.as_duration();
        if max_wait == MaxWait::NONE {
            return self.reserve(key, cost, max_wait).await;
        }
        let Some(_turn) = self.queues.join(key, deadline.since(began)).await else {
            // The queue is too long, or the maximum wait too short for it: answer with the current status.
            return self.reserve(key, cost, MaxWait::NONE).await.map(Reservation::denied);
        };
        loop {
            let reserved = self.reserve(key, cost, MaxWait::up_to(deadline.since(SystemClock.now()))).await?;
            let remaining = deadline.since(SystemClock.now());
            let delay = match reserved.decision().retry() {
                Some(Retry::After(after)) if after <= remaining => after,
                Some(Retry::WhenReleased) if !remaining.is_zero() => POLL_INTERVAL.min(remaining),
                // Granted, or waiting would not help.
                _ => return Ok(reserved),
            };
            sleep(delay).await;
        }
    }

    fn ask<'a>(&'a self, key: &'a [u8], cost: Cost) -> Ask<'a> {
        Ask::new(&self.limit, key, cost)
    }
}

/// Sleeps for this long, in several steps since tokio's timer is limited to two years.
async fn sleep(mut wait: Duration) {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    while wait > YEAR {
        tokio::time::sleep(YEAR).await;
        wait -= YEAR;
    }
    tokio::time::sleep(wait).await;
}

fn runtime_ended() -> StoreError {
    StoreError::Unreachable { store: "redis".to_owned(), reason: "the tokio runtime has shut down".to_owned() }
}
