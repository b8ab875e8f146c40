//! Acquires permits for paced users: blocking on a thread, or poll by poll in a future.
//!
//! Permits that are available need no allocation. A wait is one boxed future, and dropping it refunds its reservation.

use super::acquire_until_granted::{Acquired, Exhausted, acquire, blocking_acquire, blocking_pay, pay};
use super::chunk::try_acquire;
use super::lag::{self, Lag};
use diana_core::{Limiter, Refund, Timestamp};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

type Wait = Pin<Box<dyn Future<Output = Result<Acquired, Exhausted>> + Send>>;

/// The permits of one paced user.
pub(super) struct PacedPermits {
    limiter: Arc<Limiter>,
    wait: Option<Wait>,
    lag: Lag,
    /// Whether this user has yielded since its last grant.
    has_yielded: bool,
    prepaid: Option<PrepaidPermits>,
}

/// Permits for bytes that were not transferred yet.
#[derive(Clone, Copy, Debug)]
struct PrepaidPermits {
    acquired: Acquired,
    used: u64,
    /// Whether the peer accepts no bytes.
    is_blocked: bool,
}

impl PrepaidPermits {
    fn remaining(&self) -> u64 {
        self.acquired.receipt.cost().get().saturating_sub(self.used)
    }
}

impl PacedPermits {
    pub(super) fn new(limiter: Arc<Limiter>) -> Self {
        Self { limiter, wait: None, lag: Lag::default(), has_yielded: false, prepaid: None }
    }

    /// Pays all of `cost`, blocking this thread. Zero is free.
    pub(super) fn blocking_pay(&mut self, cost: u64) -> Result<(), Exhausted> {
        if cost > 0 {
            let since = self.since();
            let acquired = blocking_pay(&self.limiter, cost, since)?;
            self.record(acquired);
        }
        Ok(())
    }

    /// Polls [`blocking_pay`](Self::blocking_pay); further polls must pass the same cost.
    pub(super) fn poll_pay(&mut self, context: &mut Context<'_>, cost: u64) -> Poll<Result<(), Exhausted>> {
        if self.wait.is_none() {
            // Zero is free. A user that is on time and need not wait stays on time, and reads the clock once.
            if cost == 0 || (!self.lag.is_late() && self.limiter.check_n(cost).is_ok_and(|answer| answer.is_granted()))
            {
                return Poll::Ready(Ok(()));
            }
            if self.yields(context) {
                return Poll::Pending;
            }
            let since = self.since();
            if let Some(wait) = self.limiter.check_since(cost, since).ok().and_then(|answer| answer.wait()) {
                self.lag.record(since + wait, self.limiter.clock().now());
                return Poll::Ready(Ok(()));
            }
            let limiter = Arc::clone(&self.limiter);
            self.wait = Some(Box::pin(async move { pay(&limiter, cost, since).await }));
        }
        self.poll_wait(context).map_ok(|_| ())
    }

    /// Acquires permits for a chunk of `bytes`, blocking this thread; returns its size. Call
    /// [`transferred`](Self::transferred) afterwards.
    pub(super) fn blocking_chunk(&mut self, bytes: usize) -> Result<usize, Exhausted> {
        if let Some(remaining) = self.reuse_prepaid(bytes) {
            return Ok(remaining);
        }
        let since = self.since();
        let acquired = try_acquire(&self.limiter, to_permits(bytes), since)
            .or_else(|chunk| blocking_acquire(&self.limiter, chunk, since))?;
        self.record(acquired);
        Ok(self.hold(acquired, bytes))
    }

    /// Polls [`blocking_chunk`](Self::blocking_chunk).
    pub(super) fn poll_chunk(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<Result<usize, Exhausted>> {
        if self.wait.is_none() {
            if let Some(remaining) = self.reuse_prepaid(bytes) {
                return Poll::Ready(Ok(remaining));
            }
            if self.yields(context) {
                return Poll::Pending;
            }
            let since = self.since();
            let chunk = match try_acquire(&self.limiter, to_permits(bytes), since) {
                Ok(acquired) => {
                    self.record(acquired);
                    return Poll::Ready(Ok(self.hold(acquired, bytes)));
                }
                Err(chunk) => chunk,
            };
            let limiter = Arc::clone(&self.limiter);
            self.wait = Some(Box::pin(async move { acquire(&limiter, chunk, since).await }));
        }
        let acquired = ready!(self.poll_wait(context))?;
        Poll::Ready(Ok(self.hold(acquired, bytes)))
    }

    /// Records that `bytes` of the paid ones were transferred. The rest is refunded.
    ///
    /// If that is impossible, because there are later reservations or because a grant does not depend on its cost, the
    /// rest can be used for as long as a grant may be late.
    pub(super) fn transferred(&mut self, bytes: usize) {
        let Some(prepaid) = &mut self.prepaid else { return };
        (prepaid.used, prepaid.is_blocked) = (prepaid.used.saturating_add(to_permits(bytes)), false);
        if prepaid.remaining() == 0
            || self.limiter.refund_rest(&prepaid.acquired.receipt, prepaid.used) == Refund::Returned
        {
            self.prepaid = None;
        }
    }

    /// Records that nothing was transferred, and that the peer is blocked.
    ///
    /// Permits that can't be refunded are kept until it accepts bytes: a user that is polled for other reasons would
    /// otherwise take chunk after chunk from users that are not blocked.
    pub(super) fn blocked(&mut self) {
        self.transferred(0);
        if let Some(prepaid) = &mut self.prepaid {
            prepaid.is_blocked = true;
        }
        self.record_idle();
    }

    /// Records that there is nothing to pass.
    pub(super) fn record_idle(&mut self) {
        if self.lag.is_late() {
            self.lag.record_idle(self.limiter.clock().now());
        }
    }

    /// Stops waiting and refunds the reservation.
    pub(super) fn cancel_wait(&mut self) {
        self.wait = None;
        self.record_idle();
    }

    /// Returns when this user would have requested permits without its lag.
    fn since(&mut self) -> Timestamp {
        self.lag.since(self.limiter.clock().now())
    }

    fn record(&mut self, acquired: Acquired) {
        self.lag.record(acquired.granted_at, self.limiter.clock().now());
    }

    /// Yields to other users, once. Users of a shared limit are late together, and the first one would take everything.
    fn yields(&mut self, context: &Context<'_>) -> bool {
        self.has_yielded = !self.has_yielded && self.lag.is_late() && Arc::strong_count(&self.limiter) > 1;
        if self.has_yielded {
            context.waker().wake_by_ref();
        }
        self.has_yielded
    }

    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<Result<Acquired, Exhausted>> {
        let Some(wait) = &mut self.wait else { return Poll::Ready(Err(Exhausted)) };
        let paid = ready!(wait.as_mut().poll(context));
        self.wait = None;
        if let Ok(acquired) = paid {
            self.record(acquired);
        }
        Poll::Ready(paid)
    }

    /// Keeps permits until their bytes are transferred; returns how many of `bytes` may be.
    fn hold(&mut self, acquired: Acquired, bytes: usize) -> usize {
        let prepaid = PrepaidPermits { acquired, used: 0, is_blocked: false };
        self.prepaid = Some(prepaid);
        bytes.min(to_bytes(prepaid.remaining()))
    }

    /// Uses the rest of a chunk that could not be refunded; returns how many of `bytes` may be transferred.
    fn reuse_prepaid(&mut self, bytes: usize) -> Option<usize> {
        let prepaid = self.prepaid?;
        if !prepaid.is_blocked && self.limiter.clock().now().since(prepaid.acquired.granted_at) > lag::MAX_LAG {
            self.prepaid = None;
            return None;
        }
        Some(bytes.min(to_bytes(prepaid.remaining())))
    }
}

fn to_permits(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn to_bytes(permits: u64) -> usize {
    usize::try_from(permits).unwrap_or(usize::MAX)
}

impl fmt::Debug for PacedPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedPermits")
            .field("limiter", &self.limiter)
            .field("is_waiting", &self.wait.is_some())
            .finish()
    }
}
