//! Acquires permits for paced users: blocking on a thread, or poll by poll in a future.
//!
//! Permits that are available need no allocation. A wait is one boxed future, and dropping it refunds its reservation.

use super::acquire::{Exhausted, Taken, pay, pay_async, take, take_async};
use super::chunk::at_once;
use super::lag::{self, Late};
use diana_core::{Limiter, Refund, Timestamp};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

type Wait = Pin<Box<dyn Future<Output = Result<Taken, Exhausted>> + Send>>;

pub(super) struct PacedPermits {
    limiter: Arc<Limiter>,
    wait: Option<Wait>,
    late: Late,
    /// Whether this user has yielded since its last grant.
    gave_way: bool,
    hand: Option<PrepaidPermits>,
}

/// Permits for bytes that were not transferred yet.
#[derive(Clone, Copy, Debug)]
struct PrepaidPermits {
    taken: Taken,
    used: u64,
    /// Whether the peer accepts no bytes.
    stuck: bool,
}

impl PrepaidPermits {
    fn left(&self) -> u64 {
        self.taken.receipt.cost().get().saturating_sub(self.used)
    }
}

impl PacedPermits {
    pub(super) fn new(limiter: Arc<Limiter>) -> Self {
        Self { limiter, wait: None, late: Late::default(), gave_way: false, hand: None }
    }

    /// Pays all of `cost`, blocking this thread. Zero is free.
    pub(super) fn pay(&mut self, cost: u64) -> Result<(), Exhausted> {
        if cost > 0 {
            let since = self.since();
            let taken = pay(&self.limiter, cost, since)?;
            self.came(taken);
        }
        Ok(())
    }

    /// Like [`pay`](Self::pay), poll by poll; further polls must pass the same cost.
    pub(super) fn poll_pay(&mut self, context: &mut Context<'_>, cost: u64) -> Poll<Result<(), Exhausted>> {
        if self.wait.is_none() {
            // Zero is free. A user that is on time and need not wait stays on time, and reads the clock once.
            if cost == 0 || (!self.late.is_late() && self.limiter.check_n(cost).is_ok_and(|answer| answer.is_granted()))
            {
                return Poll::Ready(Ok(()));
            }
            if self.gives_way(context) {
                return Poll::Pending;
            }
            let since = self.since();
            if let Some(wait) = self.limiter.check_since(cost, since).ok().and_then(|answer| answer.wait()) {
                self.late.came(since + wait, self.limiter.clock().now());
                return Poll::Ready(Ok(()));
            }
            let limiter = Arc::clone(&self.limiter);
            self.wait = Some(Box::pin(async move { pay_async(&limiter, cost, since).await }));
        }
        self.poll_wait(context).map_ok(|_| ())
    }

    /// Acquires permits for a chunk of `bytes`, blocking this thread; returns its size. Call [`moved`](Self::moved)
    /// afterwards.
    pub(super) fn piece(&mut self, bytes: usize) -> Result<usize, Exhausted> {
        if let Some(left) = self.in_hand(bytes) {
            return Ok(left);
        }
        let since = self.since();
        let taken = at_once(&self.limiter, wide(bytes), since).or_else(|piece| take(&self.limiter, piece, since))?;
        self.came(taken);
        Ok(self.hold(taken, bytes))
    }

    /// Like [`piece`](Self::piece), poll by poll.
    pub(super) fn poll_piece(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<Result<usize, Exhausted>> {
        if self.wait.is_none() {
            if let Some(left) = self.in_hand(bytes) {
                return Poll::Ready(Ok(left));
            }
            if self.gives_way(context) {
                return Poll::Pending;
            }
            let since = self.since();
            let piece = match at_once(&self.limiter, wide(bytes), since) {
                Ok(taken) => {
                    self.came(taken);
                    return Poll::Ready(Ok(self.hold(taken, bytes)));
                }
                Err(piece) => piece,
            };
            let limiter = Arc::clone(&self.limiter);
            self.wait = Some(Box::pin(async move { take_async(&limiter, piece, since).await }));
        }
        let taken = ready!(self.poll_wait(context))?;
        Poll::Ready(Ok(self.hold(taken, bytes)))
    }

    /// Records that `bytes` of the paid ones were transferred. The rest is refunded.
    ///
    /// If that is impossible, because there are later reservations or because a grant does not depend on its cost, the
    /// rest can be used for as long as a grant may be late.
    pub(super) fn moved(&mut self, bytes: usize) {
        let Some(hand) = &mut self.hand else { return };
        (hand.used, hand.stuck) = (hand.used.saturating_add(wide(bytes)), false);
        if hand.left() == 0 || self.limiter.refund_rest(&hand.taken.receipt, hand.used) == Refund::Returned {
            self.hand = None;
        }
    }

    /// Records that nothing was transferred, and that the peer is blocked.
    ///
    /// Permits that can't be refunded are kept until then: a user that is polled for other reasons would otherwise take
    /// chunk after chunk from users that are not blocked.
    pub(super) fn stuck(&mut self) {
        self.moved(0);
        if let Some(hand) = &mut self.hand {
            hand.stuck = true;
        }
        self.idles();
    }

    /// Records that there is nothing to pass.
    pub(super) fn idles(&mut self) {
        if self.late.is_late() {
            self.late.idles(self.limiter.clock().now());
        }
    }

    /// Stops waiting and refunds the reservation.
    pub(super) fn leave(&mut self) {
        self.wait = None;
        self.idles();
    }

    /// Returns when this user would have requested permits without its lag.
    fn since(&mut self) -> Timestamp {
        self.late.since(self.limiter.clock().now())
    }

    fn came(&mut self, taken: Taken) {
        self.late.came(taken.turn, self.limiter.clock().now());
    }

    /// Yields to other users, once. Users of a shared limit are late together, and the first one would take everything.
    fn gives_way(&mut self, context: &Context<'_>) -> bool {
        self.gave_way = !self.gave_way && self.late.is_late() && Arc::strong_count(&self.limiter) > 1;
        if self.gave_way {
            context.waker().wake_by_ref();
        }
        self.gave_way
    }

    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<Result<Taken, Exhausted>> {
        let Some(wait) = &mut self.wait else { return Poll::Ready(Err(Exhausted)) };
        let paid = ready!(wait.as_mut().poll(context));
        self.wait = None;
        if let Ok(taken) = paid {
            self.came(taken);
        }
        Poll::Ready(paid)
    }

    /// Keeps permits until their bytes are transferred; returns how many of `bytes` may be.
    fn hold(&mut self, taken: Taken, bytes: usize) -> usize {
        let hand = PrepaidPermits { taken, used: 0, stuck: false };
        self.hand = Some(hand);
        bytes.min(narrow(hand.left()))
    }

    /// Uses the rest of a chunk that could not be refunded; returns how many of `bytes` may be transferred.
    fn in_hand(&mut self, bytes: usize) -> Option<usize> {
        let hand = self.hand?;
        if !hand.stuck && self.limiter.clock().now().since(hand.taken.turn) > lag::MOST {
            self.hand = None;
            return None;
        }
        Some(bytes.min(narrow(hand.left())))
    }
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn narrow(permits: u64) -> usize {
    usize::try_from(permits).unwrap_or(usize::MAX)
}

impl fmt::Debug for PacedPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedPermits").field("limiter", &self.limiter).field("waits", &self.wait.is_some()).finish()
    }
}
