//! Acquires permits and waits for them, on a thread or as a future.
//!
//! Even with an unlimited maximum wait a limiter denies in three cases: a cost over its capacity is split into
//! instalments; a full queue is polled again; and an exhausted limit is an error, since the wait would never end.

use diana_core::{AcquireError, Grant, Limiter, MAX_PERMITS, Receipt, Retry, Timestamp};
use std::io;
use std::time::Duration;

/// How often to poll a full queue, for which no retry time is known.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

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
#[error("the limit is exhausted and will never grant this: reset it, or set a larger limit")]
pub struct Exhausted;

impl From<Exhausted> for io::Error {
    fn from(exhausted: Exhausted) -> Self {
        Self::new(io::ErrorKind::QuotaExceeded, exhausted)
    }
}

/// Acquired permits, and when they were granted: now, or slightly earlier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acquired {
    pub(super) receipt: Receipt,
    pub(super) granted_at: Timestamp,
}

/// How many permits are requested, and as of when.
struct PendingAcquire {
    permits: u64,
    since: Timestamp,
    /// Whether the last request was made as of a time in the past.
    is_backdated: bool,
}

/// The step after an answer.
enum Step {
    Done(Acquired),
    Retry,
    /// Wait, then request again.
    Wait(Duration),
}

impl PendingAcquire {
    fn new(permits: u64, since: Timestamp) -> Self {
        Self { permits: permits.clamp(1, MAX_PERMITS), since, is_backdated: false }
    }

    /// Returns the step after the limiter's answer at `now`.
    fn next(&mut self, acquired: Result<Grant, AcquireError>, now: Timestamp) -> Result<Step, Exhausted> {
        let wait = match acquired {
            Ok(grant) => {
                return Ok(Step::Done(Acquired { receipt: grant.receipt, granted_at: self.since + grant.waited }));
            }
            // The cost is over the capacity.
            Err(AcquireError::Denied { retry: Retry::Never, status, .. })
                if (1..self.permits).contains(&status.limit) =>
            {
                self.permits = status.limit;
                return Ok(Step::Retry);
            }
            Err(AcquireError::Denied { retry: Retry::After(wait), .. }) => wait,
            Err(AcquireError::Denied { retry: Retry::WhenReleased, .. }) => POLL_INTERVAL,
            Err(_) => return Err(Exhausted),
        };
        let retry_at = self.since + wait;
        if retry_at > now {
            (self.since, self.is_backdated) = (retry_at, false);
            return Ok(Step::Wait(retry_at.since(now)));
        }
        // Requested as of that time, it should be granted. If not, other users were first, and retrying as of earlier
        // times does not help.
        self.since = if self.is_backdated { now } else { retry_at };
        self.is_backdated = true;
        Ok(Step::Retry)
    }
}

/// Acquires `permits`, or as many as the capacity, blocking this thread until they can be used. Requested as of
/// `since`.
pub(super) fn blocking_acquire(limiter: &Limiter, permits: u64, since: Timestamp) -> Result<Acquired, Exhausted> {
    let mut pending = PendingAcquire::new(permits, since);
    loop {
        let acquired = limiter.blocking_acquire_since(pending.permits, pending.since);
        match pending.next(acquired, limiter.clock().now())? {
            Step::Done(acquired) => return Ok(acquired),
            Step::Retry => {}
            Step::Wait(wait) => limiter.clock().park(wait),
        }
    }
}

/// Acquires like [`blocking_acquire`], as a future. Dropping it refunds its reservation.
pub(super) async fn acquire(limiter: &Limiter, permits: u64, since: Timestamp) -> Result<Acquired, Exhausted> {
    let mut pending = PendingAcquire::new(permits, since);
    loop {
        let acquired = limiter.acquire_since(pending.permits, pending.since).await;
        match pending.next(acquired, limiter.clock().now())? {
            Step::Done(acquired) => return Ok(acquired),
            Step::Retry => {}
            Step::Wait(wait) => tokio::time::sleep(wait).await,
        }
    }
}

/// Pays `cost`, in instalments if it is over the capacity, blocking this thread; returns the last instalment.
pub(super) fn blocking_pay(limiter: &Limiter, cost: u64, since: Timestamp) -> Result<Acquired, Exhausted> {
    let (mut remaining, mut since) = (cost, since);
    loop {
        let acquired = blocking_acquire(limiter, remaining, since)?;
        remaining = remaining.saturating_sub(acquired.receipt.cost().get());
        if remaining == 0 {
            return Ok(acquired);
        }
        since = acquired.granted_at;
    }
}

/// Pays like [`blocking_pay`], as a future.
pub(super) async fn pay(limiter: &Limiter, cost: u64, since: Timestamp) -> Result<Acquired, Exhausted> {
    let (mut remaining, mut since) = (cost, since);
    loop {
        let acquired = acquire(limiter, remaining, since).await?;
        remaining = remaining.saturating_sub(acquired.receipt.cost().get());
        if remaining == 0 {
            return Ok(acquired);
        }
        since = acquired.granted_at;
    }
}
