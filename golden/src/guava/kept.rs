//! A limiter of Guava's on a store.
//!
//! # How it comes to begin as Guava's does
//! A bursty limiter of Guava's begins with an empty store. One that is shared begins with a full one, since a key that
//! nobody has used for long may be forgotten. But it can be emptied: whoever asks for all that is stored, rounded up to
//! whole permits, leaves nothing, and a debt for the fraction that was not there. Once that is paid, the limiter is where
//! Guava's begins:
//!
//! ```text
//!      spent          paid: the scenario's start
//!  ──────┼─────────────────┼──────────────────────▶ time
//!        │◀─ the offset ──▶│
//! ```
//!
//! Only differences of times matter to it, so the whole scenario takes place later by that offset.

use super::{Difference, Limiter};
use crate::store::{Counts, Stop};
use diana_core::{Algorithm, Ask, Cost, InitialPermits, Limit, MaxWait, SmoothState, Status, Timestamp};
use std::time::Duration;

/// Microseconds that a shared store tells apart from the end of time; half of them are left to the clock.
const LAST: u64 = 4_500_000_000_000_000;

#[derive(Debug)]
pub(super) struct Kept<'a> {
    counts: &'a Counts<'a>,
    limiter: Limiter,
    limit: Limit,
    /// By how many microseconds the store is told a later time.
    offset: u64,
    /// How many microseconds after the last change its state is what Guava's is.
    settles_after: u64,
}

impl<'a> Kept<'a> {
    /// A limiter that begins at `clock`.
    pub(super) fn new(counts: &'a Counts<'a>, limiter: Limiter, clock: u64) -> Result<Self, Stop> {
        let limiter = limiter.starting_full();
        let mut kept = Self { counts, limiter, limit: limiter.limit(), offset: 0, settles_after: 0 };
        // What can't be kept is known from the first look.
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

    /// How long one who asks at `clock` must wait; `None` if it is denied. `until` is the debt after it.
    pub(super) fn ask(&self, clock: u64, until: u64, cost: Cost, timeout: u64) -> Result<Option<u64>, Stop> {
        self.time(until)?;
        let max_wait = if timeout >= LAST { MaxWait::FOREVER } else { MaxWait::up_to(Duration::from_micros(timeout)) };
        let answer = self.counts.decide_one(Ask::new(&self.limit, "", cost), self.time(clock)?, max_wait)?;
        Ok(answer.wait().map(|wait| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)))
    }

    pub(super) fn set_rate(&mut self, limiter: Limiter, clock: u64) -> Result<(), Stop> {
        // A store takes a change to the same rate for none, where Guava scales what is stored, which may put a full store a bit
        // beside its maximum until the next microsecond.
        self.settles_after = u64::from(self.limiter == limiter.starting_full());
        self.limiter = limiter.starting_full();
        self.limit = self.limiter.changed(&self.limit);
        // A store may carry a key over when it is next asked for.
        self.look(clock).map(drop)
    }

    /// Where the limiter stands, where that is not as `state` says.
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

/// The whole permits that leave nothing of a store; `None` if it holds nothing.
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
