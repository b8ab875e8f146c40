//! Waiting for permits that many processes share.
//!
//! Where the algorithm knows its next free time (buckets, smooth, intervals), whoever is ready to wait *reserves*: Redis
//! moves the moment once and says how long to wait. So those who come together are promised times one after the other, over
//! all processes, in the order in which Redis saw them, and nobody holds a lock or asks again.
//!
//! Where it can't know (windows, logs, concurrency), those who wait in one process stand in line, and the first of them
//! asks again at the time that Redis named. Where no time can be named, since somebody has to give back first, it asks
//! again after a short while.
//!
//! Whoever stops waiting, by dropping the future, gives back: the reservation, or what Redis grants to a question that was
//! already under way.

mod permit;
mod reservation;
mod wait_queue;

use crate::store::RedisStore;
use diana_core::{Algorithm, Answer, Ask, Clock, Cost, Decision, InvalidCost, Limit, MaxWait, Outcome, Retry, Store};
use diana_core::{RefundFuture, StoreError, SystemClock, Timestamp, Waiting};
pub use permit::{PermitError, SharedPermit};
use reservation::Reservation;
use std::sync::Arc;
use std::time::Duration;
use wait_queue::WaitQueues;

/// How long the first in line waits before it asks again, where nobody can say when somebody gives back.
const SHORT_WHILE: Duration = Duration::from_millis(20);

/// One limit for each key, over all processes that have one of this name on the same Redis.
///
/// Clones are the same limiter. Dropping a future that waits gives back what it reserved.
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
/// if messages.acquire("alice", 1).await?.is_granted() {
///     // waited for its turn
/// }
/// if messages.try_acquire("alice", 1, Duration::from_secs(2)).await?.is_granted() {
///     // had its turn within two seconds
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedLimiter {
    store: RedisStore,
    limit: Limit,
    lines: Arc<WaitQueues>,
}

/// Why nothing was acquired. Being denied is not here: that is a decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Nobody can ask for that many.
    #[error(transparent)]
    Cost(#[from] InvalidCost),
    /// The limit can't be kept on Redis.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SharedLimiter {
    /// The limit of this name, by any algorithm. Those who share it have the same name and parameters.
    pub fn new(store: &RedisStore, name: impl Into<Box<str>>, algorithm: impl Algorithm) -> Self {
        Self { store: store.clone(), limit: Limit::new(name, algorithm), lines: Arc::default() }
    }

    /// The same limiter whose keys stay on Redis for at least `least` after a grant, for those who look at them there. Only
    /// Guava's limiters know it: it is what `expire` of `#[rate_limit]` means. No answer changes.
    #[doc(hidden)]
    #[must_use]
    pub fn keeping_keys_for(self, least: Duration) -> Self {
        self.store.keep_keys(self.limit.id(), least);
        self
    }

    /// Where it is counted.
    pub fn store(&self) -> &RedisStore {
        &self.store
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Takes `n` permits for `key` if they are there right now.
    pub async fn check(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, AcquireError> {
        let ask = [self.ask(key.as_ref(), Cost::new(n)?)];
        Ok(self.store.decide(&ask, SystemClock.now(), MaxWait::NONE).await?)
    }

    /// Takes `n` permits for `key`, and is ready when they can be used. [`Decision::wait`] tells how long that took.
    ///
    /// Denied only if waiting would not help: for a cost above the capacity, or a total that is used up; or if 10,000 wait
    /// in line already. So look at the decision before you go on.
    pub async fn acquire(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, AcquireError> {
        self.wait(key.as_ref(), Cost::new(n)?, MaxWait::FOREVER).await
    }

    /// Takes `n` permits for `key` if they can be used within `timeout`, and is ready when they can. Denied at once where
    /// that is known not to be so.
    pub async fn try_acquire(
        &self,
        key: impl AsRef<[u8]>,
        n: u64,
        timeout: Duration,
    ) -> Result<Decision, AcquireError> {
        self.wait(key.as_ref(), Cost::new(n)?, MaxWait::up_to(timeout)).await
    }

    /// Takes `n` permits for `key` within `timeout`, and gives them back when the guard is dropped: for concurrency.
    ///
    /// ```no_run
    /// use diana_core::Concurrency;
    /// # use diana_redis::{Options, RedisStore, SharedLimiter};
    /// use std::time::Duration;
    ///
    /// # async fn example(store: RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let exports = SharedLimiter::new(&store, "exports", Concurrency::new(4)?);
    /// let place = exports.hold("everyone", 1, Duration::from_secs(10)).await?;
    /// // at most four of these at a time, over all processes
    /// drop(place);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hold(&self, key: impl AsRef<[u8]>, n: u64, timeout: Duration) -> Result<SharedPermit, PermitError> {
        let decision = self.try_acquire(key.as_ref(), n, timeout).await?;
        if decision.is_granted() {
            return Ok(SharedPermit::new(self, key.as_ref(), decision));
        }
        Err(PermitError::Denied { limit: self.limit.name().to_owned(), decision: Box::new(decision) })
    }

    /// [`acquire`](Self::acquire), blocking this thread.
    ///
    /// The store's runtime must run elsewhere meanwhile, as one with worker threads does.
    ///
    /// # Panics
    /// Within an async task, which must not block.
    pub fn acquire_blocking(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, AcquireError> {
        self.store.runtime().block_on(self.acquire(key, n))
    }

    /// [`try_acquire`](Self::try_acquire), blocking this thread.
    ///
    /// # Panics
    /// Within an async task, which must not block.
    pub fn try_acquire_blocking(
        &self,
        key: impl AsRef<[u8]>,
        n: u64,
        timeout: Duration,
    ) -> Result<Decision, AcquireError> {
        self.store.runtime().block_on(self.try_acquire(key, n, timeout))
    }

    /// Gives back what `decision` granted to `key`.
    pub async fn give_back(&self, key: impl AsRef<[u8]>, decision: &Decision) -> Result<(), StoreError> {
        self.store.refund(&[self.ask(key.as_ref(), Cost::ONE)], decision, SystemClock.now()).await
    }

    /// Begins to give back what `decision` granted to `key`.
    fn start_giving_back(&self, key: &[u8], decision: &Decision) -> RefundFuture {
        self.store.spawn_refund(&[self.ask(key, Cost::ONE)], decision, SystemClock.now())
    }

    /// Makes `key` as good as new, for all processes.
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<(), StoreError> {
        self.store.reset(&self.limit, key.as_ref(), SystemClock.now()).await
    }

    async fn wait(&self, key: &[u8], cost: Cost, max_wait: MaxWait) -> Result<Decision, AcquireError> {
        let began = SystemClock.now();
        let reserved = match self.limit.waiting() {
            Waiting::Reserves => self.reserve_when_there(key, cost, began, max_wait).await?,
            Waiting::Queues => self.stand_in_line(key, cost, began, max_wait).await?,
        };
        if let Some(wait) = reserved.decision().wait().filter(|wait| !wait.is_zero()) {
            sleep(wait).await;
        }
        let decision = reserved.keep();
        let waited = |answer: &Answer| match answer.outcome {
            Outcome::Granted { receipt, .. } => {
                let outcome = Outcome::Granted { wait: SystemClock.now().since(began), receipt };
                Answer { outcome, ..*answer }
            }
            Outcome::Denied { .. } => *answer,
        };
        Ok(Decision::new(decision.answers().iter().map(waited)).with_note(decision.note()))
    }

    /// Reserves. While Redis is away and everything is denied, that is no answer to somebody who can wait.
    async fn reserve_when_there(
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
            let left = deadline.since(SystemClock.now());
            match decision.retry() {
                Some(Retry::After(after)) if RedisStore::is_made_here(decision) && after <= left => sleep(after).await,
                _ => return Ok(reserved),
            }
            reserved = self.reserve(key, cost, MaxWait::up_to(deadline.since(SystemClock.now()))).await?;
        }
    }

    /// Asks in a task of its own, so that an answer that nobody waits for any more is still there to be given back.
    async fn reserve(&self, key: &[u8], cost: Cost, max_wait: MaxWait) -> Result<Reservation, AcquireError> {
        let (limiter, key) = (self.clone(), key.to_vec());
        let asking = tokio::spawn(async move {
            let ask = [limiter.ask(&key, cost)];
            let decision = limiter.store.decide(&ask, SystemClock.now(), max_wait).await?;
            Ok(Reservation::new(&limiter, &key, decision))
        });
        // The task does not panic; if the runtime ends, nobody waits here either.
        asking.await.unwrap_or_else(|_| Err(AcquireError::Store(gone())))
    }

    /// Waits for its turn in this process, and then for the limit.
    async fn stand_in_line(
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
        let Some(_turn) = self.lines.join(key, deadline.since(began)).await else {
            // Too long a line, or too little maximum wait for it: the answer is what it is right now.
            return self.reserve(key, cost, MaxWait::NONE).await.map(Reservation::denied);
        };
        loop {
            let reserved = self.reserve(key, cost, MaxWait::up_to(deadline.since(SystemClock.now()))).await?;
            let left = deadline.since(SystemClock.now());
            let again = match reserved.decision().retry() {
                Some(Retry::After(after)) if after <= left => after,
                Some(Retry::WhenReturned) if !left.is_zero() => SHORT_WHILE.min(left),
                // Granted, or hopeless.
                _ => return Ok(reserved),
            };
            sleep(again).await;
        }
    }

    fn ask<'a>(&'a self, key: &'a [u8], cost: Cost) -> Ask<'a> {
        Ask::new(&self.limit, key, cost)
    }
}

/// Sleeps for this long; tokio's timer takes two years at most.
async fn sleep(mut wait: Duration) {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    while wait > YEAR {
        tokio::time::sleep(YEAR).await;
        wait -= YEAR;
    }
    tokio::time::sleep(wait).await;
}

fn gone() -> StoreError {
    StoreError::Unreachable { store: "redis".to_owned(), reason: "the runtime has ended".to_owned() }
}
