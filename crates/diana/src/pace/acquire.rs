//! Acquires permits and waits for them, on a thread or as a future.
//!
//! Even with an unlimited maximum wait a limiter denies in three cases: a cost over its capacity is split into
//! instalments; a full queue is polled again; and an exhausted limit is an error, since the wait would never end.

use diana_core::{AcquireError, Grant, Limiter, MAX_PERMITS, Receipt, Retry, Timestamp};
use std::io;
use std::time::Duration;

/// How often to poll a full queue, for which no retry time is known.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The limit is exhausted and will never grant this. Nothing passed.
///
/// ```
/// use diana::{Limiter, Total};
/// use diana::pace::{Throttled, Exhausted};
/// use std::io::{ErrorKind, Write};
///
/// let mut trial = Throttled::new(Vec::new()).writes(Limiter::with_algorithm(Total::new(10)?));
/// trial.write_all(b"ten bytes.")?;
/// let error = trial.write_all(b"and more").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
/// assert_eq!(error.to_string(), Exhausted.to_string());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit is used up for good, and nothing passed: reset it, or set a larger one")]
pub struct Exhausted;

impl From<Exhausted> for io::Error {
    fn from(used_up: Exhausted) -> Self {
        Self::new(io::ErrorKind::QuotaExceeded, used_up)
    }
}

/// Permits, and when they were granted: now, or slightly earlier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) receipt: Receipt,
    pub(super) turn: Timestamp,
}

/// How many permits are requested, and as of when.
struct Asking {
    permits: u64,
    since: Timestamp,
    /// Whether the last answer predicted a grant in the past.
    looked_back: bool,
}

/// The step after an answer.
enum Next {
    Go(Taken),
    AskAgain,
    /// Wait, then request again.
    Wait(Duration),
}

impl Asking {
    fn new(permits: u64, since: Timestamp) -> Self {
        Self { permits: permits.clamp(1, MAX_PERMITS), since, looked_back: false }
    }

    /// Returns the step after the limiter's answer at `now`.
    fn next(&mut self, acquired: Result<Grant, AcquireError>, now: Timestamp) -> Result<Next, Exhausted> {
        let wait = match acquired {
            Ok(grant) => return Ok(Next::Go(Taken { receipt: grant.receipt, turn: self.since + grant.waited })),
            // The cost is over the capacity.
            Err(AcquireError::Denied { retry: Retry::Never, status }) if (1..self.permits).contains(&status.limit) => {
                self.permits = status.limit;
                return Ok(Next::AskAgain);
            }
            Err(AcquireError::Denied { retry: Retry::After(wait), .. }) => wait,
            Err(AcquireError::Denied { retry: Retry::WhenReturned, .. }) => LOOK_AGAIN,
            Err(_) => return Err(Exhausted),
        };
        let then = self.since + wait;
        if then > now {
            (self.since, self.looked_back) = (then, false);
            return Ok(Next::Wait(then.since(now)));
        }
        // Requested as of then, it should be granted. If not, other users were first, and retrying at earlier instants
        // does not help.
        self.since = if self.looked_back { now } else { then };
        self.looked_back = true;
        Ok(Next::AskAgain)
    }
}

/// Acquires `permits`, or as many as the capacity, blocking this thread until they can be used. Requested as of
/// `since`.
pub(super) fn take(limiter: &Limiter, permits: u64, since: Timestamp) -> Result<Taken, Exhausted> {
    let mut asking = Asking::new(permits, since);
    loop {
        let acquired = limiter.blocking_acquire_since(asking.permits, asking.since);
        match asking.next(acquired, limiter.clock().now())? {
            Next::Go(taken) => return Ok(taken),
            Next::AskAgain => {}
            Next::Wait(wait) => limiter.clock().park(wait),
        }
    }
}

/// [`take`] as a future. Dropping it refunds its reservation.
pub(super) async fn take_async(limiter: &Limiter, permits: u64, since: Timestamp) -> Result<Taken, Exhausted> {
    let mut asking = Asking::new(permits, since);
    loop {
        let acquired = limiter.acquire_since(asking.permits, asking.since).await;
        match asking.next(acquired, limiter.clock().now())? {
            Next::Go(taken) => return Ok(taken),
            Next::AskAgain => {}
            Next::Wait(wait) => tokio::time::sleep(wait).await,
        }
    }
}

/// Pays `cost`, in instalments if it is over the capacity, blocking this thread; returns the last instalment.
pub(super) fn pay(limiter: &Limiter, cost: u64, since: Timestamp) -> Result<Taken, Exhausted> {
    let (mut left, mut since) = (cost, since);
    loop {
        let taken = take(limiter, left, since)?;
        left = left.saturating_sub(taken.receipt.cost().get());
        if left == 0 {
            return Ok(taken);
        }
        since = taken.turn;
    }
}

/// [`pay`] as a future.
pub(super) async fn pay_async(limiter: &Limiter, cost: u64, since: Timestamp) -> Result<Taken, Exhausted> {
    let (mut left, mut since) = (cost, since);
    loop {
        let taken = take_async(limiter, left, since).await?;
        left = left.saturating_sub(taken.receipt.cost().get());
        if left == 0 {
            return Ok(taken);
        }
        since = taken.turn;
    }
}
