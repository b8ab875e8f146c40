//! The smooth limiters as an [`Algorithm`](crate::Algorithm): [`SmoothRate`] at a [`Timestamp`].
//!
//! # How it works
//! Guava's stopwatch counts whole microseconds, Diana's clock nanoseconds. A time is truncated to the microsecond, and
//! so is the maximum wait:
//!
//! ```text
//!   truncated    now                          next_free
//!  ────────┼───────┼─────────┼─────────┼─────────┼──────▶ time, a microsecond a step
//!          │◀─────────── the wait ──────────────▶│
//!                  │◀──────── the retry ────────▶│
//! ```
//!
//! So a wait is Guava's number, less than a microsecond too long. A retry is counted from the untruncated clock: one
//! nanosecond earlier, that microsecond has not started, and the request is still denied.

use super::{END, SmoothRate, SmoothState, whole_micros};
use crate::{Algorithm, Cost, MAX_PERMITS, MaxWait, Outcome, Properties, Quota, Receipt, Refund, Restores};
use crate::{SmoothBursty, SmoothWarmingUp, Status, Timestamp, WaitMode, words};
use std::time::Duration;

impl SmoothRate {
    pub(in crate::algorithm) fn take(
        &self,
        state: &mut SmoothState,
        now: Timestamp,
        cost: Cost,
        max_wait: MaxWait,
    ) -> Outcome {
        // 584 years, which `FOREVER` is, is less than the longest debt.
        let timeout = if max_wait == MaxWait::FOREVER { END } else { max_wait.as_nanos() / 1_000 };
        let time = now.as_micros();
        let due = state.next_free_micros.saturating_sub(timeout);
        if due > time {
            // No clock reaches a time past the last timestamp.
            return due
                .checked_mul(1_000)
                .map_or(Outcome::never(), |nanos| Outcome::denied_for(nanos - now.as_nanos()));
        }
        let before = self.reserve(state, time, cost);
        let wait = Duration::from_micros(before.next_free_micros - time);
        Outcome::Granted { wait, receipt: Receipt::new(cost, now).with_mark(mark_of(before)) }
    }

    pub(in crate::algorithm) fn charge(&self, state: &mut SmoothState, now: Timestamp, cost: Cost) {
        self.reserve(state, now.as_micros(), cost);
    }

    /// Restores the state before the grant, minus the used part, if the key has not changed since.
    ///
    /// The receipt contains that state. Taking its cost again must lead to the current state; after another grant, or
    /// under other parameters, it does not.
    pub(in crate::algorithm) fn refund_rest(
        &self,
        state: &mut SmoothState,
        now: Timestamp,
        receipt: &Receipt,
        used: u64,
    ) -> Refund {
        let before = state_of(receipt.mark());
        let is_last = *state == self.spent(before, receipt.cost()) && state.next_free_micros < END;
        if !is_last || self.is_unlimited() {
            return Refund::Void;
        }
        let after = Cost::new(used.min(receipt.cost().get())).map_or(before, |used| self.spent(before, used));
        let time = now.as_micros();
        if self.settled(after, time) == self.settled(*state, time) {
            return Refund::Void; // time has restored all of it, or all of it was used
        }
        *state = after;
        Refund::Returned
    }

    /// - `limit`: the store's size, and at least 1, since a limiter without debt grants any request.
    /// - `remaining`: 0 while in debt; else the stored permits, and at least 1 for the same reason.
    /// - `reset`: until the debt is paid and the store is full.
    pub(in crate::algorithm) fn status(&self, state: &SmoothState, now: Timestamp) -> Status {
        let limit = whole_permits(self.max_permits).max(1);
        let settled = self.settled(*state, now.as_micros());
        let remaining = if settled.next_free_micros > now.as_micros() {
            0
        } else if self.is_unlimited() {
            limit
        } else {
            whole_permits(settled.stored).clamp(1, limit)
        };
        let full_at = Duration::from_micros(self.full_at(&settled));
        Status { limit, remaining, reset: full_at.saturating_sub(Duration::from_nanos(now.as_nanos())) }
    }

    /// Returns `true` if the key answers as a fresh one would, now and at any later time.
    ///
    /// A full store stays full, however the idle time is divided, since adding and dividing floats is monotonic. An
    /// empty one without debt is fresh at that microsecond only, unless nothing can be stored at all.
    pub(in crate::algorithm) fn is_fresh(&self, state: &SmoothState, now: Timestamp) -> bool {
        let time = now.as_micros();
        let settled = self.settled(*state, time);
        settled.next_free_micros <= time && (self.is_unlimited() || settled.stored == self.initial_permits)
    }

    /// Migrates a state from `old`: [`set_rate`](Self::set_rate), to the last bit.
    ///
    /// After scaling, a full store may differ from the new maximum in the last bit. The next idle microsecond makes it
    /// full, but within this one its price may differ by a microsecond from that of a fresh key. So that a dropped idle
    /// key behaves like a stored one, stores migrate the former too, within this microsecond
    /// ([`migrates_fresh`](Self::migrates_fresh)).
    pub(in crate::algorithm) fn rescale(&self, state: &mut SmoothState, old: &Self, now: Timestamp) {
        self.set_rate(state, old, now.as_micros());
    }

    pub(in crate::algorithm) fn migrates_fresh(changed: Timestamp, now: Timestamp) -> bool {
        changed.as_micros() == now.as_micros()
    }

    /// Returns the first microsecond at which the store is full.
    fn full_at(&self, state: &SmoothState) -> u64 {
        if self.is_unlimited() {
            return state.next_free_micros;
        }
        let idle = whole_micros(((self.max_permits - state.stored) * self.cool_down_interval).ceil());
        // The product and the quotient that fills the store may be rounded to either side of a microsecond.
        let is_short = self.stored_after(state.stored, idle) < self.max_permits;
        // After a change of the rate a store may be above its maximum, until the next microsecond clamps it.
        let is_short = is_short || state.stored > self.max_permits;
        state.next_free_micros.saturating_add(idle).saturating_add(u64::from(is_short)).min(END)
    }
}

fn mark_of(state: SmoothState) -> u128 {
    u128::from(state.next_free_micros) << 64 | u128::from(state.stored.to_bits())
}

#[allow(clippy::cast_possible_truncation, reason = "the two halves of a u128")]
pub(super) fn state_of(mark: u128) -> SmoothState {
    SmoothState { stored: f64::from_bits(mark as u64), next_free_micros: (mark >> 64) as u64 }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "truncation is intended")]
pub(in crate::algorithm) fn whole_permits(permits: f64) -> u64 {
    (permits as u64).min(MAX_PERMITS)
}

/// Describes the rate of a limiter: as the quota that it was made from, if it was.
pub(in crate::algorithm) fn describe_rate(quota: Option<Quota>, per_second: f64) -> String {
    quota.map_or_else(|| format!("{per_second} a second"), words::rate)
}

/// Guava's two limiters differ only in how they are created.
macro_rules! smooth_algorithms {
    ($($limiter:ty),+) => {
        $(
        impl Algorithm for $limiter {
            type State = SmoothState;

            fn properties(&self) -> Properties<'_> {
                Restores::AtRate(self.in_micros().nominal_rate()).into()
            }

            fn describe(&self, rate: Option<Quota>) -> Option<String> {
                Some(self.describe_saving(rate))
            }

            fn fresh(&self, now: Timestamp) -> SmoothState {
                self.in_micros().fresh(now.as_micros())
            }

            fn take(&self, state: &mut SmoothState, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Outcome {
                self.in_micros().take(state, now, cost, max_wait)
            }

            fn status(&self, state: &SmoothState, now: Timestamp) -> Status {
                self.in_micros().status(state, now)
            }

            fn charge(&self, state: &mut SmoothState, now: Timestamp, cost: Cost) {
                self.in_micros().charge(state, now, cost);
            }

            fn refund(&self, state: &mut SmoothState, now: Timestamp, receipt: &Receipt) -> Refund {
                self.in_micros().refund_rest(state, now, receipt, 0)
            }

            fn refund_rest(&self, state: &mut SmoothState, now: Timestamp, receipt: &Receipt, used: u64) -> Refund {
                self.in_micros().refund_rest(state, now, receipt, used)
            }

            fn is_fresh(&self, state: &SmoothState, now: Timestamp) -> bool {
                self.in_micros().is_fresh(state, now)
            }

            fn rescale(&self, state: &mut SmoothState, old: &Self, now: Timestamp) {
                self.in_micros().rescale(state, old.in_micros(), now);
            }

            fn migrates_fresh(&self, changed: Timestamp, now: Timestamp) -> bool {
                SmoothRate::migrates_fresh(changed, now)
            }

            fn encode(&self, state: &SmoothState, words: &mut Vec<u64>) -> bool {
                words.extend([state.stored_permits().to_bits(), state.next_free_micros()]);
                true
            }

            fn decode(&self, words: &[u64]) -> Option<SmoothState> {
                let &[first, second] = words else { return None };
                f64::from_bits(first).is_finite().then(|| SmoothState::new(f64::from_bits(first), second))
            }

            fn wait_mode(&self) -> WaitMode {
                WaitMode::Reserve
            }
        }
        )+
    };
}

smooth_algorithms!(SmoothBursty, SmoothWarmingUp);
