//! One limit, for library users.

use crate::clock::LimiterClock;
#[cfg(feature = "async")]
use crate::wait::future;
use crate::wait::queues::WaitQueues;
use crate::wait::{Source, thread};
use crate::{AcquireError, Algorithm, Answer, Clock, Cost, Grant, InvalidCost, MaxWait, Quota, Receipt, Refund};
use crate::{Status, Timestamp, TokenBucket, WaitMode};
use cell::Cell;
use std::time::Duration;

pub(crate) mod atomic;
pub(crate) mod cell;

/// The default bound on waiting requests of a limiter.
pub(crate) const MAX_WAITING: usize = 10_000;

/// One limit, shared by all threads that have a reference to it.
///
/// ```
/// use diana_core::{Limiter, ManualClock, Quota};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::new(Quota::per_second(2)?).with_clock(clock.clone());
///
/// assert!(limiter.check().is_granted());
/// assert!(limiter.check().is_granted());
/// assert!(!limiter.check().is_granted());
///
/// // Waits until a permit is free. (Waiting advances a manual clock, and takes no time.)
/// let grant = limiter.blocking_acquire_timeout(1, Duration::from_secs(1))?;
/// assert_eq!(grant.waited, Duration::from_millis(500));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A check of a token bucket whose interval is a whole number of nanoseconds is one atomic instruction; everything else
/// takes a short lock.
#[derive(Debug)]
pub struct Limiter {
    cell: Cell,
    queues: WaitQueues,
    time: LimiterClock,
}

/// A limiter has a single key.
const KEY: u64 = 0;

impl Limiter {
    /// Creates a token bucket with `quota`.
    pub fn new(quota: Quota) -> Self {
        Self::with_algorithm(TokenBucket::new(quota))
    }

    /// Creates a limit with any algorithm.
    ///
    /// An algorithm whose fresh state depends on the time starts at the time of the system clock, or of the clock set
    /// by [`with_clock`](Self::with_clock).
    pub fn with_algorithm(algorithm: impl Algorithm) -> Self {
        let time = LimiterClock::default();
        Self { cell: Cell::new(&algorithm, time.now()), queues: WaitQueues::new(MAX_WAITING), time }
    }

    /// Returns the same limit, unused, on another clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        self.with_time(LimiterClock::from_clock(clock))
    }

    pub(crate) fn with_time(self, time: LimiterClock) -> Self {
        self.cell.restart(time.now());
        Self { time, ..self }
    }

    /// Returns the same limit with at most `max` waiting requests; more are denied. The default is 10,000.
    ///
    /// This bounds the wait queue. Algorithms that reserve bound the wait itself, by the request's maximum wait.
    #[must_use]
    pub fn with_max_waiting(self, max: usize) -> Self {
        Self { queues: self.queues.with_max(max), ..self }
    }

    /// Takes one permit without waiting.
    #[inline(always)]
    pub fn check(&self) -> Answer {
        self.check_cost(Cost::ONE)
    }

    /// Takes `n` permits without waiting.
    #[inline(always)]
    pub fn check_n(&self, n: u64) -> Result<Answer, InvalidCost> {
        Ok(self.check_cost(Cost::new(n)?))
    }

    #[inline(always)]
    fn check_cost(&self, cost: Cost) -> Answer {
        let now = self.time.now();
        // A packed algorithm reserves, so its queue is always empty.
        self.cell.take_packed(now, cost, MaxWait::NONE).unwrap_or_else(|| Source::check(self, KEY, now, cost))
    }

    /// Returns the answer that [`check_n`](Self::check_n) would give, without taking permits.
    pub fn peek(&self, n: u64) -> Result<Answer, InvalidCost> {
        Ok(self.cell.peek(self.time.now(), Cost::new(n)?, MaxWait::NONE))
    }

    /// Takes `n` permits, and completes when they can be used. Dropping the future refunds them if the algorithm can.
    ///
    /// Denied only if waiting does not help: `n` is above the capacity, or too many requests are waiting.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire(&self, n: u64) -> Result<Grant, AcquireError> {
        self.wait(n, MaxWait::FOREVER).await?.into_result()
    }

    /// Takes `n` permits, waiting for at most `timeout`; denied immediately if that is too short. Dropping the future
    /// refunds them if the algorithm can.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire_timeout(&self, n: u64, timeout: Duration) -> Result<Grant, AcquireError> {
        self.wait(n, MaxWait::up_to(timeout)).await?.into_result()
    }

    /// Takes `n` permits, blocking this thread until they can be used.
    ///
    /// Denied only if waiting does not help: `n` is above the capacity, or too many requests are waiting.
    pub fn blocking_acquire(&self, n: u64) -> Result<Grant, AcquireError> {
        self.blocking_wait(n, MaxWait::FOREVER)?.into_result()
    }

    /// Takes `n` permits, blocking this thread for at most `timeout`; denied immediately if that is too short.
    pub fn blocking_acquire_timeout(&self, n: u64, timeout: Duration) -> Result<Grant, AcquireError> {
        self.blocking_wait(n, MaxWait::up_to(timeout))?.into_result()
    }

    #[cfg(feature = "async")]
    pub(crate) async fn wait(&self, n: u64, max_wait: MaxWait) -> Result<Answer, InvalidCost> {
        Ok(future::acquire(self, KEY, Cost::new(n)?, max_wait).await)
    }

    pub(crate) fn blocking_wait(&self, n: u64, max_wait: MaxWait) -> Result<Answer, InvalidCost> {
        Ok(thread::acquire(self, KEY, Cost::new(n)?, max_wait))
    }

    /// Checks like [`check_n`](Self::check_n), for a caller that was due at `since` but was woken late.
    ///
    /// A waiting caller is always woken a little late: timers are coarse and the machine has other work. If more
    /// permits are refilled meanwhile than the burst can store, the excess is lost, and the throughput falls below the
    /// rate. Asked as of a past time, the limit counts from that time, and the throughput is the same as without the delay.
    ///
    /// The permits are taken as of the first instant between `since` and now at which the limit allows them: `since`
    /// plus the answer's [`wait`](Answer::wait). Pass that instant as the next `since`. Over every interval the grants
    /// stay within the limit, but the traffic itself is late by the time since `since`, so bound that. An algorithm
    /// that [queues](WaitMode::Queue) cannot count from a past time: it is asked as of now.
    ///
    /// ```
    /// use diana_core::{Clock, Limiter, ManualClock, Quota};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::new("1000/s burst 1".parse::<Quota>()?).with_clock(clock.clone());
    /// let mut since = clock.now();
    /// assert!(limiter.check().is_granted());
    ///
    /// // Three milliseconds pass: three permits are refilled.
    /// clock.advance(Duration::from_millis(3));
    /// for _ in 0..3 {
    ///     since = since + limiter.check_since(1, since)?.wait().ok_or("denied")?;
    /// }
    /// assert_eq!(since, clock.now());
    /// assert!(!limiter.check_since(1, since)?.is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_since(&self, n: u64, since: Timestamp) -> Result<Answer, InvalidCost> {
        let (cost, now) = (Cost::new(n)?, self.time.now());
        let since = since.min(now);
        if Source::wait_mode(self) == WaitMode::Queue {
            return Ok(crate::wait::count_wait_from(Source::check(self, KEY, now, cost), since));
        }
        Ok(crate::wait::count_wait_from(self.cell.take_since(since, now, cost), since))
    }

    /// Waits without a timeout, for a caller that was due at `since` but was woken late. As with
    /// [`check_since`](Self::check_since), the permits are taken as of `since` plus the grant's
    /// [`waited`](Grant::waited). Dropping the future refunds them if the algorithm can.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire_since(&self, n: u64, since: Timestamp) -> Result<Grant, AcquireError> {
        future::acquire_since(self, KEY, Cost::new(n)?, MaxWait::FOREVER, since).await.into_result()
    }

    /// Blocks this thread without a timeout, for a caller that was due at `since` but was woken late. As with
    /// [`check_since`](Self::check_since), the permits are taken as of `since` plus the grant's
    /// [`waited`](Grant::waited).
    pub fn blocking_acquire_since(&self, n: u64, since: Timestamp) -> Result<Grant, AcquireError> {
        thread::acquire_since(self, KEY, Cost::new(n)?, MaxWait::FOREVER, since).into_result()
    }

    /// Charges `n` permits unconditionally, even over the limit: corrects an estimated cost.
    pub fn charge(&self, n: u64) -> Result<(), InvalidCost> {
        self.cell.charge(self.time.now(), Cost::new(n)?);
        Ok(())
    }

    /// Refunds a grant, except for permits that have been refilled since.
    pub fn refund(&self, receipt: &Receipt) -> Refund {
        let refund = self.cell.refund(self.time.now(), receipt);
        self.queues.wake(KEY);
        refund
    }

    /// Refunds the part of `receipt` above `used`, except for permits that have been refilled since.
    ///
    /// ```
    /// use diana_core::{Limiter, Quota, Refund};
    ///
    /// let bytes = Limiter::new(Quota::per_hour(1_000)?);
    /// let receipt = bytes.check_n(500)?.receipt().ok_or("denied")?;
    /// assert_eq!(bytes.refund_rest(&receipt, 120), Refund::Returned);
    /// assert_eq!(bytes.status().remaining, 880);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refund_rest(&self, receipt: &Receipt, used: u64) -> Refund {
        let refund = self.cell.refund_rest(self.time.now(), receipt, used);
        self.queues.wake(KEY);
        refund
    }

    /// Resets the limit.
    pub fn reset(&self) {
        self.cell.reset(self.time.now());
        self.queues.wake(KEY);
    }

    /// Replaces the limit; its usage is kept, clamped to the new capacity. Existing reservations keep their times.
    /// Setting the same limit again changes nothing.
    pub fn set(&self, algorithm: impl Algorithm) {
        self.cell.change_to(&algorithm, self.time.now());
        self.queues.wake(KEY);
    }

    /// Returns the configured quota, also after [`set`](Self::set); `None` if the algorithm has none (Guava's, a total,
    /// concurrency), or several (a log of several windows).
    ///
    /// ```
    /// use diana_core::{Limiter, Quota, SmoothBursty, TokenBucket};
    ///
    /// let limiter = Limiter::new("100/min burst 5".parse::<Quota>()?);
    /// assert_eq!(limiter.quota().map(|quota| quota.to_string()), Some("100/min burst 5".to_owned()));
    /// limiter.set(TokenBucket::new(Quota::per_second(7)?));
    /// assert_eq!((limiter.quota(), limiter.rate()), (Some(Quota::per_second(7)?), Some(7.0)));
    ///
    /// let guava = Limiter::with_algorithm(SmoothBursty::new(0.5)?);
    /// assert_eq!((guava.quota(), guava.rate()), (None, Some(0.5)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quota(&self) -> Option<Quota> {
        self.cell.rate().quota
    }

    /// Returns the configured rate in permits per second, also after [`set`](Self::set); `None` if the algorithm has none (a
    /// total, concurrency), or several.
    pub fn rate(&self) -> Option<f64> {
        self.cell.rate().per_second
    }

    /// Returns the limit's current status.
    pub fn status(&self) -> Status {
        self.cell.status(self.time.now())
    }

    /// Returns the clock of this limit.
    ///
    /// ```
    /// use diana_core::{Limiter, ManualClock, Quota, Timestamp};
    ///
    /// let clock = ManualClock::at(Timestamp::from_secs(100));
    /// let limiter = Limiter::new(Quota::per_second(2)?).with_clock(clock);
    /// assert_eq!(limiter.clock().now(), Timestamp::from_secs(100));
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub fn clock(&self) -> &dyn Clock {
        self.time.as_clock()
    }

    /// Returns the number of queued requests. Those with a reservation are not queued.
    pub fn waiting(&self) -> usize {
        self.queues.len()
    }
}

impl Source for Limiter {
    #[inline(always)]
    fn take(&self, _key: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        self.cell.take(now, cost, max_wait)
    }

    #[cfg(feature = "async")]
    fn refund_unused(&self, _key: u64, receipt: &Receipt) {
        self.refund(receipt);
    }

    fn status(&self, _key: u64, now: Timestamp) -> Status {
        self.cell.status(now)
    }

    fn wait_mode(&self) -> WaitMode {
        self.cell.wait_mode()
    }

    #[inline(always)]
    fn queues(&self) -> &WaitQueues {
        &self.queues
    }

    fn time(&self) -> &LimiterClock {
        &self.time
    }
}
