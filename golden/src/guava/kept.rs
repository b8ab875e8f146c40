//! A Guava limiter on a store.
//!
//! # How it starts in the same state as Guava's
//! Guava's bursty limiter starts with an empty store. A shared one starts with a full store, since an idle key may
//! expire. But it can be emptied: an ask for all stored permits, rounded up to whole permits, leaves nothing, and a
//! debt for the fraction that was missing. Once that is paid, the limiter is in the state in which Guava's starts:
//!
//! ```text
//!      spent          paid: the scenario's start
//!  ──────┼─────────────────┼──────────────────────▶ time
//!        │◀─ the offset ──▶│
//! ```
//!
//! Only time differences matter to it, so the whole scenario is shifted by that offset.

use super::{Difference, Limiter};
use crate::store::{Counts, Stop};
use diana_core::{Algorithm, Ask, Cost, InitialPermits, Limit, MaxWait, SmoothState, Status, Timestamp};
use std::time::Duration;

/// The highest time in microseconds on a shared store, of which half is reserved for the clock.
const LAST: u64 = 4_500_000_000_000_000;

#[derive(Debug)]
pub(super) struct Kept<'a> {
    counts: &'a Counts<'a>,
    limiter: Limiter,
    limit: Limit,
    /// The number of microseconds by which the store's time is shifted.
    offset: u64,
    /// How many microseconds after the last change its state equals Guava's.
    settles_after: u64,
}

impl<'a> Kept<'a> {
    /// Creates a limiter that starts at `clock`.
    pub(super) fn new(counts: &'a Counts<'a>, limiter: Limiter, clock: u64) -> Result<Self, Stop> {
        let limiter = limiter.starting_full();
        let mut kept = Self { counts, limiter, limit: limiter.limit(), offset: 0, settles_after: 0 };
        // The first peek fails if the limiter is unsupported.
        kept.look(clock)?;
        if let (Limiter::Bursty(bursty), Some(cost)) = (limiter, all_of(limiter.smooth().max_permits())?) {
            let smooth = bursty.in_micros();
            kept.offset = smooth.price(&smooth.fresh(clock), clock, cost).micros();
            let spent =
                counts.decide_one(Ask::new(&kept.limit, "", cost), Timestamp::from_micros(clock), MaxWait::NONE)?;
            if !spent.is_granted() {
                return Err("a full store was not given out".into());
            }
        }
        Ok(kept)
    }

    /// Returns how long a request at `clock` must wait; `None` if it is denied. `until` is the debt after it.
    pub(super) fn ask(&self, clock: u64, until: u64, cost: Cost, timeout: u64) -> Result<Option<u64>, Stop> {
        self.time(until)?;
        let max_wait = if timeout >= LAST { MaxWait::FOREVER } else { MaxWait::up_to(Duration::from_micros(timeout)) };
        let answer = self.counts.decide_one(Ask::new(&self.limit, "", cost), self.time(clock)?, max_wait)?;
        Ok(answer.wait().map(|wait| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)))
    }

    pub(super) fn set_rate(&mut self, limiter: Limiter, clock: u64) -> Result<(), Stop> {
        // A store ignores a change to the same rate, where Guava scales the stored permits, which may put a full store
        // slightly off its maximum until the next microsecond.
        self.settles_after = u64::from(self.limiter == limiter.starting_full());
        self.limiter = limiter.starting_full();
        self.limit = self.limiter.changed(&self.limit);
        // A store may migrate a key on the next query for it.
        self.look(clock).map(drop)
    }

    /// Returns the limiter's status if it differs from `state`.
    pub(super) fn end(&self, clock: u64, state: SmoothState) -> Result<Difference, Stop> {
        let clock = clock.saturating_add(self.settles_after);
        let state = SmoothState::new(state.stored_permits(), state.next_free_micros().saturating_add(self.offset));
        let expected = self.limiter.status(&state, self.time(clock)?);
        let actual = self.look(clock)?;
        Ok((expected != actual).then(|| (format!("{expected:?}"), format!("{actual:?}"))))
    }

    fn look(&self, clock: u64) -> Result<Status, Stop> {
        let decision = self.counts.peek(&[Ask::one(&self.limit, "")], self.time(clock)?, MaxWait::NONE)?;
        decision.answers().first().map(|answer| answer.status).ok_or_else(|| "nothing was answered".into())
    }

    fn time(&self, clock: u64) -> Result<Timestamp, Stop> {
        match clock.checked_add(self.offset).filter(|micros| *micros < LAST) {
            Some(micros) => Ok(Timestamp::from_micros(micros)),
            None => Err(Stop::NotKept("it runs, or has debts, until later than a store's clock".to_owned())),
        }
    }
}

/// Returns the whole permits that empty a store; `None` if it is empty.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what is too large is too much for a cost")]
fn all_of(permits: f64) -> Result<Option<Cost>, Stop> {
    if permits == 0.0 {
        return Ok(None);
    }
    let cost = Cost::new(permits.ceil() as u64);
    cost.map(Some)
        .map_err(|_| Stop::NotKept("its store is larger than the largest cost, so it can't be emptied".to_owned()))
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
