//! A Guava limiter on a store.
//!
//! # How it starts in the same state as Guava's
//! Guava's bursty limiter starts with an empty store. A shared one starts with a full store, since an idle key may
//! expire. But it can be emptied: an ask for all stored permits, rounded up to whole permits, leaves nothing, and a
//! debt for the fraction that was missing. Once that is paid, the limiter is in the state in which Guava's starts:
//!
//! ```text
//!     emptied         paid: the scenario's start
//!  ──────┼─────────────────┼──────────────────────▶ time
//!        │◀─ the offset ──▶│
//! ```
//!
//! Only time differences matter to it, so the whole scenario is shifted by that offset.

use super::{Difference, Limiter};
use crate::store::{ScenarioStore, Stop};
use diana_core::{Algorithm, Ask, Cost, InitialPermits, Limit, MaxWait, SmoothState, Status, Timestamp};
use std::time::Duration;

/// The highest time in microseconds on a shared store, of which half is reserved for the clock.
const MAX_MICROS: u64 = 4_500_000_000_000_000;

#[derive(Debug)]
pub(super) struct LimiterOnStore<'a> {
    store: &'a ScenarioStore<'a>,
    limiter: Limiter,
    limit: Limit,
    /// The number of microseconds by which the store's time is shifted.
    offset: u64,
    /// How many microseconds after the last change its state equals Guava's.
    settles_after: u64,
}

impl<'a> LimiterOnStore<'a> {
    /// Creates a limiter that starts at `clock`.
    pub(super) fn new(store: &'a ScenarioStore<'a>, limiter: Limiter, clock: u64) -> Result<Self, Stop> {
        let limiter = limiter.starting_full();
        let mut on_store = Self { store, limiter, limit: limiter.limit(), offset: 0, settles_after: 0 };
        // The first peek fails if the limiter is unsupported.
        on_store.status(clock)?;
        if let (Limiter::Bursty(bursty), Some(cost)) = (limiter, whole_permits(limiter.smooth().max_permits())?) {
            let smooth = bursty.in_micros();
            on_store.offset = smooth.price(&smooth.fresh(clock), clock, cost).micros();
            let emptied =
                store.decide_one(Ask::new(&on_store.limit, "", cost), Timestamp::from_micros(clock), MaxWait::NONE)?;
            if !emptied.is_granted() {
                return Err("a full store did not grant all of its permits".into());
            }
        }
        Ok(on_store)
    }

    /// Returns how long a request at `clock` must wait; `None` if it is denied. `until` is the debt after it.
    pub(super) fn ask(&self, clock: u64, until: u64, cost: Cost, timeout: u64) -> Result<Option<u64>, Stop> {
        self.time(until)?;
        let max_wait =
            if timeout >= MAX_MICROS { MaxWait::FOREVER } else { MaxWait::up_to(Duration::from_micros(timeout)) };
        let answer = self.store.decide_one(Ask::new(&self.limit, "", cost), self.time(clock)?, max_wait)?;
        Ok(answer.wait().map(|wait| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)))
    }

    pub(super) fn set_rate(&mut self, limiter: Limiter, clock: u64) -> Result<(), Stop> {
        // A store ignores a change to the same rate, where Guava scales the stored permits, which may put a full store
        // slightly off its maximum until the next microsecond.
        self.settles_after = u64::from(self.limiter == limiter.starting_full());
        self.limiter = limiter.starting_full();
        self.limit = self.limiter.changed(&self.limit);
        // A store may migrate a key on the next query for it.
        self.status(clock).map(drop)
    }

    /// Returns the limiter's status if it differs from `state`.
    pub(super) fn end(&self, clock: u64, state: SmoothState) -> Result<Difference, Stop> {
        let clock = clock.saturating_add(self.settles_after);
        let state = SmoothState::new(state.stored_permits(), state.next_free_micros().saturating_add(self.offset));
        let expected = self.limiter.status(&state, self.time(clock)?);
        let actual = self.status(clock)?;
        Ok((expected != actual).then(|| (format!("{expected:?}"), format!("{actual:?}"))))
    }

    fn status(&self, clock: u64) -> Result<Status, Stop> {
        let decision = self.store.peek(&[Ask::one(&self.limit, "")], self.time(clock)?, MaxWait::NONE)?;
        decision.answers().first().map(diana_core::Answer::status).ok_or_else(|| "the store returned no answer".into())
    }

    fn time(&self, clock: u64) -> Result<Timestamp, Stop> {
        match clock.checked_add(self.offset).filter(|micros| *micros < MAX_MICROS) {
            Some(micros) => Ok(Timestamp::from_micros(micros)),
            None => Err(Stop::Unsupported("its time or debt is past the last time of a store".to_owned())),
        }
    }
}

/// Returns the whole permits that empty a store; `None` if it is empty.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a too large value is rejected by `Cost::new`"
)]
fn whole_permits(permits: f64) -> Result<Option<Cost>, Stop> {
    if permits == 0.0 {
        return Ok(None);
    }
    let cost = Cost::new(permits.ceil() as u64);
    cost.map(Some).map_err(|_| Stop::Unsupported("its store exceeds the maximum cost and cannot be emptied".to_owned()))
}

impl Limiter {
    fn starting_full(self) -> Self {
        match self {
            Self::Bursty(limiter) => Self::Bursty(limiter.with_initial_permits(InitialPermits::Full)),
            Self::WarmingUp(limiter) => Self::WarmingUp(limiter),
        }
    }

    fn limit(self) -> Limit {
        match self {
            Self::Bursty(limiter) => Limit::new("guava", limiter),
            Self::WarmingUp(limiter) => Limit::new("guava", limiter),
        }
    }

    fn changed(self, limit: &Limit) -> Limit {
        match self {
            Self::Bursty(limiter) => limit.changed_to(limiter),
            Self::WarmingUp(limiter) => limit.changed_to(limiter),
        }
    }

    fn status(self, state: &SmoothState, now: Timestamp) -> Status {
        match self {
            Self::Bursty(limiter) => Algorithm::status(&limiter, state, now),
            Self::WarmingUp(limiter) => Algorithm::status(&limiter, state, now),
        }
    }
}
