//! Bytes in pieces, so that what is above the burst flows evenly.
//!
//! # How it works
//! All that is wanted goes if so much may go at once. Else a piece is waited for, as much as the limit gives in 20 ms. A
//! limiter does not tell its rate, since not every limit has one; but it tells when one byte could go and when all of them
//! could, and what comes between, divided by the time between, is the rate. Where both come at the same time (a window
//! that ends), nothing is won by pieces, and all of it is waited for.

use super::acquire::Taken;
use diana_core::{Limiter, MAX_PERMITS, Outcome, Retry, Timestamp};
use std::time::Duration;

/// How long a piece takes at the rate: short enough to look even, long enough to be no burden.
const PIECE: Duration = Duration::from_millis(20);

/// Takes permits for so many bytes, or for as many as can ever go at once, reckoned from `since`. If they can't go now: how
/// many to wait for.
pub(super) fn at_once(limiter: &Limiter, bytes: u64, since: Timestamp) -> Result<Taken, u64> {
    let mut asked = bytes.clamp(1, MAX_PERMITS);
    loop {
        let Ok(answer) = limiter.check_since(asked, since) else { return Err(asked) };
        let most = match answer.outcome {
            Outcome::Granted { wait, receipt } => return Ok(Taken { receipt, turn: since + wait }),
            Outcome::Denied { retry: Retry::Never } if asked > answer.status.limit => answer.status.limit,
            // The last of a total.
            Outcome::Denied { retry: Retry::Never } => answer.status.remaining,
            Outcome::Denied { .. } => return Err(piece(limiter, asked)),
        };
        if !(1..asked).contains(&most) {
            return Err(asked);
        }
        asked = most;
    }
}

/// How much of `wanted` to wait for.
fn piece(limiter: &Limiter, wanted: u64) -> u64 {
    let (Some((first, at)), Some((_, then))) = (when(limiter, 1), when(limiter, wanted)) else { return wanted };
    let span = then.saturating_sub(at).as_nanos();
    let given = u128::from(wanted.saturating_sub(first)) * PIECE.as_nanos();
    given.checked_div(span).map_or(wanted, |given| u64::try_from(given).unwrap_or(u64::MAX)).clamp(1, wanted)
}

/// When `bytes` could go, and how many could go with the first of them.
fn when(limiter: &Limiter, bytes: u64) -> Option<(u64, Duration)> {
    let answer = limiter.peek(bytes).ok()?;
    match answer.outcome {
        Outcome::Granted { .. } => Some((answer.status.remaining.max(1), Duration::ZERO)),
        Outcome::Denied { retry: Retry::After(wait) } => Some((1, wait)),
        Outcome::Denied { .. } => None,
    }
}
