//! The future of a decision that may wait: for the shared store, in a queue, or for a reserved time.

use super::shared_store::BoxFuture;
use super::{Denial, Permit};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The future of a decision: a permit, or the denial. It is ready immediately unless it needs the shared store or must wait.
/// Dropping it leaves the queue and refunds all charges but those that a rule adds to another one (`charges`).
#[must_use = "nothing is decided until it is awaited"]
pub struct AcquireFuture(AcquireState);

enum AcquireState {
    /// Most requests are decided immediately, without a box. It is `None` once it is returned.
    Ready(Option<Result<Permit, Denial>>),
    Waiting(BoxFuture<'static, Result<Permit, Denial>>),
}

impl AcquireFuture {
    #[inline]
    pub(super) fn ready(decided: Result<Permit, Denial>) -> Self {
        Self(AcquireState::Ready(Some(decided)))
    }

    pub(super) fn waiting(work: impl Future<Output = Result<Permit, Denial>> + Send + 'static) -> Self {
        Self(AcquireState::Waiting(Box::pin(work)))
    }

    /// Returns the result if it is ready, else `self`.
    #[inline]
    pub fn now(mut self) -> Result<Result<Permit, Denial>, Self> {
        match &mut self.0 {
            AcquireState::Ready(decided) => decided.take().ok_or(self),
            AcquireState::Waiting(_) => Err(self),
        }
    }
}

impl Future for AcquireFuture {
    type Output = Result<Permit, Denial>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.get_mut().0;
        match state {
            // Polled after completion, it is pending.
            AcquireState::Ready(decided) => decided.take().map_or(Poll::Pending, Poll::Ready),
            AcquireState::Waiting(future) => {
                let decided = ready!(future.as_mut().poll(context));
                *state = AcquireState::Ready(None);
                Poll::Ready(decided)
            }
        }
    }
}

impl Drop for AcquireFuture {
    #[inline]
    fn drop(&mut self) {
        if let AcquireState::Ready(decided) = &mut self.0
            && let Some(Ok(permit)) = decided.take()
        {
            drop(permit.provisional());
        }
    }
}

impl fmt::Debug for AcquireFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireFuture").field("is_ready", &matches!(self.0, AcquireState::Ready(_))).finish()
    }
}
