//! Paying for what passes: permits are taken and waited for, by a thread or by a future.
//!
//! A limiter that is asked with all patience still says no in three cases, and each has its answer here: more than it can
//! ever grant at once is asked for in parts; a line that is full is looked at again; and a limit that is used up for good is
//! an error, since waiting would be for ever.

use diana_core::{Answer, Clock, Cost, Limiter, MAX_PERMITS, Outcome, Receipt, Retry, SystemClock};
use std::fmt;
use std::io;
use std::time::Duration;

/// How soon to look again at a line that has no place, which no clock can tell.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The limit will never grant this: it is used up for good. Nothing passed.
///
/// ```
/// use diana::core::{Limiter, Total};
/// use diana::pace::{Throttled, UsedUp};
/// use std::io::{ErrorKind, Write};
///
/// let mut trial = Throttled::new(Vec::new()).writes(Limiter::with_algorithm(Total::new(10)?));
/// trial.write_all(b"ten bytes.")?;
/// let error = trial.write_all(b"and more").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
/// assert_eq!(error.to_string(), UsedUp.to_string());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedUp;

impl fmt::Display for UsedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the limit is used up for good, and nothing passed: reset it, or set a larger one")
    }
}

impl std::error::Error for UsedUp {}

impl From<UsedUp> for io::Error {
    fn from(used_up: UsedUp) -> Self {
        Self::new(io::ErrorKind::QuotaExceeded, used_up)
    }
}

/// What to do after an answer.
enum Next {
    Go(Receipt),
    /// There is never so much at once: this is the most.
    AskFor(u64),
    LookAgain(Duration),
}

fn next(answer: &Answer, asked: u64) -> Result<Next, UsedUp> {
    match answer.outcome {
        Outcome::Granted { receipt, .. } => Ok(Next::Go(receipt)),
        Outcome::Denied { retry: Retry::After(wait) } => Ok(Next::LookAgain(wait)),
        Outcome::Denied { retry: Retry::WhenReturned } => Ok(Next::LookAgain(LOOK_AGAIN)),
        Outcome::Denied { retry: Retry::Never } if (1..asked).contains(&answer.standing.limit) => {
            Ok(Next::AskFor(answer.standing.limit))
        }
        Outcome::Denied { retry: Retry::Never } => Err(UsedUp),
    }
}

/// Takes `permits`, or as many as there can be at once, blocking this thread until they can be used.
pub(super) fn take(limiter: &Limiter, permits: u64) -> Result<Receipt, UsedUp> {
    let mut asked = permits.clamp(1, MAX_PERMITS);
    loop {
        let Ok(answer) = limiter.acquire(asked) else { return Err(UsedUp) };
        match next(&answer, asked)? {
            Next::Go(receipt) => return Ok(receipt),
            Next::AskFor(most) => asked = most,
            Next::LookAgain(wait) => SystemClock.park(wait),
        }
    }
}

/// [`take`] as a future. Dropped, it gives back what it waited for.
pub(super) async fn take_async(limiter: &Limiter, permits: u64) -> Result<Receipt, UsedUp> {
    let mut asked = permits.clamp(1, MAX_PERMITS);
    loop {
        let Ok(answer) = limiter.acquire_async(asked).await else { return Err(UsedUp) };
        match next(&answer, asked)? {
            Next::Go(receipt) => return Ok(receipt),
            Next::AskFor(most) => asked = most,
            Next::LookAgain(wait) => tokio::time::sleep(wait).await,
        }
    }
}

/// Pays `cost`, in instalments if it is above the capacity, blocking this thread. Zero is free.
pub(super) fn pay(limiter: &Limiter, cost: u64) -> Result<(), UsedUp> {
    let mut left = cost;
    while left > 0 {
        left = left.saturating_sub(take(limiter, left)?.cost().get());
    }
    Ok(())
}

/// [`pay`] as a future; the receipt is that of the last instalment.
pub(super) async fn pay_async(limiter: &Limiter, cost: u64) -> Result<Receipt, UsedUp> {
    let mut left = cost;
    loop {
        let receipt = take_async(limiter, left).await?;
        left = left.saturating_sub(receipt.cost().get());
        if left == 0 {
            return Ok(receipt);
        }
    }
}

/// Gives back what of `receipt` is above `used`.
pub(super) fn give_back(limiter: &Limiter, receipt: &Receipt, used: u64) {
    // None is left if all of it was used.
    if let Ok(rest) = Cost::new(receipt.cost().get().saturating_sub(used)) {
        limiter.refund(&Receipt::new(rest, receipt.at()).with_mark(receipt.mark()));
    }
}
