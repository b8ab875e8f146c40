//! Futures of decisions that may wait: for the shared store, or in a queue.

use super::Verdict;
use super::local::LocalCounts;
use diana_core::{MemoryStore, Store};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The future of a decision; ready immediately unless it needs the shared store. Dropping it refunds all charges.
#[must_use = "nothing is decided until it is awaited"]
pub struct DecideFuture<'e, S: Store = MemoryStore>(State<'e>, PhantomData<&'e S>);

/// The future of a decision that may be queued. Dropping it leaves the queue and refunds all charges.
#[cfg(feature = "wait")]
pub type AdmitFuture<'e, S = MemoryStore> = DecideFuture<'e, S>;

enum State<'e> {
    /// Most requests only need local counts; they are decided without a box.
    Made(RefundGuard<'e>),
    Asking(Pin<Box<dyn Future<Output = Verdict> + Send + 'e>>),
}

impl<'e, S: Store> DecideFuture<'e, S> {
    pub(super) fn made(begun: RefundGuard<'e>) -> Self {
        Self(State::Made(begun), PhantomData)
    }

    pub(super) fn asking(asking: impl Future<Output = Verdict> + Send + 'e) -> Self {
        Self(State::Asking(Box::pin(asking)), PhantomData)
    }
}

#[cfg(feature = "macros")]
impl<'e, S: Store> DecideFuture<'e, S> {
    /// Returns the verdict if it is ready, else `self`.
    pub(crate) fn now(mut self) -> Result<Verdict, Self> {
        match &mut self.0 {
            State::Made(begun) => begun.hand_out().ok_or(self),
            State::Asking(_) => Err(self),
        }
    }

    /// Erases the store's type.
    pub(crate) fn whichever_store(self) -> DecideFuture<'e> {
        DecideFuture(self.0, PhantomData)
    }
}

impl<S: Store> Future for DecideFuture<'_, S> {
    type Output = Verdict;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Verdict> {
        match &mut self.get_mut().0 {
            State::Made(begun) => match begun.hand_out() {
                Some(verdict) => Poll::Ready(verdict),
                // Polled after completion.
                None => Poll::Pending,
            },
            State::Asking(asking) => asking.as_mut().poll(context),
        }
    }
}

impl<S: Store> fmt::Debug for DecideFuture<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecideFuture").field("is_made", &matches!(self.0, State::Made(_))).finish()
    }
}

/// The result of [`Engine::begin`](super::Engine::begin).
#[derive(Debug)]
#[cfg(feature = "wait")]
pub enum Begun {
    /// The verdict.
    Made(Verdict),
    /// Not decided yet: call [`Engine::go_on`](super::Engine::go_on).
    Unfinished(Unfinished),
}

/// A request that needs the shared store or must be queued. Dropping it refunds all charges.
#[must_use = "nothing is decided until `Engine::go_on` is awaited"]
#[cfg(feature = "wait")]
pub struct Unfinished {
    pub(super) begun: RefundGuard<'static>,
    pub(super) next: NextStep,
}

#[cfg(feature = "wait")]
impl fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unfinished").field("next", &self.next).finish_non_exhaustive()
    }
}

/// The step after the local limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// None: the verdict is final.
    Nothing,
    /// Query the shared store.
    AskShared,
    /// Join the queue.
    #[cfg(feature = "wait")]
    StandInLine,
}

/// A verdict that was not returned yet. Dropping the guard refunds its charges in this process.
pub(super) struct RefundGuard<'e> {
    /// Borrowed as long as possible, since the reference count would be contended between threads.
    counts: Cow<'e, Arc<LocalCounts>>,
    verdict: Option<Verdict>,
}

impl<'e> RefundGuard<'e> {
    pub(super) fn new(counts: &'e Arc<LocalCounts>, verdict: Verdict) -> Self {
        Self { counts: Cow::Borrowed(counts), verdict: Some(verdict) }
    }

    /// Converts it into an owned guard.
    #[cfg(feature = "wait")]
    pub(super) fn into_own(mut self) -> RefundGuard<'static> {
        RefundGuard { counts: Cow::Owned(Arc::clone(&self.counts)), verdict: self.verdict.take() }
    }

    pub(super) fn verdict(&self) -> &Verdict {
        self.verdict.as_ref().unwrap_or_else(|| unreachable!("it is taken out only at the end"))
    }

    pub(super) fn verdict_mut(&mut self) -> &mut Verdict {
        self.verdict.as_mut().unwrap_or_else(|| unreachable!("it is taken out only at the end"))
    }

    pub(super) fn done(mut self) -> Verdict {
        self.hand_out().unwrap_or_else(|| unreachable!("it is taken out only here"))
    }

    /// Records and returns the verdict, which from now on releases its own permits.
    fn hand_out(&mut self) -> Option<Verdict> {
        let mut verdict = self.verdict.take()?;
        verdict.count();
        if verdict.found().is_held() && verdict.is_granted() {
            verdict.made_mut().held = Some(Arc::clone(&self.counts));
        }
        Some(verdict)
    }

    pub(super) fn give_back_local(&self) {
        self.counts.give_back_local(self.verdict());
    }

    /// Takes the verdict out temporarily; meanwhile the new owner is responsible for refunds.
    pub(super) fn lend(&mut self) -> Verdict {
        self.verdict.take().unwrap_or_else(|| unreachable!("it is taken out only at the end"))
    }

    /// Puts the verdict back.
    pub(super) fn put_back(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
    }
}

impl Drop for RefundGuard<'_> {
    fn drop(&mut self) {
        if self.verdict.as_ref().is_some_and(Verdict::is_granted) {
            self.give_back_local();
        }
    }
}
