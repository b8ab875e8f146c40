//! Where whatever is paced pays: a thread by waiting here, a future poll by poll.
//!
//! What can be had at once costs no memory. A wait is one future on the heap, and dropping it gives back its reservation.

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
    /// Whether others could go first since the last turn.
    gave_way: bool,
    hand: Option<PrepaidPermits>,
}

/// Permits for bytes that have not moved.
#[derive(Clone, Copy, Debug)]
struct PrepaidPermits {
    taken: Taken,
    used: u64,
    /// Whether they wait for a peer that takes nothing.
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

    /// The same, poll by poll; whoever polls again says the same cost.
    pub(super) fn poll_pay(&mut self, context: &mut Context<'_>, cost: u64) -> Poll<Result<(), Exhausted>> {
        if self.wait.is_none() {
            // Zero is free. Who is in time and need not wait stays in time, and reads the clock once.
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

    /// Takes permits for some of so many bytes, blocking this thread: for how many. Say what [`moved`](Self::moved).
    pub(super) fn piece(&mut self, bytes: usize) -> Result<usize, Exhausted> {
        if let Some(left) = self.in_hand(bytes) {
            return Ok(left);
        }
        let since = self.since();
        let taken = at_once(&self.limiter, wide(bytes), since).or_else(|piece| take(&self.limiter, piece, since))?;
        self.came(taken);
        Ok(self.hold(taken, bytes))
    }

    /// The same, poll by poll.
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

    /// So many bytes moved of those that were paid for. The rest goes back.
    ///
    /// Where it can't, since others were promised times behind it or since a grant is a grant whatever its cost, it may
    /// be used for as long as a turn may be late.
    pub(super) fn moved(&mut self, bytes: usize) {
        let Some(hand) = &mut self.hand else { return };
        (hand.used, hand.stuck) = (hand.used.saturating_add(wide(bytes)), false);
        if hand.left() == 0 || self.limiter.refund_rest(&hand.taken.receipt, hand.used) == Refund::Returned {
            self.hand = None;
        }
    }

    /// Nothing moved, and it is unknown when something will.
    ///
    /// What can't be given back is kept until then: whoever is polled for other reasons would else take piece after piece
    /// from those who are not stuck.
    pub(super) fn stuck(&mut self) {
        self.moved(0);
        if let Some(hand) = &mut self.hand {
            hand.stuck = true;
        }
        self.idles();
    }

    /// There is nothing to pass.
    pub(super) fn idles(&mut self) {
        if self.late.is_late() {
            self.late.idles(self.limiter.clock().now());
        }
    }

    /// Stops waiting, and gives back what was waited for.
    pub(super) fn leave(&mut self) {
        self.wait = None;
        self.idles();
    }

    /// When this one would have asked, had it not been late.
    fn since(&mut self) -> Timestamp {
        self.late.since(self.limiter.clock().now())
    }

    fn came(&mut self, taken: Taken) {
        self.late.came(taken.turn, self.limiter.clock().now());
    }

    /// Lets others go first, once. Who share a limit are late together, and whoever came first would take all of it.
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

    /// Keeps what was taken until it has moved; how many of `bytes` may.
    fn hold(&mut self, taken: Taken, bytes: usize) -> usize {
        let hand = PrepaidPermits { taken, used: 0, stuck: false };
        self.hand = Some(hand);
        bytes.min(narrow(hand.left()))
    }

    /// What is left of a piece that could not be given back: how many of `bytes` may move.
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
