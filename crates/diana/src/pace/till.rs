//! Where streams, sinks, readers and writers pay, poll by poll.
//!
//! What can be had at once costs no memory. A wait is one future on the heap, and dropping it gives back its reservation.

use super::pay::{UsedUp, pay_async, take_async};
use super::piece::at_once;
use diana_core::{Limiter, Receipt};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

type Wait = Pin<Box<dyn Future<Output = Result<Receipt, UsedUp>> + Send>>;

pub(super) struct Till {
    pub(super) limiter: Arc<Limiter>,
    wait: Option<Wait>,
}

impl Till {
    pub(super) fn new(limiter: Arc<Limiter>) -> Self {
        Self { limiter, wait: None }
    }

    /// Pays all of `cost`; whoever polls again says the same cost.
    pub(super) fn poll_pay(&mut self, context: &mut Context<'_>, cost: u64) -> Poll<Result<(), UsedUp>> {
        if self.wait.is_none() {
            // Zero is free.
            if cost == 0 || self.limiter.check_n(cost).is_ok_and(|answer| answer.is_granted()) {
                return Poll::Ready(Ok(()));
            }
            let limiter = Arc::clone(&self.limiter);
            self.wait = Some(Box::pin(async move { pay_async(&limiter, cost).await }));
        }
        self.poll_wait(context).map_ok(|_| ())
    }

    /// Takes permits for some of so many bytes: for as many as the receipt says.
    pub(super) fn poll_piece(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<Result<Receipt, UsedUp>> {
        if self.wait.is_none() {
            let piece = match at_once(&self.limiter, bytes) {
                Ok(receipt) => return Poll::Ready(Ok(receipt)),
                Err(piece) => piece,
            };
            let limiter = Arc::clone(&self.limiter);
            self.wait = Some(Box::pin(async move { take_async(&limiter, piece).await }));
        }
        self.poll_wait(context)
    }

    /// Stops waiting, and gives back what was waited for.
    pub(super) fn leave(&mut self) {
        self.wait = None;
    }

    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<Result<Receipt, UsedUp>> {
        let Some(wait) = &mut self.wait else { return Poll::Ready(Err(UsedUp)) };
        let paid = ready!(wait.as_mut().poll(context));
        self.wait = None;
        Poll::Ready(paid)
    }
}

impl fmt::Debug for Till {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Till").field("limiter", &self.limiter).field("waits", &self.wait.is_some()).finish()
    }
}
