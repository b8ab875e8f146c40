//! Concurrency: a bounded number of requests in flight.
//!
//! # How it works
//! One count, which a grant increments and a refund decrements. Time restores nothing, so a denial has no retry time,
//! only that another request has to finish first: nginx's `limit_conn`.
//!
//! ```text
//!  0              in flight      limit            limit + burst
//!  ├──────────────────┼────────────┼──────────────────┤
//!  │                  │◀─ at once ▶│◀── after a wait ▶│  denied
//! ```
//!
//! # Burst
//! A hard limit denies a request that arrives just too early. With a burst, like lua-resty-limit-traffic's `conn`,
//! requests over the limit are admitted after a wait. How long a slot takes to become free is unknown, so it is
//! learned: `unit` is the duration of a request, initially [`with_delay`](Concurrency::with_delay), and each finished
//! request moves it halfway to its own duration. The n-th in flight waits `unit × ⌊(n − 1) / limit⌋`: one unit for the
//! first `limit` requests over the limit, two for the next.
//!
//! When the last request finishes, the unit is dropped. It would be a better estimate than the initial delay, but then
//! an idle key would differ from a fresh one, and every key ever seen would have to be stored.
//!
//! # What always holds (tests/it/laws.rs, tests/it/concurrency.rs)
//! - Permits in use are at most `limit + burst`.

use crate::quota::check_count;
use crate::time::saturating_nanos;
use crate::{
    Algorithm, Cost, InvalidQuota, MAX_PERMITS, MaxWait, Outcome, Properties, Quota, Receipt, Refund, Restores, Retry,
    Status, Timestamp, WaitMode, words,
};
use std::time::Duration;

/// The longest learned duration of a request, in nanoseconds: 104 days, the largest that Redis' numbers represent
/// exactly, so that both stores learn the same.
const MAX_UNIT_NANOS: u64 = (1 << 53) - 1;

/// A bounded number of permits in flight.
///
/// A permit is released by [`refund`](Algorithm::refund) with its receipt; without that it stays in use, so limiters
/// return guards that release it when they are dropped.
///
/// ```
/// use diana_core::{Algorithm, Concurrency, Cost, MaxWait, Retry, Timestamp};
///
/// let pool = Concurrency::new(1)?;
/// let now = Timestamp::EPOCH;
/// let mut state = pool.fresh(now);
/// let first = pool.take(&mut state, now, Cost::ONE, MaxWait::NONE);
/// assert_eq!(pool.take(&mut state, now, Cost::ONE, MaxWait::NONE).retry(), Some(Retry::WhenReleased));
///
/// pool.refund(&mut state, now, &first.receipt().unwrap());
/// assert!(pool.take(&mut state, now, Cost::ONE, MaxWait::NONE).is_granted());
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    burst: u64,
    delay_nanos: u64,
}

/// The longest wait, 104 days: nanoseconds that every store counts exactly.
const MAX_WAIT_NANOS: u64 = (1 << 53) - 1;

impl Concurrency {
    /// Allows at most `limit` permits in flight, which must be in `1..=MAX_PERMITS`.
    pub fn new(limit: u64) -> Result<Self, InvalidQuota> {
        check_count("concurrent", limit)?;
        Ok(Self { limit, burst: 0, delay_nanos: 0 })
    }

    /// Admits `permits` more after a wait; limit and burst together are at most [`MAX_PERMITS`].
    ///
    /// ```
    /// use diana_core::{Algorithm, Concurrency, Cost, MaxWait, Timestamp};
    /// use std::time::Duration;
    ///
    /// let pool = Concurrency::new(1)?.with_burst(1).with_delay(Duration::from_millis(5));
    /// let mut state = pool.fresh(Timestamp::EPOCH);
    /// let mut wait = || pool.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::FOREVER).wait();
    /// assert_eq!(wait(), Some(Duration::ZERO));
    /// assert_eq!(wait(), Some(Duration::from_millis(5)));
    /// assert_eq!(wait(), None); // over the burst
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    #[must_use]
    pub fn with_burst(self, permits: u64) -> Self {
        Self { burst: permits.min(MAX_PERMITS - self.limit), ..self }
    }

    /// Sets the assumed duration of a request until the first one finishes; zero by default. It matters only with a
    /// [burst](Self::with_burst), whose example shows it.
    #[must_use]
    pub fn with_delay(self, unit: Duration) -> Self {
        Self { delay_nanos: saturating_nanos(unit), ..self }
    }

    /// Returns the number of permits that may be in flight without a wait.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the assumed duration of a request until the first one finishes.
    pub fn first_delay(&self) -> Duration {
        Duration::from_nanos(self.delay_nanos)
    }

    /// Returns the maximum number of permits in flight, including those admitted after a wait.
    pub const fn capacity(&self) -> u64 {
        self.limit + self.burst
    }
}

impl Algorithm for Concurrency {
    type State = ConcurrencyState;

    fn properties(&self) -> Properties<'_> {
        let restores = Restores::WhenReleased { limit: self.limit };
        Properties { restores, delays: self.burst > 0, ..Properties::default() }
    }

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        let more = match self.burst {
            0 => String::new(),
            burst => format!(", {burst} more after a delay ({} at first)", words::duration(self.first_delay())),
        };
        Some(format!("{} at a time{more}", self.limit))
    }

    fn fresh(&self, _now: Timestamp) -> ConcurrencyState {
        ConcurrencyState { permits: 0, unit_nanos: self.delay_nanos }
    }

    #[inline]
    fn take(&self, state: &mut ConcurrencyState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
        if cost.get() > self.capacity() {
            return Outcome::never();
        }
        let permits = state.permits.saturating_add(cost.get());
        let rounds = permits.saturating_sub(1) / self.limit;
        let wait = if cost == Cost::ZERO { 0 } else { state.unit_nanos.saturating_mul(rounds) };
        if permits > self.capacity() || wait > max_wait.as_nanos().min(MAX_WAIT_NANOS) {
            // Too short a maximum wait gives no retry time either: the wait shrinks when others finish, not with time.
            return Outcome::Denied { retry: Retry::WhenReleased };
        }
        state.permits = permits;
        let receipt = Receipt::new(cost, now).with_mark(u128::from(wait));
        Outcome::Granted { wait: Duration::from_nanos(wait), receipt }
    }

    /// `limit` is the maximum in flight, including permits admitted after a wait.
    #[inline]
    fn status(&self, state: &ConcurrencyState, _now: Timestamp) -> Status {
        let limit = self.capacity();
        Status { limit, remaining: limit.saturating_sub(state.permits), reset: Duration::ZERO }
    }

    /// Puts `cost` in flight. There is no receipt for it, so it stays until a refund of the same cost.
    fn charge(&self, state: &mut ConcurrencyState, _now: Timestamp, cost: Cost) {
        state.permits = state.permits.saturating_add(cost.get());
    }

    fn refund(&self, state: &mut ConcurrencyState, now: Timestamp, receipt: &Receipt) -> Refund {
        // A second refund of the last receipt, or one from before a reset.
        if state.permits == 0 {
            return Refund::Void;
        }
        state.permits = state.permits.saturating_sub(receipt.cost().get());
        if state.permits == 0 {
            *state = self.fresh(now);
            return Refund::Returned;
        }
        let wait = Duration::from_nanos(u64::try_from(receipt.mark()).unwrap_or(u64::MAX));
        let latency = saturating_nanos(now.since(receipt.at() + wait));
        // A request that finished no later than it was admitted was never served, so its duration is ignored.
        if latency > 0 {
            state.unit_nanos = latency.midpoint(state.unit_nanos).min(MAX_UNIT_NANOS);
        }
        Refund::Returned
    }

    fn is_fresh(&self, state: &ConcurrencyState, _now: Timestamp) -> bool {
        state.permits == 0
    }

    /// Keeps the permits in flight exactly, even over the new capacity: all of them will be released, and if some were
    /// dropped, their release would free permits that others use.
    fn rescale(&self, state: &mut ConcurrencyState, _old: &Self, now: Timestamp) {
        if state.permits == 0 {
            *state = self.fresh(now);
        }
    }

    /// The requests that hold permits end with the process.
    fn outlives_process(&self) -> bool {
        false
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Queue
    }

    /// Returns an unused state: permits counted by another kind of limit are not in flight, and would never be released.
    fn occupied(&self, _used: u64, now: Timestamp) -> ConcurrencyState {
        self.fresh(now)
    }
}

/// The state of a [`Concurrency`]: the permits in flight, and the recent duration of a request.
///
/// An external store reads and writes it as these two numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConcurrencyState {
    permits: u64,
    unit_nanos: u64,
}

impl ConcurrencyState {
    /// Creates a state with `permits` in flight and a recent duration of `unit`.
    pub fn new(permits: u64, unit: Duration) -> Self {
        Self { permits, unit_nanos: saturating_nanos(unit) }
    }

    /// Returns the permits in flight.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// Returns the recent duration of a request.
    pub fn unit(&self) -> Duration {
        Duration::from_nanos(self.unit_nanos)
    }
}
