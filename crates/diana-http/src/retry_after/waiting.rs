//! The step that all clients share: a call waits for its host's pause and its limit, and evaluates the response.

use super::RetryAfterLayer;
use super::parse;
use crate::client_ext::{RequestHost, ResponseMeta};
use crate::client_limit::{self, ClientLimit, Overloaded};
use diana::Retry;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// A call that waits until its host's pause is over, and for its permit if there is a limit. Then the call may be made;
/// pass its response to [`heard`](Self::heard).
pub(crate) struct Waiting<R, L: ClientLimit<R>> {
    layer: RetryAfterLayer<L>,
    host: Arc<str>,
    since: Instant,
    /// Boxed, since few calls wait.
    sleep: Option<Pin<Box<Sleep>>>,
    turn: Option<client_limit::Waiting<L::Held>>,
}

impl<R: RequestHost, L: ClientLimit<R>> Waiting<R, L> {
    pub(super) fn new(call: &R, layer: RetryAfterLayer<L>) -> Self {
        // Calls without a host are assumed to have the same target.
        let host = call.host().unwrap_or_default().into();
        Self { layer, host, since: Instant::now(), sleep: None, turn: None }
    }

    /// Returns the permit of the call. `call` must be the same in each poll.
    pub(crate) fn poll(&mut self, call: &R, context: &mut Context<'_>) -> Poll<Result<Option<L::Held>, Overloaded>> {
        loop {
            if let Some(turn) = &mut self.turn {
                let held = ready!(Pin::new(turn).poll(context));
                self.turn = None;
                let held = held?;
                // A pause may have started while it waited for its permit. Then it is queued again after the pause;
                // otherwise all granted calls would be sent together at its end.
                if self.pause().is_none() {
                    return Poll::Ready(Ok(Some(held)));
                }
            }
            ready!(self.poll_pause(context))?;
            let Some(limit) = &self.layer.limit else { return Poll::Ready(Ok(None)) };
            self.turn = Some(limit.turn(call));
        }
    }
}

impl<R, L: ClientLimit<R>> Waiting<R, L> {
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Overloaded>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(context));
                self.sleep = None;
            }
            // Other calls may have extended the pause meanwhile.
            let Some(left) = self.pause() else { return Poll::Ready(Ok(())) };
            let max_wait = self.layer.max_wait;
            if self.since.elapsed().saturating_add(left) > max_wait {
                let (limit, retry) = (Arc::clone(&self.host), Retry::After(left));
                return Poll::Ready(Err(Overloaded { limit, max_wait, retry }));
            }
            self.sleep = Some(Box::pin(tokio::time::sleep(left)));
        }
    }

    /// Returns the remaining pause of the host.
    fn pause(&self) -> Option<Duration> {
        self.layer.pauses.left(&self.host, Instant::now())
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Pauses the host if its response asks for it. After a redirect both hosts are paused, since calls to the first
    /// reach the second.
    pub(crate) fn heard(&self, answer: &impl ResponseMeta) {
        let Some(time) = parse::pause(answer.status(), answer.headers()) else { return };
        let now = Instant::now();
        self.layer.pauses.pause(&self.host, time, now);
        if let Some(other) = answer.answered_by().filter(|other| **other != *self.host) {
            self.layer.pauses.pause(&other, time, now);
        }
    }
}
