//! Minimum interval: a minimum time between two grants.
//!
//! # How it works
//! One time, `next_free`. A request proceeds then, or now if it has passed, and advances it by the interval:
//!
//! ```text
//!  last grant        now          next_free
//!  ────┼──────────────┼───────────────┼──────▶ time
//!      │              │◀──── wait ───▶│
//!      │◀────────── interval ────────▶│
//! ```
//!
//! For requests of cost 1 this is a token bucket with a burst of 1. But a token bucket denies a cost of 2 permanently,
//! while this algorithm ignores the cost: it limits *how often* something happens (a message sent, a page reloaded) and
//! not how much.
//!
//! # What always holds (tests/it/laws.rs, tests/it/min_interval.rs)
//! - Two grants that were not refunded proceed at least the interval apart.

use crate::{
    Algorithm, Cost, InvalidQuota, MaxWait, Outcome, Properties, Quota, Receipt, Refund, Restores, Status, Timestamp,
    WaitMode, words,
};
use std::time::Duration;

/// A minimum time between two grants, regardless of their cost.
///
/// With a maximum wait it reserves: the answer contains the wait, and later requests wait longer.
///
/// ```
/// use diana_core::{Algorithm, Cost, MinInterval, MaxWait, Retry, Timestamp};
/// use std::time::Duration;
///
/// let every = MinInterval::new(Duration::from_millis(200))?;
/// let mut state = every.fresh(Timestamp::EPOCH);
/// let mut ask = |ms| every.take(&mut state, Timestamp::from_millis(ms), Cost::ONE, MaxWait::NONE);
///
/// assert!(ask(0).is_granted());
/// assert_eq!(ask(150).retry(), Some(Retry::After(Duration::from_millis(50))));
/// assert!(ask(200).is_granted());
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinInterval {
    nanos: u64,
}

impl MinInterval {
    /// Requires at least `interval` between two grants; at least 1 ns, at most 584 years.
    pub fn new(interval: Duration) -> Result<Self, InvalidQuota> {
        match u64::try_from(interval.as_nanos()) {
            Ok(0) => Err(InvalidQuota::NoInterval),
            Ok(nanos) => Ok(Self { nanos }),
            Err(_) => Err(InvalidQuota::PeriodTooLong(interval)),
        }
    }

    /// Returns the minimum time between two grants.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }
}

impl Algorithm for MinInterval {
    type State = IntervalState;

    fn properties(&self) -> Properties<'_> {
        Restores::AfterInterval(self.interval()).into()
    }

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        Some(format!("at least {} apart", words::duration(self.interval())))
    }

    fn fresh(&self, _now: Timestamp) -> IntervalState {
        IntervalState::default()
    }

    #[inline]
    fn take(&self, state: &mut IntervalState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
        let start = state.next_free.max(now.as_nanos());
        if cost == Cost::ZERO {
            // Exceeded, if more than one grant is charged.
            return match (start - now.as_nanos()).checked_sub(self.nanos).filter(|nanos| *nanos > 0) {
                Some(too_early) => Outcome::denied_for(too_early),
                None => Outcome::granted(Receipt::new(cost, now)),
            };
        }
        // At the last timestamp there is no later free time, so the request is denied.
        let Some(next_free) = start.checked_add(self.nanos) else { return Outcome::never() };
        let wait = start - now.as_nanos();
        if let Some(too_early) = wait.checked_sub(max_wait.as_nanos()).filter(|nanos| *nanos > 0) {
            return Outcome::denied_for(too_early);
        }
        state.next_free = next_free;
        let receipt = Receipt::new(cost, now).with_mark(u128::from(next_free));
        Outcome::Granted { wait: Duration::from_nanos(wait), receipt }
    }

    /// The limit is 1: one grant, of any cost.
    #[inline]
    fn status(&self, state: &IntervalState, now: Timestamp) -> Status {
        let reset = Timestamp::from_nanos(state.next_free).since(now);
        Status { limit: 1, remaining: u64::from(reset.is_zero()), reset }
    }

    /// Counts as one grant, regardless of the cost.
    fn charge(&self, state: &mut IntervalState, now: Timestamp, _cost: Cost) {
        state.next_free = state.next_free.max(now.as_nanos()).saturating_add(self.nanos);
    }

    fn refund(&self, state: &mut IntervalState, now: Timestamp, receipt: &Receipt) -> Refund {
        // After any but the last grant there is a reservation whose time was computed from it.
        let is_last = u128::from(state.next_free) == receipt.mark();
        if !is_last || state.next_free <= now.as_nanos() {
            return Refund::Void;
        }
        state.next_free = state.next_free.saturating_sub(self.nanos);
        Refund::Returned
    }

    /// The cost is ignored: a grant that was used in part was used.
    fn refund_rest(&self, state: &mut IntervalState, now: Timestamp, receipt: &Receipt, used: u64) -> Refund {
        if used == 0 { self.refund(state, now, receipt) } else { Refund::Void }
    }

    fn is_fresh(&self, state: &IntervalState, now: Timestamp) -> bool {
        state.next_free <= now.as_nanos()
    }

    /// Computes the new interval from the last grant. One that is over stays over: a store may have dropped it.
    fn rescale(&self, state: &mut IntervalState, old: &Self, now: Timestamp) {
        if !old.is_fresh(state, now) {
            let last_grant = state.next_free.saturating_sub(old.nanos);
            state.next_free = last_grant.saturating_add(self.nanos);
        }
    }

    fn encode(&self, state: &IntervalState, words: &mut Vec<u64>) -> bool {
        words.extend([state.next_free]);
        true
    }

    fn decode(&self, words: &[u64]) -> Option<IntervalState> {
        let &[word] = words else { return None };
        Some(IntervalState { next_free: word })
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Reserve
    }
}

/// The state of a [`MinInterval`]: the next free time.
///
/// An external store reads and writes it as that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntervalState {
    /// The time in nanoseconds.
    next_free: u64,
}

impl IntervalState {
    /// Creates a state without further grants before `next_free`.
    pub fn new(next_free: Timestamp) -> Self {
        Self { next_free: next_free.as_nanos() }
    }

    /// Returns the next free time.
    pub fn next_free(&self) -> Timestamp {
        Timestamp::from_nanos(self.next_free)
    }
}
