//! A total: so many in all, until somebody resets it.
//!
//! # How it works
//! One count that only grows. Time gives nothing back, so there is nothing to wait for and no moment at which the key
//! could be forgotten:
//!
//! ```text
//!  0                      used             limit
//!  ├────────────────────────┼────────────────┤
//!  │◀──── gone for good ───▶│◀──── left ────▶│
//! ```
//!
//! # What always holds (tests/it/laws.rs, tests/it/total.rs)
//! - The grants that were not refunded cost at most the limit, however long it takes.
//! - A used key is never fresh, so no store forgets it: a key that was forgotten would be forgiven.

use crate::quota::check_count;
use crate::{Algorithm, Cost, InvalidQuota, MaxWait, Outcome, Receipt, Refund, Status, Timestamp, Waiting};
use std::time::Duration;

/// So many permits in all: trial uses, a prize draw, a prepaid account.
///
/// What it denies, it denies for good; only a refund or a reset by hand gives back. Every key that was ever seen takes
/// memory, so it is for keys that you hand out, and not for those that anyone can invent.
///
/// ```
/// use diana_core::{Algorithm, Cost, MaxWait, Retry, Timestamp, Total};
///
/// let trial = Total::new(1)?;
/// let mut state = trial.fresh(Timestamp::EPOCH);
/// assert!(trial.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::NONE).is_granted());
/// assert_eq!(trial.take(&mut state, Timestamp::MAX, Cost::ONE, MaxWait::FOREVER).retry(), Some(Retry::Never));
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Total {
    limit: u64,
}

impl Total {
    /// `limit` permits in all, at least 1 and at most [`MAX_PERMITS`](crate::MAX_PERMITS).
    pub fn new(limit: u64) -> Result<Self, InvalidQuota> {
        check_count("total", limit)?;
        Ok(Self { limit })
    }

    /// How many permits there are in all.
    pub fn limit(&self) -> u64 {
        self.limit
    }
}

impl Algorithm for Total {
    type State = TotalState;

    fn fresh(&self, _now: Timestamp) -> TotalState {
        TotalState::default()
    }

    #[inline]
    fn take(&self, state: &mut TotalState, now: Timestamp, cost: Cost, _patience: MaxWait) -> Outcome {
        match state.used.checked_add(cost.get()) {
            Some(used) if used <= self.limit => {
                state.used = used;
                Outcome::granted(Receipt::new(cost, now))
            }
            _ => Outcome::never(),
        }
    }

    #[inline]
    fn status(&self, state: &TotalState, _now: Timestamp) -> Status {
        Status { limit: self.limit, remaining: self.limit.saturating_sub(state.used), reset: Duration::ZERO }
    }

    fn charge(&self, state: &mut TotalState, _now: Timestamp, cost: Cost) {
        state.used = state.used.saturating_add(cost.get());
    }

    fn refund(&self, state: &mut TotalState, _now: Timestamp, receipt: &Receipt) -> Refund {
        // After a reset the receipts of before are void; so is a second refund, once nothing is in use.
        if state.used == 0 {
            return Refund::Void;
        }
        state.used = state.used.saturating_sub(receipt.cost().get());
        Refund::Returned
    }

    /// Never, even when all of it was given back: "has this key ever been seen" is what a total is asked to remember.
    fn is_fresh(&self, _state: &TotalState, _now: Timestamp) -> bool {
        false
    }

    fn rescale(&self, state: &mut TotalState, _old: &Self, _now: Timestamp) {
        state.used = state.used.min(self.limit);
    }

    /// The queue asks once, is told "never", and answers at once: nobody waits.
    fn waiting(&self) -> Waiting {
        Waiting::Queues
    }
}

/// The state of a [`Total`]: how many permits are gone.
///
/// A store that keeps its states elsewhere reads and writes them as that number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalState {
    used: u64,
}

impl TotalState {
    /// The state in which `used` permits are gone; more than the limit after a `charge`.
    pub fn new(used: u64) -> Self {
        Self { used }
    }

    /// How many permits are gone.
    pub fn used(&self) -> u64 {
        self.used
    }
}
