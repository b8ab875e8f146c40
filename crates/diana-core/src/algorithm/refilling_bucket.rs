//! Token bucket with whole refills: a number of tokens at once, at a fixed period.
//!
//! # How it works
//! A [`TokenBucket`](super::TokenBucket) refills evenly; this one refills in steps. It starts full, and every `every`
//! it gets `tokens` more, up to its capacity. A rate of 100 per minute then means "a hundred at the full minute", not
//! "one each 600 ms".
//!
//! ```text
//!  tokens                       capacity 4, 2 tokens every 10 s, the first grant at t = 3
//!    4 ━━━┓                ┏━━━━━━━━━━
//!    2    ┃       ┏━━━━━━━━┛
//!    0    ┗━━━━━━━┛
//!  ───────┼───────┼────────┼──────────▶ time
//!         3      13       23     (the phase began with the first grant)
//! ```
//!
//! The simplest design stores the time of each request and refills `elapsed / every` times. It loses the remainder of a
//! period each time, so a client that asks every 9 s is never refilled. So the time of the last *refill step* is
//! stored, which advances by whole periods only and keeps the remainder.
//!
//! # Expiry of the phase
//! That remainder, the phase, would have to be stored indefinitely, even for a key that was last seen a year ago. So
//! the phase is dropped strictly later than `ceil(capacity / tokens)` periods after the last grant. The bucket is full
//! by then, and the next grant starts a new phase: dropping it never adds a token, and the next refill is the same or later.
//!
//! # What always holds (tests/it/laws.rs, tests/it/refilling_bucket.rs)
//! - At one instant at most `capacity` are granted, and in every span `t` at most
//!   `capacity + tokens × (t / every + 1)`.
//! - A clock that goes back refills nothing, and removes nothing.
//!
//! # Where it fails
//! All tokens come at once. If the protected service cannot take that, use [`TokenBucket`](super::TokenBucket).

use crate::{
    Algorithm, Cost, MaxWait, Outcome, Properties, Quota, Receipt, Refund, Restores, Status, Timestamp, WaitMode, words,
};
use std::time::Duration;

/// A bucket of `quota.burst()` tokens that gets `quota.permits()` at once every `quota.period()`.
///
/// ```
/// use diana_core::{Algorithm, Cost, MaxWait, Quota, RefillingBucket, Retry, Timestamp};
/// use std::time::Duration;
///
/// // Two tokens every ten seconds, four at most.
/// let bucket = RefillingBucket::new("2/10s burst 4".parse()?);
/// let mut state = bucket.fresh(Timestamp::from_secs(3));
/// let mut ask = |secs, cost| bucket.take(&mut state, Timestamp::from_secs(secs), cost, MaxWait::NONE);
///
/// let four = Cost::new(4).unwrap();
/// assert!(ask(3, four).is_granted());
/// assert_eq!(ask(4, Cost::ONE).retry(), Some(Retry::After(Duration::from_secs(9))));
/// assert_eq!(ask(4, four).retry(), Some(Retry::After(Duration::from_secs(19))));
/// assert!(ask(13, Cost::ONE).is_granted());
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefillingBucket {
    quota: Quota,
    /// How long after the last grant the phase is kept, in nanoseconds.
    phase_ttl: u64,
}

/// The state of a [`RefillingBucket`]: the missing tokens, the refill step, and the time of the last grant.
///
/// An external store reads and writes it as these three numbers.
///
/// ```
/// use diana_core::{Algorithm, Quota, RefillingBucket, RefillingState, Timestamp};
///
/// let bucket = RefillingBucket::new(Quota::per_second(5)?);
/// assert_eq!(bucket.fresh(Timestamp::EPOCH), RefillingState::default());
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefillingState {
    /// Missing tokens; more than the capacity after a `charge`. Zero only in a fresh state.
    missing: u64,
    /// The refill step that `missing` includes.
    stepped: Timestamp,
    /// The last grant, from which the phase is kept.
    granted: Timestamp,
}

impl RefillingState {
    /// Creates a state with `missing` tokens as of the refill step at `stepped`, and the last grant at `granted`.
    pub fn new(missing: u64, stepped: Timestamp, granted: Timestamp) -> Self {
        Self { missing, stepped, granted }
    }

    /// Returns the state right after the grant of `receipt`, from which a refund is computed.
    ///
    /// ```
    /// use diana_core::{Algorithm, Cost, MaxWait, Quota, RefillingBucket, RefillingState, Timestamp};
    ///
    /// let bucket = RefillingBucket::new(Quota::per_second(5)?);
    /// let mut state = bucket.fresh(Timestamp::EPOCH);
    /// let granted = bucket.take(&mut state, Timestamp::EPOCH, Cost::ONE, MaxWait::NONE);
    /// assert_eq!(granted.receipt().map(|receipt| RefillingState::after(&receipt)), Some(state));
    /// # Ok::<(), diana_core::InvalidQuota>(())
    /// ```
    pub fn after(receipt: &Receipt) -> Self {
        let (stepped, missing) = parse_mark(receipt.mark());
        Self { missing, stepped, granted: receipt.at() }
    }

    /// Returns the number of missing tokens; more than the capacity after a `charge`.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns the refill step that [`missing`](Self::missing) includes.
    pub fn stepped(&self) -> Timestamp {
        self.stepped
    }

    /// Returns the last grant.
    pub fn granted(&self) -> Timestamp {
        self.granted
    }
}

impl RefillingBucket {
    /// Creates a bucket of `quota.burst()` tokens that gets `quota.permits()` more at once every `quota.period()`.
    pub fn new(quota: Quota) -> Self {
        let refills = quota.burst().div_ceil(quota.permits());
        Self { quota, phase_ttl: refills.saturating_mul(quota.period_nanos()) }
    }

    /// Returns the quota of this bucket.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the state at `now`: refilled up to the last step, or with a phase that starts now.
    #[inline]
    fn advance(&self, state: &RefillingState, now: Timestamp) -> RefillingState {
        let every = self.quota.period_nanos();
        // A step in the future (a clock that went back) counts as zero steps.
        let steps = nanos_between(state.stepped, now) / every;
        let missing = state.missing.saturating_sub(steps.saturating_mul(self.quota.permits()));
        let keeps_phase = nanos_between(state.granted, now) <= self.phase_ttl;
        if state.missing == 0 || (missing == 0 && !keeps_phase) {
            return RefillingState { missing: 0, stepped: now, granted: now };
        }
        // The step is not later than `now`, so nothing saturates.
        let stepped = state.stepped + Duration::from_nanos(steps.saturating_mul(every));
        RefillingState { missing, stepped, granted: state.granted.max(now) }
    }

    /// Returns when an updated bucket will have `tokens` more, in nanoseconds.
    fn refilled_at(&self, current: &RefillingState, tokens: u64) -> u128 {
        let refills = u128::from(tokens.div_ceil(self.quota.permits()));
        u128::from(current.stepped.as_nanos()) + refills * u128::from(self.quota.period_nanos())
    }
}

impl Algorithm for RefillingBucket {
    type State = RefillingState;

    fn properties(&self) -> Properties<'_> {
        Restores::InSteps(self.quota).into()
    }

    fn describe(&self, _rate: Option<Quota>) -> Option<String> {
        let (permits, burst, every) = (self.quota.permits(), self.quota.burst(), words::period(self.quota.period()));
        // A refill that does not fit into the bucket is lost.
        let most = burst.saturating_add(permits.min(burst));
        Some(format!("{permits} more every {every}, up to {burst} at once: at most {most} in any {every}"))
    }

    fn fresh(&self, _now: Timestamp) -> RefillingState {
        RefillingState::default()
    }

    #[inline]
    fn take(&self, state: &mut RefillingState, now: Timestamp, cost: Cost, _max_wait: MaxWait) -> Outcome {
        let capacity = self.quota.burst();
        if cost.get() > capacity {
            return Outcome::never();
        }
        let mut current = self.advance(state, now);
        let missing = current.missing.saturating_add(cost.get());
        if missing > capacity {
            return Outcome::denied_until(self.refilled_at(&current, missing - capacity), now);
        }
        current.missing = missing;
        *state = current;
        Outcome::granted(Receipt::new(cost, now).with_mark(mark(&current)))
    }

    #[inline]
    fn status(&self, state: &RefillingState, now: Timestamp) -> Status {
        let current = self.advance(state, now);
        let full_at = u64::try_from(self.refilled_at(&current, current.missing)).unwrap_or(u64::MAX);
        let reset = if current.missing == 0 { Duration::ZERO } else { Timestamp::from_nanos(full_at).since(now) };
        let limit = self.quota.burst();
        Status { limit, remaining: limit.saturating_sub(current.missing), reset }
    }

    fn charge(&self, state: &mut RefillingState, now: Timestamp, cost: Cost) {
        *state = self.advance(state, now);
        state.missing = state.missing.saturating_add(cost.get());
    }

    /// Refunds the tokens of the receipt that have not been refilled yet.
    ///
    /// Refills restore the oldest grants first. So of the `missing` tokens right after the grant, the receipt's own are
    /// the last ones, and each refill since then has come closer to them.
    fn refund(&self, state: &mut RefillingState, now: Timestamp, receipt: &Receipt) -> Refund {
        let current = self.advance(state, now);
        let after = RefillingState::after(receipt);
        let refills = nanos_between(after.stepped, current.stepped) / self.quota.period_nanos();
        let remaining = after.missing.saturating_sub(refills.saturating_mul(self.quota.permits()));
        let returned = remaining.min(receipt.cost().get()).min(current.missing);
        if returned == 0 {
            return Refund::Void;
        }
        let missing = current.missing - returned;
        *state = match missing {
            // Nothing is missing, so there is nothing to store.
            0 => RefillingState::default(),
            _ => RefillingState { missing, granted: state.granted, ..current },
        };
        Refund::Returned
    }

    fn is_fresh(&self, state: &RefillingState, now: Timestamp) -> bool {
        let keeps_phase = nanos_between(state.granted, now) <= self.phase_ttl;
        state.missing == 0 || (!keeps_phase && self.advance(state, now).missing == 0)
    }

    fn rescale(&self, state: &mut RefillingState, old: &Self, now: Timestamp) {
        if self == old {
            return;
        }
        let current = old.advance(state, now);
        if current.missing == 0 {
            *state = RefillingState::default();
            return;
        }
        let keeps_step = self.quota.period() == old.quota.period();
        *state = RefillingState {
            missing: current.missing.min(self.quota.burst()),
            // With a shorter period the remainder of the old one might already be worth a refill.
            stepped: if keeps_step { current.stepped } else { current.stepped.max(now) },
            granted: state.granted,
        };
    }

    fn encode(&self, state: &RefillingState, words: &mut Vec<u64>) -> bool {
        words.extend([state.missing, state.stepped.as_nanos(), state.granted.as_nanos()]);
        true
    }

    fn decode(&self, words: &[u64]) -> Option<RefillingState> {
        let &[first, second, third] = words else { return None };
        Some(RefillingState::new(first, Timestamp::from_nanos(second), Timestamp::from_nanos(third)))
    }

    fn wait_mode(&self) -> WaitMode {
        WaitMode::Queue
    }
}

#[inline]
fn nanos_between(earlier: Timestamp, later: Timestamp) -> u64 {
    later.as_nanos().saturating_sub(earlier.as_nanos())
}

/// Returns the data of a refund: the refill step of the grant, and the missing tokens after it.
fn mark(state: &RefillingState) -> u128 {
    (u128::from(state.stepped.as_nanos()) << 64) | u128::from(state.missing)
}

#[allow(clippy::cast_possible_truncation, reason = "the two halves of a u128")]
fn parse_mark(mark: u128) -> (Timestamp, u64) {
    (Timestamp::from_nanos((mark >> 64) as u64), mark as u64)
}
