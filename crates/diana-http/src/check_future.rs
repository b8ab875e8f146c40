//! The future of a decision, including its wait.

use crate::attributes::HttpAttributes;
use crate::check_result::{CheckResult, Rerouted};
use crate::denial::{Denial, ResponseFormat};
use crate::filter::Inner;
use crate::permit::RequestPermit;
use diana::rules::OverLimit;
use diana::store::{MemoryStore, Store};
use diana::{Begun, Verdict};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// The future of a decision, including its wait. Dropping it refunds everything.
#[must_use = "nothing is decided until it is awaited"]
pub struct CheckFuture<S: Store + 'static = MemoryStore>(State<S>);

enum State<S: Store + 'static> {
    Done(CheckResult<S>),
    /// Granted, after a wait.
    Granted(RequestPermit<S>, Duration),
    /// Granted, and waiting.
    Waiting(RequestPermit<S>, Pin<Box<Sleep>>),
    /// Querying the shared store, or queued.
    Asking(Box<Asking<S>>),
    /// Polled after completion.
    HandedOut,
}

struct Asking<S: Store + 'static> {
    deciding: Pin<Box<dyn Future<Output = Verdict> + Send>>,
    filter: Arc<Inner<S>>,
    manner: ResponseFormat,
}

impl<S: Store + 'static> CheckFuture<S> {
    pub(crate) fn begin(filter: &Arc<Inner<S>>, request: &HttpAttributes<'_>) -> Self {
        match filter.engine.begin(request) {
            Begun::Made(verdict) => Self(decided(verdict, filter, || ResponseFormat::of(request))),
            Begun::Unfinished(unfinished) => {
                let engine = Arc::clone(&filter.engine);
                let deciding = Box::pin(async move { engine.go_on(unfinished).await });
                let asking = Asking { deciding, filter: Arc::clone(filter), manner: ResponseFormat::of(request) };
                Self(State::Asking(Box::new(asking)))
            }
        }
    }
}

/// Returns the state for a verdict.
fn decided<S: Store + 'static>(
    verdict: Verdict,
    filter: &Arc<Inner<S>>,
    manner: impl FnOnce() -> ResponseFormat,
) -> State<S> {
    let headers = filter.options.rate_limit_headers;
    match verdict.wait() {
        Some(wait) => {
            let pass = RequestPermit::new(verdict, Arc::clone(filter));
            if wait == Duration::ZERO { State::Done(CheckResult::Allow(pass)) } else { State::Granted(pass, wait) }
        }
        None if matches!(verdict.over(), Some(OverLimit::Reroute(_))) => {
            State::Done(CheckResult::Reroute(Rerouted { verdict, headers }))
        }
        None => State::Done(CheckResult::Deny(Denial { verdict, headers, manner: manner() })),
    }
}

impl<S: Store + 'static> Future for CheckFuture<S> {
    type Output = CheckResult<S>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CheckResult<S>> {
        let state = &mut self.get_mut().0;
        if let State::Asking(asking) = state {
            let verdict = ready!(asking.deciding.as_mut().poll(context));
            *state = decided(verdict, &asking.filter, || asking.manner);
        }
        loop {
            if let State::Waiting(_, sleep) = state {
                ready!(sleep.as_mut().poll(context));
            }
            match std::mem::replace(state, State::HandedOut) {
                State::Done(checked) => return Poll::Ready(checked),
                State::Granted(pass, wait) => *state = State::Waiting(pass, Box::pin(tokio::time::sleep(wait))),
                State::Waiting(pass, _) => return Poll::Ready(CheckResult::Allow(pass)),
                State::Asking(_) | State::HandedOut => return Poll::Pending,
            }
        }
    }
}

impl<S: Store + 'static> fmt::Debug for CheckFuture<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.0 {
            State::Done(_) => "decided",
            State::Granted(..) | State::Waiting(..) => "waiting",
            State::Asking(_) => "deciding",
            State::HandedOut => "handed out",
        };
        f.debug_tuple("CheckFuture").field(&state).finish()
    }
}
