//! A decision that may have to wait for the shared store.

use super::{Engine, Return, Verdict};
use diana_core::Store;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A decision, which is there at once unless the shared store has to be asked. Dropping it gives back what was taken.
#[must_use = "nothing is decided until it is awaited"]
pub struct Deciding<'e, S: Store = diana_core::MemoryStore>(State<'e, S>);

enum State<'e, S: Store> {
    /// What is counted here is decided here, without a box: that is the way of most requests.
    Made(GivesBack<'e, S>),
    Asking(Pin<Box<dyn Future<Output = Verdict> + Send + 'e>>),
}

impl<'e, S: Store> Deciding<'e, S> {
    pub(super) fn made(begun: GivesBack<'e, S>) -> Self {
        Self(State::Made(begun))
    }

    pub(super) fn asking(asking: impl Future<Output = Verdict> + Send + 'e) -> Self {
        Self(State::Asking(Box::pin(asking)))
    }
}

impl<S: Store> Future for Deciding<'_, S> {
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

impl<S: Store> fmt::Debug for Deciding<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciding").field("is_made", &matches!(self.0, State::Made(_))).finish()
    }
}

/// A verdict that nobody has yet: whoever drops it gives back what was taken in this process.
pub(super) struct GivesBack<'e, S: Store> {
    pub(super) engine: &'e Engine<S>,
    pub(super) verdict: Option<Verdict>,
}

impl<S: Store> GivesBack<'_, S> {
    pub(super) fn verdict(&self) -> &Verdict {
        self.verdict.as_ref().unwrap_or_else(|| unreachable!("it is taken out only at the end"))
    }

    pub(super) fn verdict_mut(&mut self) -> &mut Verdict {
        self.verdict.as_mut().unwrap_or_else(|| unreachable!("it is taken out only at the end"))
    }

    pub(super) fn done(mut self) -> Verdict {
        self.hand_out().unwrap_or_else(|| unreachable!("it is taken out only here"))
    }

    /// The verdict, which from now on gives back by itself what it holds.
    fn hand_out(&mut self) -> Option<Verdict> {
        let mut verdict = self.verdict.take()?;
        if verdict.is_granted() {
            self.engine.count_shadow_lists(&verdict);
            if verdict.found().is_held() {
                verdict.made_mut().held = Some(self.engine.held());
            }
        }
        Some(verdict)
    }

    pub(super) fn give_back_local(&self) {
        let (engine, verdict) = (self.engine, self.verdict());
        let now = engine.now();
        if let Some(made) = &verdict.made().local {
            engine.give_back_here(verdict, verdict.made().here, made, Return::Everything, now);
        }
        if let Some(shared) = verdict.made().shared.as_ref().filter(|shared| shared.here) {
            engine.give_back_here(verdict, super::Part::Shared, &shared.decision, Return::Everything, now);
        }
        for shadow in verdict.made().shadows.iter().filter(|shadow| shadow.here && shadow.decision.is_granted()) {
            engine.give_back_here(verdict, super::Part::Shadow(shadow.nth), &shadow.decision, Return::Everything, now);
        }
    }
}

impl<S: Store> Drop for GivesBack<'_, S> {
    fn drop(&mut self) {
        if self.verdict.as_ref().is_some_and(Verdict::is_granted) {
            self.give_back_local();
        }
    }
}
