//! Paying for what passes: permits are taken and waited for, by a thread or by a future.
//!
//! A limiter that is asked with all maximum wait still says no in three cases, and each has its answer here: more than it can
//! ever grant at once is asked for in parts; a line that is full is looked at again; and a limit that is used up for good is
//! an error, since waiting would be for ever.

use diana_core::{Answer, Limiter, MAX_PERMITS, Outcome, Receipt, Retry, Timestamp};
use std::fmt;
use std::io;
use std::time::Duration;

/// How soon to look again at a line that has no place, which no clock can tell.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The limit will never grant this: it is used up for good. Nothing passed.
///
/// ```
/// use diana::core::{Limiter, Total};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the limit is used up for good, and nothing passed: reset it, or set a larger one")
    }
}

impl std::error::Error for Exhausted {}

impl From<Exhausted> for io::Error {
    fn from(used_up: Exhausted) -> Self {
        Self::new(io::ErrorKind::QuotaExceeded, used_up)
    }
}

/// Permits, and when their turn came: now, or a little earlier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) receipt: Receipt,
    pub(super) turn: Timestamp,
}

/// How many permits are asked for, and as of when.
struct Asking {
    permits: u64,
    since: Timestamp,
    /// Whether the last answer was "a moment that is past".
    looked_back: bool,
}

/// What to do after an answer.
enum Next {
    Go(Taken),
    AskAgain,
    /// And then ask again.
    Wait(Duration),
}

impl Asking {
    fn new(permits: u64, since: Timestamp) -> Self {
        Self { permits: permits.clamp(1, MAX_PERMITS), since, looked_back: false }
    }

    /// Takes note of an answer that was had at `now`.
    fn heed(&mut self, answer: &Answer, now: Timestamp) -> Result<Next, Exhausted> {
        let wait = match answer.outcome {
            Outcome::Granted { wait, receipt } => return Ok(Next::Go(Taken { receipt, turn: self.since + wait })),
            // There is never so much at once.
            Outcome::Denied { retry: Retry::Never } if (1..self.permits).contains(&answer.status.limit) => {
                self.permits = answer.status.limit;
                return Ok(Next::AskAgain);
            }
            Outcome::Denied { retry: Retry::Never } => return Err(Exhausted),
            Outcome::Denied { retry: Retry::After(wait) } => wait,
            Outcome::Denied { retry: Retry::WhenReturned } => LOOK_AGAIN,
        };
        let then = self.since + wait;
        if then > now {
            (self.since, self.looked_back) = (then, false);
            return Ok(Next::Wait(then.since(now)));
        }
        // Asked as of then it should be granted. If not, others were first, and to go back over all that they did helps
        // nobody.
        self.since = if self.looked_back { now } else { then };
        self.looked_back = true;
        Ok(Next::AskAgain)
    }
}

/// Takes `permits`, or as many as there can be at once, blocking this thread until they can be used. Reckoned from `since`.
pub(super) fn take(limiter: &Limiter, permits: u64, since: Timestamp) -> Result<Taken, Exhausted> {
    let mut asking = Asking::new(permits, since);
    loop {
        let Ok(answer) = limiter.acquire_since(asking.permits, asking.since) else { return Err(Exhausted) };
        match asking.heed(&answer, limiter.clock().now())? {
            Next::Go(taken) => return Ok(taken),
            Next::AskAgain => {}
            Next::Wait(wait) => limiter.clock().park(wait),
        }
    }
}

/// [`take`] as a future. Dropped, it gives back what it waited for.
pub(super) async fn take_async(limiter: &Limiter, permits: u64, since: Timestamp) -> Result<Taken, Exhausted> {
    let mut asking = Asking::new(permits, since);
    loop {
        let answer = limiter.acquire_since_async(asking.permits, asking.since).await;
        let Ok(answer) = answer else { return Err(Exhausted) };
        match asking.heed(&answer, limiter.clock().now())? {
            Next::Go(taken) => return Ok(taken),
            Next::AskAgain => {}
            Next::Wait(wait) => tokio::time::sleep(wait).await,
        }
    }
}

/// Pays `cost`, in instalments if it is above the capacity, blocking this thread; the last instalment.
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
