//! Splits bytes into chunks, so that traffic over the burst flows evenly.
//!
//! # How it works
//! If all bytes can pass now, they do. Otherwise a chunk is waited for: the bytes that the limit grants in 20 ms. A
//! limiter does not expose its rate, since not every limit has one; but it predicts when one byte and when all bytes
//! could pass, and the difference in bytes divided by the difference in time is the rate. If both are at the same time
//! (the end of a window), chunks gain nothing, and all bytes are waited for.

use super::acquire_until_granted::Acquired;
use diana_core::{Limiter, MAX_PERMITS, Outcome, Retry, Timestamp};
use std::time::Duration;

/// The duration of a chunk at the rate: short enough to look even, long enough for a low overhead.
const CHUNK: Duration = Duration::from_millis(20);

/// Acquires permits for `bytes`, or for the capacity if that is less, as of `since`. If they can't pass now, returns
/// how many to wait for.
pub(super) fn try_acquire(limiter: &Limiter, bytes: u64, since: Timestamp) -> Result<Acquired, u64> {
    let mut requested = bytes.clamp(1, MAX_PERMITS);
    loop {
        let Ok(answer) = limiter.check_since(requested, since) else { return Err(requested) };
        let max = match answer.outcome {
            Outcome::Granted { wait, receipt } => return Ok(Acquired { receipt, granted_at: since + wait }),
            Outcome::Denied { retry: Retry::Never } if requested > answer.status().limit => answer.status().limit,
            // The rest of a total.
            Outcome::Denied { retry: Retry::Never } => answer.status().remaining,
            Outcome::Denied { .. } => return Err(chunk_size(limiter, requested)),
        };
        if !(1..requested).contains(&max) {
            return Err(requested);
        }
        requested = max;
    }
}

/// Returns how many of `wanted` to wait for.
fn chunk_size(limiter: &Limiter, wanted: u64) -> u64 {
    let (Some((first, at)), Some((_, then))) = (time_until(limiter, 1), time_until(limiter, wanted)) else {
        return wanted;
    };
    let span = then.saturating_sub(at).as_nanos();
    let granted = u128::from(wanted.saturating_sub(first)) * CHUNK.as_nanos();
    granted.checked_div(span).map_or(wanted, |granted| u64::try_from(granted).unwrap_or(u64::MAX)).clamp(1, wanted)
}

/// Returns the time until `bytes` could pass, and how many could pass with the first of them.
fn time_until(limiter: &Limiter, bytes: u64) -> Option<(u64, Duration)> {
    let answer = limiter.peek(bytes).ok()?;
    match answer.outcome {
        Outcome::Granted { .. } => Some((answer.status().remaining.max(1), Duration::ZERO)),
        Outcome::Denied { retry: Retry::After(wait) } => Some((1, wait)),
        Outcome::Denied { .. } => None,
    }
}
