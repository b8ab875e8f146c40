//! Waiting for permits: by reservation where the algorithm can, else in line, first come, first served.
//!
//! # How it works
//! An algorithm that [reserves](Waiting::Reserves) answers how long to wait, and everybody's time is theirs: there is
//! nothing to queue. Under one that can't, patient requests stand in a [line](queue::Lines), one line for each key.
//! Only the first in line asks the limit; when it leaves, granted or not, it wakes the next. Those who come meanwhile
//! stand behind, and those without maximum wait are denied while a line stands, so nobody overtakes.
//!
//! A [`Turn`] is one place in a line. Threads and futures drive it in the same way: poll it, sleep until the moment that
//! it names, or until its waker is called, and poll again.

use crate::clock::Time;
use crate::{Answer, Cost, MaxWait, Outcome, Retry, Status, Timestamp, Waiting};
use queue::WaitQueues;
use std::task::Waker;

#[cfg(feature = "async")]
pub(crate) mod future;
pub(crate) mod queue;
pub(crate) mod thread;

/// Something that permits are taken from: the limit of one key each.
pub(crate) trait Source: Send + Sync {
    fn take(&self, key: u64, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer;
    /// Gives back what was taken and won't be used.
    #[cfg(feature = "async")]
    fn give_back(&self, key: u64, receipt: &crate::Receipt);
    fn status(&self, key: u64, now: Timestamp) -> Status;
    fn waiting(&self) -> Waiting;
    fn lines(&self) -> &WaitQueues;
    fn time(&self) -> &Time;

    /// Takes without waiting, unless others stand in line for the same key.
    #[inline(always)]
    fn check(&self, key: u64, now: Timestamp, cost: Cost) -> Answer {
        if self.lines().has_waiters(key) {
            return self.others_are_first(key, now);
        }
        self.take(key, now, cost, MaxWait::NONE)
    }

    /// The answer to somebody who does not want to stand behind those who wait.
    #[cold]
    fn others_are_first(&self, key: u64, now: Timestamp) -> Answer {
        let status = self.status(key, now);
        Answer { outcome: Outcome::Denied { retry: Retry::WhenReturned }, status }
    }
}

/// Asks an algorithm that reserves. `None` if a place in line is needed instead.
///
/// The limit may change between the look and the ask. One that queues then denies for want of time what it would grant
/// in line, so a denial counts only if those who wait are still not in line (tests/shuttle/changing.rs).
pub(crate) fn reserve<S: Source + ?Sized>(
    source: &S,
    key: u64,
    cost: Cost,
    now: Timestamp,
    max_wait: MaxWait,
) -> Option<Answer> {
    if source.waiting() == Waiting::Queues {
        return None;
    }
    let answer = source.take(key, now, cost, max_wait);
    (answer.is_granted() || source.waiting() == Waiting::Reserves).then_some(answer)
}

/// One place in a line.
pub(crate) struct Turn<'a, S: Source + ?Sized> {
    source: &'a S,
    key: u64,
    cost: Cost,
    deadline: Timestamp,
    ticket: Option<u64>,
}

/// How a turn stands.
pub(crate) enum Step {
    /// It is over.
    Done(Answer),
    /// Poll again then, or when the waker is called.
    WaitUntil(Timestamp),
}

impl<'a, S: Source + ?Sized> Turn<'a, S> {
    pub(crate) fn new(source: &'a S, key: u64, cost: Cost, began: Timestamp, max_wait: MaxWait) -> Self {
        Self { source, key, cost, deadline: began + max_wait.as_duration(), ticket: None }
    }

    /// Asks, if this is the first in line, and says what to do next.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Step {
        let now = self.source.time().now();
        let lines = self.source.lines();
        // The waker is left before asking: what is returned in between calls it, and the next poll sees it.
        let first = match self.ticket {
            Some(ticket) => lines.leave_waker(self.key, ticket, waker),
            None if !lines.has_waiters(self.key) => {
                let answer = self.source.take(self.key, now, self.cost, self.max_wait(now));
                let hopeless = answer.retry() == Some(Retry::Never) || self.deadline <= now;
                if answer.is_granted() || hopeless {
                    return Step::Done(answer);
                }
                match self.join(now, waker) {
                    Ok(first) => first,
                    Err(turned_away) => return Step::Done(turned_away),
                }
            }
            None => match self.join(now, waker) {
                Ok(first) => first,
                Err(turned_away) => return Step::Done(turned_away),
            },
        };
        if !first {
            return if now < self.deadline { Step::WaitUntil(self.deadline) } else { self.give_up(now) };
        }
        let answer = self.source.take(self.key, now, self.cost, self.max_wait(now));
        let again = match answer.outcome {
            Outcome::Granted { .. } => {
                self.leave();
                return Step::Done(answer);
            }
            Outcome::Denied { retry: Retry::After(after) } if now + after <= self.deadline => now + after,
            Outcome::Denied { retry: Retry::WhenReturned } if now < self.deadline => self.deadline,
            Outcome::Denied { .. } => {
                self.leave();
                return Step::Done(answer);
            }
        };
        Step::WaitUntil(again)
    }

    /// What is left of it.
    fn max_wait(&self, now: Timestamp) -> MaxWait {
        MaxWait::up_to(self.deadline.since(now))
    }

    fn join(&mut self, now: Timestamp, waker: &Waker) -> Result<bool, Answer> {
        let Some((ticket, first)) = self.source.lines().join(self.key, waker) else {
            return Err(self.source.others_are_first(self.key, now));
        };
        self.ticket = Some(ticket);
        Ok(first)
    }

    fn give_up(&mut self, now: Timestamp) -> Step {
        self.leave();
        Step::Done(self.source.others_are_first(self.key, now))
    }

    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.source.lines().leave(self.key, ticket);
        }
    }
}

impl<S: Source + ?Sized> Drop for Turn<'_, S> {
    /// Who stops waiting leaves the line, and the next one moves up.
    fn drop(&mut self) {
        self.leave();
    }
}

/// An answer in which the wait counts from `since`, and not from when the permits were taken.
pub(crate) fn reckoned(answer: Answer, since: Timestamp) -> Answer {
    match answer.outcome {
        Outcome::Granted { wait, receipt } => waited(answer, since, receipt.at().max(since) + wait),
        Outcome::Denied { .. } => answer,
    }
}

/// A granted answer in which the wait is all of it, from `began` to `then`.
fn waited(answer: Answer, began: Timestamp, then: Timestamp) -> Answer {
    match answer.outcome {
        Outcome::Granted { receipt, .. } => {
            Answer { outcome: Outcome::Granted { wait: then.since(began), receipt }, ..answer }
        }
        Outcome::Denied { .. } => answer,
    }
}
