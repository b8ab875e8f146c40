//! Shared by the algorithms whose state on Redis is one point in time: `scripts/lib/gcra.lua`.

use crate::args::Args;
use crate::rational_time::{END, Fractions, Time};
use crate::scripted_algorithm::{Body, StoredState};
use diana_core::{Quota, Timestamp};

/// Returns why a schedule of this rate with a capacity of `limit` permits can't be stored, or `None` if it can.
pub(super) fn unsupported_reason(quota: &Quota, limit: u64) -> Option<String> {
    let Some(fractions) = Fractions::new(quota.interval()) else {
        return Some(format!("{quota} is too fine to be counted on Redis"));
    };
    // Half of a script's number range is reserved for the clock.
    let is_too_long = fractions.time(ticks_of(quota, limit)).micros >= END / 2;
    is_too_long.then(|| format!("{limit} permits of {quota} take more than 140 years to refill"))
}

/// Returns the representation of this rate's times. The rate must pass [`unsupported_reason`].
pub(super) fn fractions(quota: &Quota) -> Fractions {
    Fractions::new(quota.interval()).unwrap_or_else(|| unreachable!("checked when the limit was first seen"))
}

pub(super) fn ticks_of(quota: &Quota, permits: u64) -> u128 {
    u128::from(permits) * u128::from(quota.interval().0)
}

pub(super) fn push(args: &mut Args, time: Time) {
    args.push(time.micros);
    args.push(time.numerator);
}

/// Adds a capacity that no cost fits into, for a cost above the limit, which no maximum wait makes possible.
pub(super) fn push_never(args: &mut Args) {
    args.push(-1);
    args.push(0);
}

/// Parses a time as lib/gcra.lua writes it, corrected if the clock was set back.
pub(super) fn parse_time(body: &Body, now: Timestamp) -> Option<Time> {
    let Body::Text(text) = body else { return None };
    let mut numbers = text.split(' ').map(|number| number.parse::<u64>().ok());
    let time = Time { micros: numbers.next()??, numerator: numbers.next()?? };
    let furthest = now.as_micros().saturating_add(numbers.next()??.saturating_mul(1_000_000));
    Some(if time.micros > furthest { Time { micros: furthest, numerator: 0 } } else { time })
}

/// Formats a time as lib/gcra.lua reads it.
pub(super) fn format_time(time: Time, now: Timestamp) -> StoredState {
    let fresh_at = time.micros + u64::from(time.numerator > 0);
    let ahead = time.micros.saturating_sub(now.as_micros()).div_ceil(1_000_000);
    let body = Body::Text(format!("{} {} {ahead}", time.micros, time.numerator));
    StoredState { body: (fresh_at > now.as_micros()).then_some(body), fresh_at: Some(fresh_at) }
}

/// Returns the rate and burst of one of `instances`: the rate exactly, the burst at least 1.
pub(super) fn divided_rate(quota: &Quota, instances: u64) -> Quota {
    let instances = instances.max(1);
    let period = u32::try_from(instances).ok().and_then(|instances| quota.period().checked_mul(instances));
    let slower = period.and_then(|period| Quota::new(quota.permits(), period).ok()).unwrap_or(*quota);
    slower.with_burst((quota.burst() / instances).max(1)).unwrap_or(slower)
}
