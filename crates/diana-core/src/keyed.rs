//! One limit for each key, for library users.

use crate::clock::LimiterClock;
use crate::limiter::MAX_WAITING;
use crate::limiter::cell::ConfiguredRate;
use crate::store::budget::Budget;
use crate::store::erased_algorithm::AnyAlgorithm;
use crate::store::erased_table::{KeyChange, KeyQuery, Keys};
use crate::store::memory::TableOptions;
use crate::store::shards::Shards;
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};
#[cfg(feature = "async")]
use crate::wait::future;
use crate::wait::queues::WaitQueues;
use crate::wait::{Source, thread};
use crate::{AcquireError, Algorithm, Answer, Clock, Cost, Grant, InvalidCost, MaxWait, Quota, Receipt, Refund};
use crate::{Status, Timestamp, TokenBucket, WaitMode};
use std::hash::Hash;
use std::marker::PhantomData;
use std::time::Duration;

/// One limit for each key: an account, an address, a path.
///
/// Keys are not stored, only a 64-bit keyed hash of each, so a token bucket takes some 20 bytes per key,
/// regardless of its length. Keys that are full again are dropped automatically, and memory is bounded: see [`TableOptions`].
///
/// ```
/// use diana_core::{KeyedLimiter, Quota};
///
/// let limiter = KeyedLimiter::new(Quota::per_minute(2)?);
/// assert!(limiter.check("alice").is_granted());
/// assert!(limiter.check("alice").is_granted());
/// assert!(!limiter.check("alice").is_granted());
/// assert!(limiter.check("bob").is_granted()); // bob is counted separately
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
///
/// `K` is the key type. Keys are only borrowed, so use `KeyedLimiter<str>` for strings.
#[derive(Debug)]
pub struct KeyedLimiter<K: ?Sized> {
    shards: Shards<Keys>,
    /// [`WaitMode`] as a number, since the limit can change.
    wait_mode: AtomicUsize,
    /// Locked while the limit is changed.
    rate: Mutex<ConfiguredRate>,
    options: TableOptions,
    budget: Arc<Budget>,
    queues: WaitQueues,
    time: LimiterClock,
    /// Keys are only read, so a limiter for `'static` strings accepts all strings.
    key: PhantomData<fn() -> *const K>,
}

impl<K: Hash + ?Sized> KeyedLimiter<K> {
    /// Creates a token bucket with `quota` for each key.
    pub fn new(quota: Quota) -> Self {
        Self::with_algorithm(TokenBucket::new(quota))
    }

    /// Creates a limit with any algorithm for each key.
    pub fn with_algorithm(algorithm: impl Algorithm) -> Self {
        Self::with_options(algorithm, TableOptions::default())
    }

    /// Creates a limit with any algorithm for each key, in a table with these options.
    pub fn with_options(algorithm: impl Algorithm, options: TableOptions) -> Self {
        let budget = options.budget();
        let shards = Shards::new(options.shard_count(), || Keys::new(&algorithm, options.full(), Arc::clone(&budget)));
        Self {
            shards,
            wait_mode: AtomicUsize::new(usize::from(Algorithm::wait_mode(&algorithm) == WaitMode::Queue)),
            rate: Mutex::new(ConfiguredRate::of(&algorithm)),
            options,
            budget,
            queues: WaitQueues::new(MAX_WAITING),
            time: LimiterClock::default(),
            key: PhantomData,
        }
    }

    /// Returns the same limits, unused, on another clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        self.shards.lock_each().for_each(|mut keys| keys.restart());
        Self { time: LimiterClock::from_clock(clock), ..self }
    }

    /// Returns the same limits with at most `max` waiting requests over all keys; more are denied.
    #[must_use]
    pub fn with_max_waiting(self, max: usize) -> Self {
        Self { queues: self.queues.with_max(max), ..self }
    }

    /// Takes one permit for `key` without waiting.
    #[inline(always)]
    pub fn check(&self, key: &K) -> Answer {
        let hash = self.shards.hash(key);
        Source::check(self, hash, self.time.now(), Cost::ONE)
    }

    /// Takes `n` permits for `key` without waiting.
    #[inline(always)]
    pub fn check_n(&self, key: &K, n: u64) -> Result<Answer, InvalidCost> {
        Ok(Source::check(self, self.shards.hash(key), self.time.now(), Cost::new(n)?))
    }

    /// Returns the answer that [`check_n`](Self::check_n) would give, without taking permits.
    pub fn peek(&self, key: &K, n: u64) -> Result<Answer, InvalidCost> {
        let hash = self.shards.hash(key);
        Ok(self.shards.lock(hash).query(hash, self.time.now(), Cost::new(n)?, MaxWait::NONE, KeyQuery::Peek))
    }

    /// Takes `n` permits for `key`, and completes when they can be used. Dropping the future refunds them if the
    /// algorithm can.
    ///
    /// Denied only if waiting does not help: `n` is above the capacity, or too many requests are waiting.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire(&self, key: &K, n: u64) -> Result<Grant, AcquireError> {
        let hash = self.shards.hash(key);
        future::acquire(self, hash, Cost::new(n)?, MaxWait::FOREVER).await.into_result()
    }

    /// Takes `n` permits for `key`, waiting for at most `timeout`; denied immediately if that is too short. Dropping
    /// the future refunds them if the algorithm can.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire_timeout(&self, key: &K, n: u64, timeout: Duration) -> Result<Grant, AcquireError> {
        let hash = self.shards.hash(key);
        future::acquire(self, hash, Cost::new(n)?, MaxWait::up_to(timeout)).await.into_result()
    }

    /// Takes `n` permits for `key`, blocking this thread until they can be used.
    ///
    /// Denied only if waiting does not help: `n` is above the capacity, or too many requests are waiting.
    pub fn blocking_acquire(&self, key: &K, n: u64) -> Result<Grant, AcquireError> {
        thread::acquire(self, self.shards.hash(key), Cost::new(n)?, MaxWait::FOREVER).into_result()
    }

    /// Takes `n` permits for `key`, blocking this thread for at most `timeout`; denied immediately if that is too short.
    pub fn blocking_acquire_timeout(&self, key: &K, n: u64, timeout: Duration) -> Result<Grant, AcquireError> {
        thread::acquire(self, self.shards.hash(key), Cost::new(n)?, MaxWait::up_to(timeout)).into_result()
    }

    /// Takes one permit of `key` without waiting, and releases it when the guard is dropped: for
    /// [`Concurrency`](crate::Concurrency).
    pub fn try_hold(&self, key: &K) -> Result<KeyedPermit<'_, K>, AcquireError> {
        let hash = self.shards.hash(key);
        let grant = Source::check(self, hash, self.time.now(), Cost::ONE).into_result()?;
        Ok(KeyedPermit { limiter: self, hash, receipt: grant.receipt })
    }

    /// Charges `n` permits of `key` unconditionally, even over the limit.
    pub fn charge(&self, key: &K, n: u64) -> Result<(), InvalidCost> {
        let (hash, cost) = (self.shards.hash(key), Cost::new(n)?);
        self.shards.lock(hash).change(hash, self.time.now(), KeyChange::Charge(cost));
        Ok(())
    }

    /// Refunds a grant of `key`, except for permits that have been refilled since.
    pub fn refund(&self, key: &K, receipt: &Receipt) -> Refund {
        self.refund_hash(self.shards.hash(key), receipt)
    }

    /// Resets `key`.
    pub fn reset(&self, key: &K) {
        let hash = self.shards.hash(key);
        self.shards.lock(hash).change(hash, self.time.now(), KeyChange::Reset);
        self.queues.wake(hash);
    }

    /// Replaces the limit; each key's usage is kept, clamped to the new capacity. Reservations keep their times.
    pub fn set(&self, algorithm: impl Algorithm) {
        let algorithm: &dyn AnyAlgorithm = &algorithm;
        // Serialized, or shards would end up with different limits.
        let mut rate = self.rate.lock();
        *rate = ConfiguredRate::of(algorithm);
        let wait_mode = usize::from(algorithm.wait_mode() == WaitMode::Queue);
        // Set while any shard queues: a queued request can also wait for a reservation, but not the other way round.
        self.wait_mode.fetch_max(wait_mode, Ordering::AcqRel);
        for mut keys in self.shards.lock_each() {
            keys.change_to(algorithm, self.options.full(), &self.budget, self.time.now());
        }
        self.wait_mode.store(wait_mode, Ordering::Release);
        self.queues.wake_all();
    }

    /// Returns the configured quota of each key, also after [`set`](Self::set); `None` if the algorithm has none (Guava's, a
    /// total, concurrency), or several (a log of several windows).
    pub fn quota(&self) -> Option<Quota> {
        self.rate.lock().quota
    }

    /// Returns the configured rate of each key in permits per second, also after [`set`](Self::set); `None` if the algorithm
    /// has none (a total, concurrency), or several.
    pub fn rate(&self) -> Option<f64> {
        self.rate.lock().per_second
    }

    /// Returns the current status of `key`.
    pub fn status(&self, key: &K) -> Status {
        Source::status(self, self.shards.hash(key), self.time.now())
    }

    /// Returns the number of stored keys.
    pub fn len(&self) -> usize {
        self.shards.lock_each().map(|keys| keys.len()).sum()
    }

    /// Returns `true` if no key is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of the keys in bytes.
    pub fn memory_used(&self) -> usize {
        self.budget.used()
    }

    /// Scans all keys and drops those that equal a fresh one. Insertions do so incrementally; this is for idle times.
    pub fn reclaim(&self) {
        let now = self.time.now();
        self.shards.lock_each().for_each(|mut keys| keys.reclaim(now));
    }
}

impl<K: ?Sized> KeyedLimiter<K> {
    fn refund_hash(&self, hash: u64, receipt: &Receipt) -> Refund {
        let refund = self.shards.lock(hash).refund(hash, self.time.now(), receipt);
        self.queues.wake(hash);
        refund
    }
}

impl<K: ?Sized> Source for KeyedLimiter<K> {
    #[inline(always)]
    fn take(&self, key: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let mut keys = self.shards.lock(key);
        if let Keys::Packed(table) = &mut *keys
            && let Some(taken) = table.take_packed(key, now, cost, max_wait)
        {
            drop(keys);
            return taken.answer(cost, max_wait);
        }
        keys.query(key, now, cost, max_wait, KeyQuery::Take)
    }

    #[cfg(feature = "async")]
    fn refund_unused(&self, key: u64, receipt: &Receipt) {
        self.refund_hash(key, receipt);
    }

    fn status(&self, key: u64, now: Timestamp) -> Status {
        self.shards.lock(key).query(key, now, Cost::ONE, MaxWait::NONE, KeyQuery::Peek).status()
    }

    fn wait_mode(&self) -> WaitMode {
        match self.wait_mode.load(Ordering::Acquire) {
            0 => WaitMode::Reserve,
            _ => WaitMode::Queue,
        }
    }

    #[inline(always)]
    fn queues(&self) -> &WaitQueues {
        &self.queues
    }

    fn time(&self) -> &LimiterClock {
        &self.time
    }
}

/// Permits in use until this guard is dropped, which releases them.
#[derive(Debug)]
#[must_use = "dropping it releases the permits"]
pub struct KeyedPermit<'a, K: ?Sized> {
    limiter: &'a KeyedLimiter<K>,
    hash: u64,
    receipt: Receipt,
}

impl<K: ?Sized> Drop for KeyedPermit<'_, K> {
    fn drop(&mut self) {
        self.limiter.refund_hash(self.hash, &self.receipt);
    }
}
