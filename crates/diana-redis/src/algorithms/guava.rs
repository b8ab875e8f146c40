//! Shared by Guava's two limiters on Redis: `scripts/lib/guava.lua`.

use crate::args::Args;
use crate::rational_time::END;
use crate::scripted_algorithm::{AskArgs, Body, Numbers, StoredState};
use diana_core::{Algorithm, Receipt, SmoothRate, SmoothState, Timestamp};

/// Half of a script's number range, in microseconds; the other half is reserved for the clock.
const MAX_MICROS: f64 = (END / 2) as f64;

/// Returns why such a limiter can't be stored, or `None` if it can.
pub(super) fn unsupported_reason(smooth: &SmoothRate) -> Option<String> {
    let rate = smooth.nominal_rate();
    if rate.is_infinite() || smooth.max_permits().is_infinite() {
        return Some(format!("{rate:?}/s never denies, so it needs no shared count; count it in process"));
    }
    let fills = smooth.max_permits() * smooth.cool_down_interval_micros();
    // Written so that NaN counts as too long as well.
    let is_short = smooth.stable_interval_micros() < MAX_MICROS && fills < MAX_MICROS;
    (!is_short).then(|| format!("{rate:?}/s takes more than 140 years to refill"))
}

pub(super) fn take_args(smooth: &SmoothRate, args: &mut Args, ask: &AskArgs) {
    push(smooth, args, ask.stored);
    args.push(ask.min_expiry.as_micros().min(u128::from(END / 2)));
    args.push(format_args!("{:?}", smooth.stable_interval_micros()));
    args.push(ask.cost.get());
    args.push((ask.max_wait.as_nanos() / 1_000).min(END));
    if let Some((threshold, slope)) = smooth.threshold_and_slope() {
        args.push(format_args!("{threshold:?}"));
        args.push(format_args!("{slope:?}"));
    }
}

/// Adds the state before the grant, and the state after it: the script only compares and restores.
pub(super) fn refund_args(smooth: &SmoothRate, args: &mut Args, receipt: &Receipt) {
    let before = SmoothState::before(receipt);
    let mut after = before;
    smooth.acquire(&mut after, before.next_free_micros(), receipt.cost());
    push(smooth, args, None);
    for state in [before, after] {
        args.push(format_args!("{:?}", state.stored_permits()));
        args.push(state.next_free_micros().min(END));
    }
}

pub(super) fn parse_state(numbers: Numbers<'_>) -> Option<SmoothState> {
    Some(SmoothState::new(numbers.real(0)?, numbers.whole(1)?))
}

/// Parses a state as the script writes it, corrected if the clock was set back.
pub(super) fn read(body: &Body, now: Timestamp) -> Option<SmoothState> {
    let Body::Text(text) = body else { return None };
    let mut fields = text.split(' ');
    let stored: f64 = fields.next()?.parse().ok()?;
    let next_free: u64 = fields.next()?.parse().ok()?;
    let ahead: u64 = fields.next()?.parse().ok()?;
    let furthest = now.as_micros().saturating_add(ahead.saturating_mul(1_000_000));
    Some(SmoothState::new(stored, next_free.min(furthest)))
}

/// Formats a state as the script reads it.
pub(super) fn write<A: Algorithm<State = SmoothState>>(
    algorithm: &A,
    state: &SmoothState,
    now: Timestamp,
) -> StoredState {
    let next_free = state.next_free_micros().min(END);
    let ahead = next_free.saturating_sub(now.as_micros()).div_ceil(1_000_000);
    // The state resets when it is paid and full, which equals a new key.
    let fresh_at = (now + algorithm.status(state, now).reset).as_nanos().div_ceil(1_000).min(END);
    let body = Body::Text(format!("{:?} {next_free} {ahead}", state.stored_permits()));
    StoredState { body: (!algorithm.is_fresh(state, now)).then_some(body), fresh_at: Some(fresh_at) }
}

/// Returns the rate of one of `instances`.
#[allow(clippy::cast_precision_loss, reason = "there are fewer than 2^53 instances")]
pub(super) fn divided_rate(smooth: &SmoothRate, instances: u64) -> f64 {
    smooth.nominal_rate() / instances.max(1) as f64
}

/// Returns the stored permits of a key without a state at the time of its migration from `old`.
pub(super) fn stored_after_change(smooth: &SmoothRate, old: &SmoothRate, stored: Option<f64>, at: Timestamp) -> f64 {
    let mut state = old.fresh(at.as_micros());
    if let Some(stored) = stored {
        state = SmoothState::new(stored, state.next_free_micros());
    }
    smooth.set_rate(&mut state, old, at.as_micros());
    state.stored_permits()
}

/// Migrates a state of `old`. A state that equals a new key's is removed, and migrated as if it had not existed.
pub(super) fn migrate<A>(algorithm: &A, old: &A, body: &Body, now: Timestamp) -> Option<StoredState>
where
    A: Algorithm<State = SmoothState>,
{
    let mut state = read(body, now)?;
    if old.is_fresh(&state, now) {
        return Some(StoredState { body: None, fresh_at: None });
    }
    algorithm.rescale(&mut state, old, now);
    Some(write(algorithm, &state, now))
}

fn push(smooth: &SmoothRate, args: &mut Args, stored: Option<f64>) {
    args.push(format_args!("{:?}", smooth.max_permits()));
    args.push(format_args!("{:?}", smooth.cool_down_interval_micros()));
    args.push(format_args!("{:?}", stored.unwrap_or(smooth.max_permits())));
}
