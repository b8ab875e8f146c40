//! Concurrency: so many in flight at a time.
//!
//! # How it works
//! One count, which a grant raises and a refund lowers. No clock gives anything back, so a denial can't say when to come
//! again, only that somebody has to leave first: nginx's `limit_conn`.
//!
//! ```text
//!  0              in flight      limit            limit + burst
//!  ├──────────────────┼────────────┼──────────────────┤
//!  │                  │◀─ at once ▶│◀── after a wait ▶│  refused
//! ```
//!
//! # A few more, but slower
//! A hard edge sends away the one that comes a moment too early. With a burst, as lua-resty-limit-traffic's `conn` has
//! it, those beyond the limit are let in after a wait. How long a place takes to come free is not known, so it is
//! learned: `unit` is what a request takes, beginning with [`delay`](Concurrency::delay), and each one that leaves moves
//! it half way to what that one took. The n-th in flight waits `unit × ⌊(n − 1) / limit⌋`: one unit for the first limit's
//! worth of excess, two for the second.
//!
//! When the last one leaves, the unit is forgotten. It would be better informed than the beginning, but then an idle key
//! would differ from a fresh one, and every key ever seen would have to be kept.
//!
//! # What always holds (tests/it/laws.rs, tests/it/concurrency.rs)
//! - Permits taken and not given back are at most `limit + burst`.

use crate::quota::check_count;
use crate::time::saturating_nanos;
use crate::{
    Algorithm, Cost, InvalidQuota, MAX_PERMITS, MaxWait, Outcome, Receipt, Refund, Retry, Status, Timestamp, Waiting,
};
use std::time::Duration;

/// The longest that a request is learned to take, in nanoseconds: 104 days, the most that Redis' numbers tell apart, so that
/// both stores learn the same.
const LONGEST_UNIT: u64 = (1 << 53) - 1;

/// So many permits in flight at a time.
///
/// A permit is given back by [`refund`](Algorithm::refund) with its receipt; one that never comes is gone, so limiters
/// hand out guards that do it when they are dropped.
///
/// ```
/// use diana_core::{Algorithm, Concurrency, Cost, MaxWait, Retry, Timestamp};
///
/// let pool = Concurrency::new(1)?;
/// let now = Timestamp::EPOCH;
/// let mut state = pool.fresh(now);
/// let first = pool.take(&mut state, now, Cost::ONE, MaxWait::NONE);
/// assert_eq!(pool.take(&mut state, now, Cost::ONE, MaxWait::NONE).retry(), Some(Retry::WhenReturned));
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

/// Nobody waits for longer than 104 days: nanoseconds that every store counts exactly.
const LONGEST_WAIT_NANOS: u64 = (1 << 53) - 1;

impl Concurrency {
    /// At most `limit` permits in flight, which must lie in `1..=MAX_PERMITS`.
    pub fn new(limit: u64) -> Result<Self, InvalidQuota> {
        check_count("concurrent", limit)?;
        Ok(Self { limit, burst: 0, delay_nanos: 0 })
    }

    /// Lets `permits` more in after a wait; limit and burst together are [`MAX_PERMITS`] at most.
    ///
    /// ```
    /// use diana_core::{Algorithm, Concurrency, Cost, MaxWait, Timestamp};
    /// use std::time::Duration;
    ///
    /// let pool = Concurrency::new(1)?.burst(1).delay(Duration::from_millis(5));
    /// let mut state = pool.fresh(Timestamp::EPOCH);
    /// let mut wait = || pool.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::FOREVER).wait();
    /// assert_eq!(wait(), Some(Duration::ZERO));
    /// assert_eq!(wait(), Some(Duration::from_millis(5)));
    /// assert_eq!(wait(), None); // beyond the burst
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    #[must_use]
    pub fn burst(self, permits: u64) -> Self {
        Self { burst: permits.min(MAX_PERMITS - self.limit), ..self }
    }

    /// What a request is taken to last until the first one that leaves tells better; zero unless you say otherwise.
    /// It matters only with a [`burst`](Self::burst), whose example shows it.
    #[must_use]
    pub fn delay(self, unit: Duration) -> Self {
        Self { delay_nanos: saturating_nanos(unit), ..self }
    }

    /// How many permits may be in flight without a wait.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What a request is taken to last until the first one that leaves tells better.
    pub fn first_delay(&self) -> Duration {
        Duration::from_nanos(self.delay_nanos)
    }

    /// How many may be in flight at all, those that wait first included.
    pub const fn capacity(&self) -> u64 {
        self.limit + self.burst
    }
}

impl Algorithm for Concurrency {
    type State = ConcurrencyState;

    fn fresh(&self, _now: Timestamp) -> ConcurrencyState {
        ConcurrencyState { permits: 0, unit_nanos: self.delay_nanos }
    }

    #[inline]
    fn take(&self, state: &mut ConcurrencyState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
        if cost.get() > self.capacity() {
            return Outcome::never();
        }
        let permits = state.permits.saturating_add(cost.get());
        let excess_turns = (permits - 1) / self.limit;
        let wait = state.unit_nanos.saturating_mul(excess_turns);
        if permits > self.capacity() || wait > max_wait.as_nanos().min(LONGEST_WAIT_NANOS) {
            // One that lacks the maximum wait could be told no time either: the wait shrinks when others leave, not by itself.
            return Outcome::Denied { retry: Retry::WhenReturned };
        }
        state.permits = permits;
        let receipt = Receipt::new(cost, now).with_mark(u128::from(wait));
        Outcome::Granted { wait: Duration::from_nanos(wait), receipt }
    }

    /// The limit is all that may be in flight, those that wait first included.
    #[inline]
    fn status(&self, state: &ConcurrencyState, _now: Timestamp) -> Status {
        let limit = self.capacity();
        Status { limit, remaining: limit.saturating_sub(state.permits), reset: Duration::ZERO }
    }

    /// Puts `cost` in flight. Nobody holds a receipt for it, so it stays until a refund of that much is made for it.
    fn charge(&self, state: &mut ConcurrencyState, _now: Timestamp, cost: Cost) {
        state.permits = state.permits.saturating_add(cost.get());
    }

    fn refund(&self, state: &mut ConcurrencyState, now: Timestamp, receipt: &Receipt) -> Refund {
        // A second refund of the last receipt, or one that outlived a reset.
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
        // One that left no later than it was let in was never served, and teaches nothing about how long serving takes.
        if latency > 0 {
            state.unit_nanos = latency.midpoint(state.unit_nanos).min(LONGEST_UNIT);
        }
        Refund::Returned
    }

    fn is_fresh(&self, state: &ConcurrencyState, _now: Timestamp) -> bool {
        state.permits == 0
    }

    /// Keeps what is in flight exactly, even beyond the new capacity: every one of those permits will come back, and were
    /// some of them forgotten here, their return would make room that is not there.
    fn rescale(&self, state: &mut ConcurrencyState, _old: &Self, now: Timestamp) {
        if state.permits == 0 {
            *state = self.fresh(now);
        }
    }

    fn waiting(&self) -> Waiting {
        Waiting::Queues
    }

    /// Nothing: what another kind of limit counted is not in flight, and nobody would ever give it back.
    fn occupied(&self, _used: u64, now: Timestamp) -> ConcurrencyState {
        self.fresh(now)
    }
}

/// The state of a [`Concurrency`]: the permits in flight, and what a request has lately taken.
///
/// A store that keeps its states elsewhere reads and writes them as those two numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConcurrencyState {
    permits: u64,
    unit_nanos: u64,
}

impl ConcurrencyState {
    /// The state with `permits` in flight, of which one has lately lasted `unit`.
    pub fn new(permits: u64, unit: Duration) -> Self {
        Self { permits, unit_nanos: saturating_nanos(unit) }
    }

    /// The permits in flight.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// What a request has lately taken.
    pub fn unit(&self) -> Duration {
        Duration::from_nanos(self.unit_nanos)
    }
}
