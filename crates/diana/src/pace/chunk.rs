//! Splits bytes into chunks, so that traffic over the burst flows evenly.
//!
//! # How it works
//! If all bytes can pass now, they do. Otherwise a chunk is waited for: the bytes that the limit grants in 20 ms. A
//! limiter does not expose its rate, since not every limit has one; but it predicts when one byte and when all bytes
//! could pass, and the difference in bytes divided by the difference in time is the rate. If both are at the same time
//! (the end of a window), chunks gain nothing, and all bytes are waited for.

use super::acquire::Taken;
use diana_core::{Limiter, MAX_PERMITS, Outcome, Retry, Timestamp};
use std::time::Duration;

/// The duration of a chunk at the rate: short enough to look even, long enough for a low overhead.
const PIECE: Duration = Duration::from_millis(20);

/// Acquires permits for `bytes`, or for the capacity if that is less, as of `since`. If they can't pass now, returns
/// how many to wait for.
pub(super) fn at_once(limiter: &Limiter, bytes: u64, since: Timestamp) -> Result<Taken, u64> {
    let mut asked = bytes.clamp(1, MAX_PERMITS);
    loop {
        let Ok(answer) = limiter.check_since(asked, since) else { return Err(asked) };
        let most = match answer.outcome {
            Outcome::Granted { wait, receipt } => return Ok(Taken { receipt, turn: since + wait }),
            Outcome::Denied { retry: Retry::Never } if asked > answer.status.limit => answer.status.limit,
            // The rest of a total.
            Outcome::Denied { retry: Retry::Never } => answer.status.remaining,
            Outcome::Denied { .. } => return Err(piece(limiter, asked)),
        };
        if !(1..asked).contains(&most) {
            return Err(asked);
        }
        asked = most;
    }
}

/// Returns how many of `wanted` to wait for.
fn piece(limiter: &Limiter, wanted: u64) -> u64 {
    let (Some((first, at)), Some((_, then))) = (when(limiter, 1), when(limiter, wanted)) else { return wanted };
    let span = then.saturating_sub(at).as_nanos();
    let given = u128::from(wanted.saturating_sub(first)) * PIECE.as_nanos();
    given.checked_div(span).map_or(wanted, |given| u64::try_from(given).unwrap_or(u64::MAX)).clamp(1, wanted)
}

/// Returns when `bytes` could pass, and how many could pass with the first of them.
fn when(limiter: &Limiter, bytes: u64) -> Option<(u64, Duration)> {
    let answer = limiter.peek(bytes).ok()?;
    match answer.outcome {
        Outcome::Granted { .. } => Some((answer.status.remaining.max(1), Duration::ZERO)),
        Outcome::Denied { retry: Retry::After(wait) } => Some((1, wait)),
        Outcome::Denied { .. } => None,
    }
}
