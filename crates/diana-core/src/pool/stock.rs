//! The idle resources of a pool, and the requests that wait for one of them or for a permit of a [`PermitSource`].
//!
//! [`PermitSource`]: super::PermitSource

#[cfg(feature = "async")]
use super::SourcePermit;
use crate::Timestamp;
#[cfg(feature = "async")]
use std::collections::VecDeque;
#[cfg(feature = "async")]
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A resource, and the permit that it holds while it exists.
pub(super) struct Existing<T> {
    pub(super) resource: T,
    #[cfg(feature = "async")]
    pub(super) _permit: Option<SourcePermit>,
}

/// The resources that exist, and the idle ones of them.
pub(super) struct Stock<T> {
    existing: u64,
    /// The last one was used last, and is used next: resources that are not needed stay idle.
    idle: Vec<(Existing<T>, Timestamp)>,
    /// The queue: each waiter takes an idle resource before any later request does.
    #[cfg(feature = "async")]
    waiters: VecDeque<Waiter>,
    /// How many resources were closed.
    #[cfg(feature = "async")]
    closed: u64,
    #[cfg(feature = "async")]
    next_ticket: u64,
    /// Whether a task closes resources that are idle for too long.
    #[cfg(feature = "async")]
    pub(super) is_swept: bool,
}

impl<T> Stock<T> {
    pub(super) fn new() -> Self {
        Self {
            existing: 0,
            idle: Vec::new(),
            #[cfg(feature = "async")]
            waiters: VecDeque::new(),
            #[cfg(feature = "async")]
            closed: 0,
            #[cfg(feature = "async")]
            next_ticket: 0,
            #[cfg(feature = "async")]
            is_swept: false,
        }
    }

    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    pub(super) fn in_use(&self) -> u64 {
        self.existing - self.idle.len() as u64
    }

    /// Returns an idle resource, unless those that wait take all of them.
    pub(super) fn take(&mut self) -> Option<Existing<T>> {
        #[cfg(feature = "async")]
        if self.idle.len() <= self.waiters.len() {
            return None;
        }
        self.idle.pop().map(|(existing, _)| existing)
    }

    /// Counts a new resource, which is in use.
    pub(super) fn created(&mut self) {
        self.existing += 1;
    }

    /// Counts resources that were dropped.
    pub(super) fn count_closed(&mut self, number: usize) {
        self.existing -= number as u64;
        #[cfg(feature = "async")]
        if number > 0 {
            self.closed += number as u64;
            self.waiters.iter().for_each(|waiter| waiter.waker.wake_by_ref());
        }
    }

    /// Makes a used resource idle. Returns it if `max_idle` others are, or if more than `size` exist;
    /// [`count_closed`](Self::count_closed) it when it is dropped.
    pub(super) fn put(&mut self, used: Existing<T>, now: Timestamp, max_idle: usize, size: u64) -> Option<Existing<T>> {
        if self.idle.len() >= max_idle || self.existing > size {
            return Some(used);
        }
        self.idle.push((used, now));
        #[cfg(feature = "async")]
        self.wake_for_idle();
        None
    }

    /// Takes those that have been idle the longest, until at most `size` resources exist or none is idle.
    pub(super) fn take_idle_over(&mut self, size: u64) -> Vec<Existing<T>> {
        let excess = usize::try_from(self.existing.saturating_sub(size)).unwrap_or(usize::MAX);
        self.take_oldest(excess.min(self.idle.len()))
    }

    /// Takes those that have been idle for `timeout`. Returns them, and when the next one will be, if one is left.
    pub(super) fn take_expired(&mut self, now: Timestamp, timeout: Duration) -> (Vec<Existing<T>>, Option<Duration>) {
        // Idle resources are in the order of their last use.
        let expired = self.idle.partition_point(|(_, since)| now.since(*since) >= timeout);
        let removed = self.take_oldest(expired);
        (removed, self.idle.first().map(|(_, since)| timeout.saturating_sub(now.since(*since))))
    }

    fn take_oldest(&mut self, number: usize) -> Vec<Existing<T>> {
        self.idle.drain(..number).map(|(existing, _)| existing).collect()
    }
}

/// The resource that a waiting request gets.
#[cfg(feature = "async")]
pub(super) enum Freed<T> {
    Idle(Existing<T>),
    /// A resource was closed, so a new one may be allowed.
    Closed,
}

/// A request in the queue.
#[cfg(feature = "async")]
struct Waiter {
    ticket: u64,
    /// The number of resources that had been closed when it joined.
    closed: u64,
    waker: Waker,
}

#[cfg(feature = "async")]
impl<T> Stock<T> {
    pub(super) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Returns a ticket if fewer than `max` requests wait.
    pub(super) fn join(&mut self, max: usize) -> Option<u64> {
        // A request that need not wait for the source is never queued.
        if self.waiters.len() > max {
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiters.push_back(Waiter { ticket, closed: self.closed, waker: Waker::noop().clone() });
        Some(ticket)
    }

    /// Returns an idle resource when there is one for this ticket, which then has left.
    pub(super) fn poll_idle(&mut self, ticket: u64, context: &Context<'_>) -> Poll<Existing<T>> {
        let Some(position) = self.waiters.iter().position(|waiter| waiter.ticket == ticket) else {
            return Poll::Pending;
        };
        if position < self.idle.len() {
            self.waiters.remove(position);
            if let Some((existing, _)) = self.idle.pop() {
                return Poll::Ready(existing);
            }
        }
        if let Some(waiter) = self.waiters.get_mut(position) {
            waiter.waker.clone_from(context.waker());
        }
        Poll::Pending
    }

    /// Polls for an idle resource; also completes when a resource was closed since the ticket was issued.
    pub(super) fn poll_freed(&mut self, ticket: u64, context: &Context<'_>) -> Poll<Freed<T>> {
        match self.poll_idle(ticket, context) {
            Poll::Ready(existing) => Poll::Ready(Freed::Idle(existing)),
            Poll::Pending
                if self.waiters.iter().any(|waiter| waiter.ticket == ticket && waiter.closed != self.closed) =>
            {
                Poll::Ready(Freed::Closed)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    pub(super) fn leave(&mut self, ticket: u64) {
        self.waiters.retain(|waiter| waiter.ticket != ticket);
        self.wake_for_idle();
    }

    fn wake_for_idle(&self) {
        self.waiters.iter().take(self.idle.len()).for_each(|waiter| waiter.waker.wake_by_ref());
    }
}
