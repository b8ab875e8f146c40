//! Futures of decisions that may wait: for the shared store, in a queue, or for a reserved time.

use super::asks::Charges;
use super::decide::{NextStep, WhenFull};
use super::local_counts::LocalCounts;
use super::shared_store::BoxFuture;
use super::{Engine, Verdict, VerdictGuard};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The future of a decision; ready immediately unless it needs the shared store or must be queued. Dropping it leaves
/// the queue and refunds all charges.
#[must_use = "nothing is decided until it is awaited"]
pub struct DecideFuture<'e>(DecideState<'e>);

enum DecideState<'e> {
    /// Most requests only need local counts; they are decided without a box. The verdict is `None` once it is returned.
    Ready(Option<Verdict>, &'e Arc<LocalCounts>),
    Waiting(BoxFuture<'e, Verdict>),
}

impl<'e> DecideFuture<'e> {
    #[inline]
    pub(super) fn new(engine: &'e Engine, verdict: Verdict, next: NextStep, when_full: WhenFull) -> Self {
        if next == NextStep::Finish {
            return Self(DecideState::Ready(Some(verdict), &engine.state.counts));
        }
        Self::waiting(engine, verdict, next, when_full)
    }

    #[cold]
    fn waiting(engine: &'e Engine, mut verdict: Verdict, next: NextStep, when_full: WhenFull) -> Self {
        verdict.refund_on_drop(&engine.state.counts);
        Self(DecideState::Waiting(Box::pin(engine.finish_waiting(verdict, next, when_full))))
    }

    /// Returns the verdict if it is ready, else `self`.
    #[cfg(feature = "macros")]
    pub(crate) fn now(mut self) -> Result<Verdict, Self> {
        self.ready().ok_or(self)
    }

    #[inline]
    fn ready(&mut self) -> Option<Verdict> {
        match &mut self.0 {
            DecideState::Ready(verdict, counts) => verdict.take().map(|verdict| verdict.finish(counts)),
            DecideState::Waiting(_) => None,
        }
    }
}

impl Future for DecideFuture<'_> {
    type Output = Verdict;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Verdict> {
        let this = self.get_mut();
        if let DecideState::Waiting(future) = &mut this.0 {
            return future.as_mut().poll(context);
        }
        // Polled after completion, it is pending.
        this.ready().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for DecideFuture<'_> {
    fn drop(&mut self) {
        if let DecideState::Ready(Some(verdict), counts) = &self.0 {
            counts.release_all(verdict, Charges::All);
        }
    }
}

impl fmt::Debug for DecideFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecideFuture").field("is_ready", &matches!(self.0, DecideState::Ready(..))).finish()
    }
}

/// The future of a granted request, including its wait; a denied request is an error. Dropping it refunds all charges.
#[must_use = "nothing is decided until it is awaited"]
pub struct AcquireFuture(AcquireState);

enum AcquireState {
    /// Most requests are decided immediately, without a box. It is `None` once it is returned.
    Ready(Option<Result<VerdictGuard, Verdict>>),
    Waiting(BoxFuture<'static, Result<VerdictGuard, Verdict>>),
}

impl AcquireFuture {
    pub(super) fn new(engine: &Arc<Engine>, mut verdict: Verdict, next: NextStep) -> Self {
        let counts = &engine.state.counts;
        if next == NextStep::Finish {
            let (verdict, wait) = verdict.finish_with_wait(counts);
            return Self(match wait {
                None => AcquireState::Ready(Some(Err(verdict))),
                Some(Duration::ZERO) => AcquireState::Ready(Some(Ok(engine.guard(verdict)))),
                Some(wait) => AcquireState::Waiting(Box::pin(after(wait, engine.guard(verdict)))),
            });
        }
        verdict.refund_on_drop(counts);
        let engine = Arc::clone(engine);
        Self(AcquireState::Waiting(Box::pin(async move {
            let verdict = engine.finish_waiting(verdict, next, WhenFull::Queue).await;
            match verdict.wait() {
                Some(wait) => after(wait, engine.guard(verdict)).await,
                None => Err(verdict),
            }
        })))
    }

    /// Returns the result if it is ready, else `self`.
    pub fn now(mut self) -> Result<Result<VerdictGuard, Verdict>, Self> {
        match &mut self.0 {
            AcquireState::Ready(result) => result.take().ok_or(self),
            AcquireState::Waiting(_) => Err(self),
        }
    }
}

/// Returns the guard after the wait that the rules require.
async fn after(wait: Duration, guard: VerdictGuard) -> Result<VerdictGuard, Verdict> {
    if !wait.is_zero() {
        let _waiting = guard.verdict().waiting();
        tokio::time::sleep(wait).await;
    }
    Ok(guard)
}

impl Future for AcquireFuture {
    type Output = Result<VerdictGuard, Verdict>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.get_mut().0;
        match state {
            // Polled after completion, it is pending.
            AcquireState::Ready(result) => result.take().map_or(Poll::Pending, Poll::Ready),
            AcquireState::Waiting(future) => {
                let result = ready!(future.as_mut().poll(context));
                *state = AcquireState::Ready(None);
                Poll::Ready(result)
            }
        }
    }
}

impl fmt::Debug for AcquireFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireFuture").field("is_ready", &matches!(self.0, AcquireState::Ready(_))).finish()
    }
}
