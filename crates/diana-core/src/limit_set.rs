//! Several limits for one request, for library users: all of them are charged, or none.
//!
//! A [`MemoryStore`] decides, so the limits of a request are checked and charged in one step. Requests that must wait are
//! queued for each key, unless no limit is per key: then there is one queue.

use crate::clock::LimiterClock;
use crate::limiter::MAX_WAITING;
use crate::sync::Mutex;
#[cfg(feature = "async")]
use crate::wait::future;
use crate::wait::{Source, WaitQueues, thread};
use crate::{AcquireError, Answer, Ask, Change, Clock, Cost, Decision, DynAlgorithm, InvalidCost, Limit, LocalStore};
use crate::{MaxWait, MemoryStore, Outcome, Receipt, Status, TableOptions, Timestamp, WaitMode};
use smallvec::SmallVec;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::time::Duration;

/// Several limits for one request: all of them are charged, or none.
///
/// Each limit has a name, by which an error reports the one that denied. A limit counts [all keys together](Self::overall), or
/// [each key](Self::per_key): an account, an address, a path.
///
/// ```
/// use diana_core::{LimitSet, ManualClock, Quota};
///
/// let limits = LimitSet::new()
///     .overall("everyone", Quota::per_second(1000)?)
///     .per_key("each account", Quota::per_second(1)?)
///     .with_clock(ManualClock::new());
///
/// let _permit = limits.check("alice")?;
/// let denied = limits.check("alice").unwrap_err();
/// assert_eq!(denied.to_string(), "denied by `each account`, retry after 1s");
/// let left = limits.status("alice").map(|(name, status)| (name, status.remaining));
/// assert!(left.eq([("everyone", 999), ("each account", 0)])); // the denied request has charged neither
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The limit is a [`Quota`](crate::Quota), which is a token bucket, or any [algorithm](crate::Algorithm). Keys are not
/// stored, and memory is bounded, as for a [`KeyedLimiter`](crate::KeyedLimiter). A set without limits grants everything.
///
/// Requests wait first come, first served for each key. For limits of several keys in one request, use a
/// [`MemoryStore`].
#[derive(Debug)]
pub struct LimitSet {
    limits: Vec<(Limit, CountedBy)>,
    options: TableOptions,
    store: MemoryStore,
    queues: WaitQueues,
    hasher: RandomState,
    time: LimiterClock,
}

/// The keys that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedBy {
    Everyone,
    Key,
}

type Asks<'a> = SmallVec<[Ask<'a>; 8]>;

impl Default for LimitSet {
    fn default() -> Self {
        Self::with_options(TableOptions::default())
    }
}

impl LimitSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty set, whose keys are in a table with these options.
    pub fn with_options(options: TableOptions) -> Self {
        Self {
            limits: Vec::new(),
            options,
            store: MemoryStore::new(options),
            queues: WaitQueues::new(MAX_WAITING),
            hasher: RandomState::new(),
            time: LimiterClock::default(),
        }
    }

    /// Adds a limit on all keys together.
    #[must_use]
    pub fn overall(self, name: impl Into<Box<str>>, algorithm: impl Into<DynAlgorithm>) -> Self {
        self.with_limit(Limit::new(name, algorithm), CountedBy::Everyone)
    }

    /// Adds a limit on each key.
    #[must_use]
    pub fn per_key(self, name: impl Into<Box<str>>, algorithm: impl Into<DynAlgorithm>) -> Self {
        self.with_limit(Limit::new(name, algorithm), CountedBy::Key)
    }

    fn with_limit(mut self, limit: Limit, counted_by: CountedBy) -> Self {
        self.limits.push((limit, counted_by));
        self
    }

    /// Returns the same limits, unused, on another clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        Self { store: MemoryStore::new(self.options), time: LimiterClock::from_clock(clock), ..self }
    }

    /// Returns the same limits with at most `max` waiting requests over all keys; more are denied.
    #[must_use]
    pub fn with_max_waiting(self, max: usize) -> Self {
        Self { queues: self.queues.with_max(max), ..self }
    }

    /// Takes one permit of each limit without waiting.
    pub fn check(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<LimitSetPermit<'_>, AcquireError> {
        self.check_n(key, 1)
    }

    /// Takes `n` permits of each limit without waiting.
    pub fn check_n(&self, key: &(impl AsRef<[u8]> + ?Sized), n: u64) -> Result<LimitSetPermit<'_>, AcquireError> {
        let request = Request::new(self, key.as_ref(), n)?;
        let answer = Source::check(&request, request.queue(), self.time.now(), request.cost);
        request.into_result(answer)
    }

    /// Takes `n` permits of each limit, and completes when they can be used. Dropping the future refunds them if the
    /// algorithms can.
    ///
    /// Denied only if waiting does not help: `n` is above a capacity, or too many requests are waiting.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire(&self, key: &(impl AsRef<[u8]> + ?Sized), n: u64) -> Result<LimitSetPermit<'_>, AcquireError> {
        self.wait(key.as_ref(), n, MaxWait::FOREVER).await
    }

    /// Takes `n` permits of each limit, waiting for at most `timeout`; denied immediately if that is too short. Dropping
    /// the future refunds them if the algorithms can.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire_timeout(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        n: u64,
        timeout: Duration,
    ) -> Result<LimitSetPermit<'_>, AcquireError> {
        self.wait(key.as_ref(), n, MaxWait::up_to(timeout)).await
    }

    #[cfg(feature = "async")]
    async fn wait(&self, key: &[u8], n: u64, max_wait: MaxWait) -> Result<LimitSetPermit<'_>, AcquireError> {
        let request = Request::new(self, key, n)?;
        let answer = future::acquire(&request, request.queue(), request.cost, max_wait).await;
        request.into_result(answer)
    }

    /// Takes `n` permits of each limit, blocking this thread until they can be used.
    ///
    /// Denied only if waiting does not help: `n` is above a capacity, or too many requests are waiting.
    pub fn blocking_acquire(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        n: u64,
    ) -> Result<LimitSetPermit<'_>, AcquireError> {
        self.blocking_wait(key.as_ref(), n, MaxWait::FOREVER)
    }

    /// Takes `n` permits of each limit, blocking this thread for at most `timeout`; denied immediately if that is too short.
    pub fn blocking_acquire_timeout(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        n: u64,
        timeout: Duration,
    ) -> Result<LimitSetPermit<'_>, AcquireError> {
        self.blocking_wait(key.as_ref(), n, MaxWait::up_to(timeout))
    }

    fn blocking_wait(&self, key: &[u8], n: u64, max_wait: MaxWait) -> Result<LimitSetPermit<'_>, AcquireError> {
        let request = Request::new(self, key, n)?;
        let answer = thread::acquire(&request, request.queue(), request.cost, max_wait);
        request.into_result(answer)
    }

    /// Charges `n` permits of each limit unconditionally, even over the limit.
    pub fn charge(&self, key: &(impl AsRef<[u8]> + ?Sized), n: u64) -> Result<(), InvalidCost> {
        let asks = self.asks(key.as_ref(), Cost::new(n)?);
        self.store.change(&asks, self.time.now(), Change::Charge);
        Ok(())
    }

    /// Resets the limits per key of `key`. The limits on all keys keep their counts.
    pub fn reset(&self, key: &(impl AsRef<[u8]> + ?Sized)) {
        let key = key.as_ref();
        let of_key = self.limits.iter().filter(|(_, counted_by)| *counted_by == CountedBy::Key);
        let asks: Asks<'_> = of_key.map(|(limit, _)| Ask::one(limit, key)).collect();
        self.store.change(&asks, self.time.now(), Change::Reset);
        self.queues.wake(self.queue(key));
    }

    /// Returns the name and the current status of each limit, for `key`.
    pub fn status(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> impl Iterator<Item = (&str, Status)> {
        let asks = self.asks(key.as_ref(), Cost::ONE);
        let peeked = LocalStore::peek(&self.store, &asks, self.time.now(), MaxWait::NONE);
        let statuses: SmallVec<[Status; 8]> = peeked.answers().iter().map(Answer::status).collect();
        self.names().zip(statuses)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.limits.iter().map(|(limit, _)| limit.name())
    }

    fn asks<'a>(&'a self, key: &'a [u8], cost: Cost) -> Asks<'a> {
        let ask = |(limit, counted_by): &'a (Limit, CountedBy)| match counted_by {
            CountedBy::Everyone => Ask::new(limit, "", cost),
            CountedBy::Key => Ask::new(limit, key, cost),
        };
        self.limits.iter().map(ask).collect()
    }

    fn has(&self, counted_by: CountedBy) -> bool {
        self.limits.iter().any(|(_, known)| *known == counted_by)
    }

    /// Returns the queue of the requests of `key`.
    fn queue(&self, key: &[u8]) -> u64 {
        if self.has(CountedBy::Key) { self.hasher.hash_one(key) } else { 0 }
    }

    /// Wakes the requests that may wait for permits of `key`.
    fn wake(&self, key: &[u8]) {
        if self.queues.is_empty() {
            return;
        }
        if self.has(CountedBy::Everyone) { self.queues.wake_all() } else { self.queues.wake(self.queue(key)) }
    }
}

/// A request, as a source of permits: its limits answer as one.
struct Request<'s, 'k> {
    set: &'s LimitSet,
    key: &'k [u8],
    cost: Cost,
    /// The last decision, of which the answer to the waiter is a part.
    decision: Mutex<Decision>,
}

impl<'s, 'k> Request<'s, 'k> {
    fn new(set: &'s LimitSet, key: &'k [u8], n: u64) -> Result<Self, InvalidCost> {
        Ok(Self { set, key, cost: Cost::new(n)?, decision: Mutex::new(Decision::empty()) })
    }

    fn queue(&self) -> u64 {
        self.set.queue(self.key)
    }

    fn asks(&self) -> Asks<'_> {
        self.set.asks(self.key, self.cost)
    }

    fn into_result(self, answer: Answer) -> Result<LimitSetPermit<'s>, AcquireError> {
        let Self { set, key, cost, decision } = self;
        let decision = mem::replace(&mut *decision.lock(), Decision::empty());
        match answer.outcome {
            Outcome::Granted { wait, .. } => {
                Ok(LimitSetPermit { set, key: SmallVec::from_slice(key), cost, decision, waited: wait })
            }
            Outcome::Denied { retry } => {
                let limit = decision.binding().and_then(|index| set.names().nth(index)).map(Into::into);
                Err(AcquireError::Denied { retry, status: answer.status(), limit })
            }
        }
    }
}

impl Source for Request<'_, '_> {
    /// Returns the answer that decides: the one with the longest wait, or the denial with the latest retry.
    fn take(&self, _key: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let mut decision = self.decision.lock();
        self.set.store.decide_into(&self.asks(), now, max_wait, &mut decision);
        let end = |answer: &Answer| Some(answer.receipt()?.at() + answer.wait()?);
        let answer = match decision.is_granted() {
            true => decision.answers().iter().max_by_key(|answer| end(answer)),
            false => decision.binding().and_then(|index| decision.answers().get(index)),
        };
        let unlimited = Status { limit: u64::MAX, remaining: u64::MAX, reset: Duration::ZERO };
        answer.copied().unwrap_or(Answer::new(Outcome::granted(Receipt::new(cost, now)), unlimited))
    }

    #[cfg(feature = "async")]
    fn refund_unused(&self, _key: u64, _receipt: &Receipt) {
        LocalStore::refund(&self.set.store, &self.asks(), &self.decision.lock(), self.set.time.now());
        self.set.wake(self.key);
    }

    /// Returns the status of the limit with the fewest permits left, which becomes the one that denies.
    fn status(&self, _key: u64, now: Timestamp) -> Status {
        let mut decision = self.decision.lock();
        *decision = LocalStore::peek(&self.set.store, &self.asks(), now, MaxWait::NONE);
        let answer = decision.binding().and_then(|index| decision.answers().get(index));
        answer.map_or(Status { limit: 0, remaining: 0, reset: Duration::ZERO }, Answer::status)
    }

    fn wait_mode(&self) -> WaitMode {
        let queues = self.set.limits.iter().any(|(limit, _)| limit.wait_mode() == WaitMode::Queue);
        if queues { WaitMode::Queue } else { WaitMode::Reserve }
    }

    fn queues(&self) -> &WaitQueues {
        &self.set.queues
    }

    fn time(&self) -> &LimiterClock {
        &self.set.time
    }
}

/// The permits that a request took of each limit of a [`LimitSet`].
///
/// Dropping it releases the permits of limits on what is in use at a time ([`Concurrency`](crate::Concurrency)); those of
/// all other limits stay charged, unless it is [refunded](Self::refund).
#[derive(Debug)]
#[must_use = "dropping it releases the permits that are in use"]
pub struct LimitSetPermit<'a> {
    set: &'a LimitSet,
    key: SmallVec<[u8; 32]>,
    cost: Cost,
    decision: Decision,
    waited: Duration,
}

impl LimitSetPermit<'_> {
    /// Returns how long the request waited.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns the name and the status of each limit when the permits were taken; they are already subtracted.
    pub fn status(&self) -> impl Iterator<Item = (&str, Status)> {
        self.set.names().zip(self.decision.answers().iter().map(Answer::status))
    }

    /// Refunds the permits of each limit, except for those that have been refilled since.
    ///
    /// ```
    /// use diana_core::{LimitSet, Quota};
    ///
    /// let limits = LimitSet::new().overall("everyone", Quota::per_hour(5)?).per_key("each account", Quota::per_hour(1)?);
    /// limits.check("alice")?.refund();
    /// assert!(limits.check("alice").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refund(mut self) {
        self.release(|_| true);
    }

    fn release(&mut self, is_released: impl Fn(&Limit) -> bool) {
        let decision = mem::replace(&mut self.decision, Decision::empty());
        let taken = self.set.asks(&self.key, self.cost).into_iter().zip(decision.answers().iter().copied());
        let (asks, answers): (Asks<'_>, SmallVec<[Answer; 8]>) =
            taken.filter(|(ask, _)| is_released(ask.limit)).unzip();
        if !asks.is_empty() {
            LocalStore::refund(&self.set.store, &asks, &Decision::from(answers), self.set.time.now());
            self.set.wake(&self.key);
        }
    }
}

impl Drop for LimitSetPermit<'_> {
    fn drop(&mut self) {
        self.release(|limit| limit.properties().is_released());
    }
}
