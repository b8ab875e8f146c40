//! A decision that may have to wait: for the shared store, or in line.

use super::Verdict;
use super::local::LocalCounts;
use diana_core::{MemoryStore, Store};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A decision, which is there at once unless the shared store has to be asked. Dropping it gives back what was taken.
#[must_use = "nothing is decided until it is awaited"]
pub struct DecideFuture<'e, S: Store = MemoryStore>(State<'e>, PhantomData<&'e S>);

/// A decision that may stand in line. Dropping it leaves the line, and gives back what was taken.
#[cfg(feature = "wait")]
pub type AdmitFuture<'e, S = MemoryStore> = DecideFuture<'e, S>;

enum State<'e> {
    /// What is counted here is decided here, without a box: that is the way of most requests.
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
    /// The verdict, if it is there; else itself.
    pub(crate) fn now(mut self) -> Result<Verdict, Self> {
        match &mut self.0 {
            State::Made(begun) => begun.hand_out().ok_or(self),
            State::Asking(_) => Err(self),
        }
    }

    /// The same, for those who don't know which store it is.
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
                // Whoever asks again has had the answer.
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

/// What [`Engine::begin`](super::Engine::begin) can say at once.
#[derive(Debug)]
#[cfg(feature = "wait")]
pub enum Begun {
    /// The verdict.
    Made(Verdict),
    /// Not yet a verdict: [`Engine::go_on`](super::Engine::go_on) brings it.
    Unfinished(Unfinished),
}

/// A request that the shared store has to be asked about, or that has to stand in line. Dropping it gives back what was taken.
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

/// What has to be done after the first look at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Nothing: the verdict is there.
    Nothing,
    /// The shared store has to be asked.
    AskShared,
    /// It has to stand in line.
    #[cfg(feature = "wait")]
    StandInLine,
}

/// A verdict that nobody has yet: whoever drops it gives back what was taken in this process.
pub(super) struct RefundGuard<'e> {
    /// Borrowed while it can be, since counting who has a share in it would make threads fight.
    counts: Cow<'e, Arc<LocalCounts>>,
    verdict: Option<Verdict>,
}

impl<'e> RefundGuard<'e> {
    pub(super) fn new(counts: &'e Arc<LocalCounts>, verdict: Verdict) -> Self {
        Self { counts: Cow::Borrowed(counts), verdict: Some(verdict) }
    }

    /// The same, for as long as it takes.
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

    /// The verdict, which is counted, and from now on gives back by itself what it holds.
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

    /// The verdict, for a while: who takes it gives back by itself what was taken.
    pub(super) fn lend(&mut self) -> Verdict {
        self.verdict.take().unwrap_or_else(|| unreachable!("it is taken out only at the end"))
    }

    /// The verdict is back.
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
