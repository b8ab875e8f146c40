//! Total: a number of permits in all, until a reset.
//!
//! # How it works
//! One count that only grows. Time restores nothing, so there is nothing to wait for and a key is never dropped:
//!
//! ```text
//!  0                      used             limit
//!  ├────────────────────────┼────────────────┤
//!  │◀─────── used ─────────▶│◀─ remaining ──▶│
//! ```
//!
//! # What always holds (tests/it/laws.rs, tests/it/total.rs)
//! - The grants that were not refunded cost at most the limit, however long it takes.
//! - A used key is never fresh, so no store drops it: that would reset its count.

use crate::quota::check_count;
use crate::{
    Algorithm, Cost, InvalidQuota, MaxWait, Outcome, Properties, Quota, Receipt, Refund, Restores, Status, Timestamp,
    WaitMode,
};
use std::time::Duration;

/// A total number of permits: trial uses, a prize draw, a prepaid account.
///
/// A denial is permanent; only a refund or a reset restores permits. Every key that was ever seen takes memory, so use
/// it for keys that you issue, not for those that clients can invent.
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
    /// Creates a total of `limit` permits, at least 1 and at most [`MAX_PERMITS`](crate::MAX_PERMITS).
    pub fn new(limit: u64) -> Result<Self, InvalidQuota> {
        check_count("total", limit)?;
        Ok(Self { limit })
    }

    /// Returns the total number of permits.
    pub fn limit(&self) -> u64 {
        self.limit
    }
}

impl Algorithm for Total {
    type State = TotalState;

    fn properties(&self) -> Properties<'_> {
        Restores::Never.into()
    }

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        Some(format!("{} in total, until reset", self.limit))
    }

    fn fresh(&self, _now: Timestamp) -> TotalState {
        TotalState::default()
    }

    #[inline]
    fn take(&self, state: &mut TotalState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
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
        // After a reset earlier receipts are void; so is a second refund, once nothing is in use.
        if state.used == 0 {
            return Refund::Void;
        }
        state.used = state.used.saturating_sub(receipt.cost().get());
        Refund::Returned
    }

    /// Returns `false`, even after a refund of everything: a total must remember that the key was seen.
    fn is_fresh(&self, _state: &TotalState, _now: Timestamp) -> bool {
        false
    }

    fn rescale(&self, state: &mut TotalState, _old: &Self, _now: Timestamp) {
        state.used = state.used.min(self.limit);
    }

    fn encode(&self, state: &TotalState, words: &mut Vec<u64>) -> bool {
        words.extend([state.used]);
        true
    }

    fn decode(&self, words: &[u64]) -> Option<TotalState> {
        let &[word] = words else { return None };
        Some(TotalState { used: word })
    }

    /// The head of the queue asks once, gets `Never`, and returns: no request waits.
    fn wait_mode(&self) -> WaitMode {
        WaitMode::Queue
    }
}

/// The state of a [`Total`]: the number of used permits.
///
/// An external store reads and writes it as that number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalState {
    used: u64,
}

impl TotalState {
    /// Creates a state with `used` permits; more than the limit after a `charge`.
    pub fn new(used: u64) -> Self {
        Self { used }
    }

    /// Returns the number of used permits.
    pub fn used(&self) -> u64 {
        self.used
    }
}
