//! One limit, for people who only want the library.

use crate::clock::Time;
use crate::waiting::queue::WaitQueues;
use crate::waiting::{Source, thread};
use crate::{Algorithm, Answer, Clock, Cost, InvalidCost, MaxWait, Quota, Receipt, Refund};
use crate::{Status, Timestamp, TokenBucket, Waiting};
use cell::Cell;
use std::time::Duration;

pub(crate) mod atomic;
pub(crate) mod cell;

/// How many may wait at a limiter unless it is told otherwise.
pub(crate) const MOST_WAITING: usize = 10_000;

/// One limit, shared by every thread that has a reference to it.
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
/// // Waits for its turn. (This clock is moved by hand, so waiting moves it and takes no time.)
/// let answer = limiter.try_acquire(1, Duration::from_secs(1))?;
/// assert_eq!(answer.wait(), Some(Duration::from_millis(500)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Checks of a token bucket with an interval of whole nanoseconds are one atomic instruction; everything else is a
/// short lock.
#[derive(Debug)]
pub struct Limiter {
    cell: Cell,
    lines: WaitQueues,
    time: Time,
}

/// There is one key.
const KEY: u64 = 0;

impl Limiter {
    /// A token bucket of `quota`.
    pub fn new(quota: Quota) -> Self {
        Self::with_algorithm(TokenBucket::new(quota))
    }

    /// A limit by any algorithm.
    ///
    /// An algorithm whose fresh state depends on the time begins at the system clock's, or at that of
    /// [`with_clock`](Self::with_clock).
    pub fn with_algorithm(algorithm: impl Algorithm) -> Self {
        let time = Time::default();
        Self { cell: Cell::new(&algorithm, time.now()), lines: WaitQueues::new(MOST_WAITING), time }
    }

    /// The same limit, unused, on another clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock) -> Self {
        let time = Time::from_clock(clock);
        self.cell.restart(time.now());
        Self { time, ..self }
    }

    /// The same limit with room for `most` that wait; beyond it they are denied. 10,000 unless said otherwise.
    ///
    /// This bounds waiting in line. Algorithms that reserve bound the wait itself, by the maximum wait of who asks.
    #[must_use]
    pub fn max_waiting(self, most: usize) -> Self {
        Self { lines: self.lines.bounded(most), ..self }
    }

    /// Takes one permit, now or not at all.
    #[inline(always)]
    pub fn check(&self) -> Answer {
        self.check_cost(Cost::ONE)
    }

    /// Takes `n` permits, now or not at all.
    #[inline(always)]
    pub fn check_n(&self, n: u64) -> Result<Answer, InvalidCost> {
        Ok(self.check_cost(Cost::new(n)?))
    }

    #[inline(always)]
    fn check_cost(&self, cost: Cost) -> Answer {
        let now = self.time.now();
        // An algorithm in one word reserves, so nobody stands in line.
        self.cell.take_one_word(now, cost, MaxWait::NONE).unwrap_or_else(|| Source::check(self, KEY, now, cost))
    }

    /// What [`check_n`](Self::check_n) would answer, without taking anything.
    pub fn peek(&self, n: u64) -> Result<Answer, InvalidCost> {
        Ok(self.cell.peek(self.time.now(), Cost::new(n)?, MaxWait::NONE))
    }

    /// Takes `n` permits, blocking this thread until they can be used, for as long as it takes.
    ///
    /// Denied only if waiting can't help: `n` is above the capacity, or too many wait already.
    pub fn acquire(&self, n: u64) -> Result<Answer, InvalidCost> {
        Ok(thread::acquire(self, KEY, Cost::new(n)?, MaxWait::FOREVER))
    }

    /// Takes `n` permits, blocking this thread for at most `timeout`; denied at once if that can't be enough.
    pub fn try_acquire(&self, n: u64, timeout: Duration) -> Result<Answer, InvalidCost> {
        Ok(thread::acquire(self, KEY, Cost::new(n)?, MaxWait::up_to(timeout)))
    }

    /// [`acquire`](Self::acquire) as a future. Dropped, it gives its permits back where the algorithm can.
    ///
    /// # Panics
    /// When it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire_async(&self, n: u64) -> Result<Answer, InvalidCost> {
        Ok(crate::waiting::future::acquire(self, KEY, Cost::new(n)?, MaxWait::FOREVER).await)
    }

    /// [`try_acquire`](Self::try_acquire) as a future. Dropped, it gives its permits back where the algorithm can.
    ///
    /// # Panics
    /// When it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn try_acquire_async(&self, n: u64, timeout: Duration) -> Result<Answer, InvalidCost> {
        Ok(crate::waiting::future::acquire(self, KEY, Cost::new(n)?, MaxWait::up_to(timeout)).await)
    }

    /// [`check_n`](Self::check_n) by somebody who would have asked at `since`, had it not been woken late.
    ///
    /// Whoever waits for its turn is woken a little later than that: a timer has its grain, and a machine its other work.
    /// If the burst is smaller than what comes back meanwhile, the rest is lost, and the flow is slower than the rate. Asked
    /// as of a moment that is past, the limit counts from there, and the flow stays where it would be if nobody was late.
    ///
    /// The permits are taken as of the first moment from `since` up to now at which there was room, which is `since` and the
    /// answer's [`wait`](Answer::wait): ask for the next ones as of that. In every span the grants keep to the limit; what
    /// passes is late by as much as you let it, so bound that. An algorithm that [queues](Waiting::Queues) does not look
    /// back: it is asked as of now.
    ///
    /// ```
    /// use diana_core::{Clock, Limiter, ManualClock, Quota};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::new("1000/s burst 1".parse::<Quota>()?).with_clock(clock.clone());
    /// let mut turn = clock.now();
    /// assert!(limiter.check().is_granted());
    ///
    /// // Three milliseconds pass, and with them the turns of three.
    /// clock.advance(Duration::from_millis(3));
    /// for _ in 0..3 {
    ///     turn = turn + limiter.check_since(1, turn)?.wait().ok_or("denied")?;
    /// }
    /// assert_eq!(turn, clock.now());
    /// assert!(!limiter.check_since(1, turn)?.is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_since(&self, n: u64, since: Timestamp) -> Result<Answer, InvalidCost> {
        let (cost, now) = (Cost::new(n)?, self.time.now());
        let since = since.min(now);
        if Source::waiting(self) == Waiting::Queues {
            return Ok(crate::waiting::reckoned(Source::check(self, KEY, now, cost), since));
        }
        Ok(crate::waiting::reckoned(self.cell.take_since(since, now, cost), since))
    }

    /// [`acquire`](Self::acquire) by somebody who would have asked at `since`, had it not been woken late. As with
    /// [`check_since`](Self::check_since), its turn came at `since` and the answer's wait.
    pub fn acquire_since(&self, n: u64, since: Timestamp) -> Result<Answer, InvalidCost> {
        Ok(thread::acquire_since(self, KEY, Cost::new(n)?, MaxWait::FOREVER, since))
    }

    /// [`acquire_since`](Self::acquire_since) as a future. Dropped, it gives its permits back where the algorithm can.
    ///
    /// # Panics
    /// When it must wait and there is no tokio runtime with a timer.
    #[cfg(feature = "async")]
    pub async fn acquire_since_async(&self, n: u64, since: Timestamp) -> Result<Answer, InvalidCost> {
        let cost = Cost::new(n)?;
        Ok(crate::waiting::future::acquire_since(self, KEY, cost, MaxWait::FOREVER, since).await)
    }

    /// Takes `n` permits without asking, even beyond the capacity: corrects what something turned out to cost.
    pub fn charge(&self, n: u64) -> Result<(), InvalidCost> {
        self.cell.charge(self.time.now(), Cost::new(n)?);
        Ok(())
    }

    /// Gives back what was granted, as far as time has not.
    pub fn refund(&self, receipt: &Receipt) -> Refund {
        let refund = self.cell.refund(self.time.now(), receipt);
        self.lines.wake(KEY);
        refund
    }

    /// Gives back what of `receipt` is above `used`, as far as time has not.
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
        self.lines.wake(KEY);
        refund
    }

    /// Makes the limit as good as new.
    pub fn reset(&self) {
        self.cell.reset(self.time.now());
        self.lines.wake(KEY);
    }

    /// Goes on with another limit; what is in use is kept, clamped to what the new one allows. Those who wait for a time
    /// that they were promised keep that time. The same limit once more changes nothing.
    pub fn set(&self, algorithm: impl Algorithm) {
        self.cell.change_to(&algorithm, self.time.now());
        self.lines.wake(KEY);
    }

    /// Where the limit stands.
    pub fn status(&self) -> Status {
        self.cell.status(self.time.now())
    }

    /// The clock that the limit goes by.
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

    /// How many wait in line. Those with a reservation don't.
    pub fn waiting(&self) -> usize {
        self.lines.len()
    }
}

impl Source for Limiter {
    #[inline(always)]
    fn take(&self, _key: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        self.cell.take(now, cost, max_wait)
    }

    #[cfg(feature = "async")]
    fn give_back(&self, _key: u64, receipt: &Receipt) {
        self.refund(receipt);
    }

    fn status(&self, _key: u64, now: Timestamp) -> Status {
        self.cell.status(now)
    }

    fn waiting(&self) -> Waiting {
        self.cell.waiting()
    }

    #[inline(always)]
    fn lines(&self) -> &WaitQueues {
        &self.lines
    }

    fn time(&self) -> &Time {
        &self.time
    }
}
