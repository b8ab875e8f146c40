//! Waiting for permits: by reservation if the algorithm can, else in a FIFO queue.
//!
//! # How it works
//! An algorithm that [reserves](WaitMode::Reserve) returns how long to wait, and each request has its own time: no
//! queue is needed. For one that cannot, waiting requests are kept in [queues](queues::WaitQueues), one for each key.
//! Only the head of a queue asks the limit; when it leaves the queue, granted or not, it wakes the next. New requests
//! join at the tail, and requests that do not wait are denied while the queue is not empty, so no request overtakes another.
//!
//! A [`QueuedRequest`] is one position in a queue. Threads and futures drive it in the same way: poll it, sleep until
//! the time that it returns or until its waker is called, and poll again.

use crate::clock::LimiterClock;
use crate::{Answer, Cost, MaxWait, Outcome, Retry, Status, Timestamp, WaitMode};
use std::task::Waker;

#[cfg(feature = "async")]
pub(crate) mod future;
pub(crate) mod queues;
pub(crate) mod thread;

pub use queues::WaitQueues;

/// A source of permits: the limit of each key.
pub(crate) trait Source: Send + Sync {
    fn take(&self, key: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer;
    /// Refunds a grant that will not be used.
    #[cfg(feature = "async")]
    fn refund_unused(&self, key: u64, receipt: &crate::Receipt);
    fn status(&self, key: u64, now: Timestamp) -> Status;
    fn wait_mode(&self) -> WaitMode;
    fn queues(&self) -> &WaitQueues;
    fn time(&self) -> &LimiterClock;

    /// Takes without waiting, unless other requests are queued for the same key.
    #[inline(always)]
    fn check(&self, key: u64, now: Timestamp, cost: Cost) -> Answer {
        if self.queues().has_waiters(key) {
            return self.denied_by_queue(key, now);
        }
        self.take(key, now, cost, MaxWait::NONE)
    }

    /// Returns the answer for a request that does not wait behind the queued ones.
    #[cold]
    fn denied_by_queue(&self, key: u64, now: Timestamp) -> Answer {
        let status = self.status(key, now);
        Answer::new(Outcome::Denied { retry: Retry::WhenReleased }, status)
    }
}

/// Asks an algorithm that reserves. Returns `None` if the request must be queued instead.
///
/// The limit may change between the check of its kind and the ask. One that queues then denies immediately a request
/// that it would grant from the queue, so a denial is returned only if the limit still does not queue
/// (tests/shuttle/limit_change.rs).
pub(crate) fn reserve<S: Source + ?Sized>(
    source: &S,
    key: u64,
    cost: Cost,
    now: Timestamp,
    max_wait: MaxWait,
) -> Option<Answer> {
    if source.wait_mode() == WaitMode::Queue {
        return None;
    }
    let answer = source.take(key, now, cost, max_wait);
    (answer.is_granted() || source.wait_mode() == WaitMode::Reserve).then_some(answer)
}

/// A request in a queue.
pub(crate) struct QueuedRequest<'a, S: Source + ?Sized> {
    source: &'a S,
    key: u64,
    cost: Cost,
    deadline: Timestamp,
    ticket: Option<u64>,
}

/// The result of polling a queued request.
pub(crate) enum Step {
    /// The request was granted or denied.
    Done(Answer),
    /// Poll again at this time, or when the waker is called.
    WaitUntil(Timestamp),
}

impl<'a, S: Source + ?Sized> QueuedRequest<'a, S> {
    pub(crate) fn new(source: &'a S, key: u64, cost: Cost, start: Timestamp, max_wait: MaxWait) -> Self {
        Self { source, key, cost, deadline: start + max_wait.as_duration(), ticket: None }
    }

    /// Asks the limit if this is the head of the queue, and returns what to do next.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Step {
        let now = self.source.time().now();
        let queues = self.source.queues();
        // The waker is registered before asking: permits released in between call it, and the next poll sees them.
        let first = match self.ticket {
            Some(ticket) => queues.set_waker(self.key, ticket, waker),
            None if !queues.has_waiters(self.key) => {
                let answer = self.source.take(self.key, now, self.cost, self.max_wait(now));
                let is_final = answer.retry() == Some(Retry::Never) || self.deadline <= now;
                if answer.is_granted() || is_final {
                    return Step::Done(answer);
                }
                match self.join(now, waker) {
                    Ok(first) => first,
                    Err(denied_full) => return Step::Done(denied_full),
                }
            }
            None => match self.join(now, waker) {
                Ok(first) => first,
                Err(denied_full) => return Step::Done(denied_full),
            },
        };
        if !first {
            return if now < self.deadline { Step::WaitUntil(self.deadline) } else { self.give_up(now) };
        }
        let answer = self.source.take(self.key, now, self.cost, self.max_wait(now));
        let retry_at = match answer.outcome {
            Outcome::Granted { .. } => {
                self.leave();
                return Step::Done(answer);
            }
            Outcome::Denied { retry: Retry::After(after) } if now + after <= self.deadline => now + after,
            Outcome::Denied { retry: Retry::WhenReleased } if now < self.deadline => self.deadline,
            Outcome::Denied { .. } => {
                self.leave();
                return Step::Done(answer);
            }
        };
        Step::WaitUntil(retry_at)
    }

    /// Returns the rest of the maximum wait.
    fn max_wait(&self, now: Timestamp) -> MaxWait {
        MaxWait::up_to(self.deadline.since(now))
    }

    fn join(&mut self, now: Timestamp, waker: &Waker) -> Result<bool, Answer> {
        let Some((ticket, first)) = self.source.queues().join(self.key, waker) else {
            return Err(self.source.denied_by_queue(self.key, now));
        };
        self.ticket = Some(ticket);
        Ok(first)
    }

    fn give_up(&mut self, now: Timestamp) -> Step {
        self.leave();
        Step::Done(self.source.denied_by_queue(self.key, now))
    }

    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.source.queues().leave(self.key, ticket);
        }
    }
}

impl<S: Source + ?Sized> Drop for QueuedRequest<'_, S> {
    /// Leaves the queue and wakes the next in it.
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns an answer whose wait counts from `since`, not from when the permits were taken.
pub(crate) fn count_wait_from(answer: Answer, since: Timestamp) -> Answer {
    match answer.outcome {
        Outcome::Granted { wait, receipt } => with_wait(answer, since, receipt.at().max(since) + wait),
        Outcome::Denied { .. } => answer,
    }
}

/// Returns a granted answer whose wait is the whole time from `start` to `end`.
fn with_wait(answer: Answer, start: Timestamp, end: Timestamp) -> Answer {
    match answer.outcome {
        Outcome::Granted { receipt, .. } => answer.with_outcome(Outcome::Granted { wait: end.since(start), receipt }),
        Outcome::Denied { .. } => answer,
    }
}
