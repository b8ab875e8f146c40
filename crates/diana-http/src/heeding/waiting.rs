//! The step that all clients share: a call waits until its host wants it, and passes on what the answer says.

use super::pauses::Pauses;
use super::said;
use crate::call::{HttpAnswer, HttpCall};
use crate::outgoing::TooBusy;
use diana::core::Retry;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// A call that waits until its host wants it. Once it is done, the call may be made; [`heard`](Self::heard) takes its answer.
pub(crate) struct Waiting {
    host: Arc<str>,
    pauses: Arc<Pauses>,
    patience: Duration,
    since: Instant,
    /// Boxed, since few calls wait.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Waiting {
    pub(super) fn new(call: &impl HttpCall, pauses: Arc<Pauses>, patience: Duration) -> Self {
        // Those that name nobody go to the same one, as far as anybody can tell.
        let host = call.host().unwrap_or_default().into();
        Self { host, pauses, patience, since: Instant::now(), sleep: None }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Leaves the host alone if its answer says so. Behind a redirect that holds for both: who asks the one meets the other.
    pub(crate) fn heard(&self, answer: &impl HttpAnswer) {
        let Some(time) = said::pause(answer.status(), answer.headers()) else { return };
        let now = Instant::now();
        self.pauses.pause(&self.host, time, now);
        if let Some(other) = answer.answered_by().filter(|other| **other != *self.host) {
            self.pauses.pause(&other, time, now);
        }
    }
}

impl Future for Waiting {
    type Output = Result<(), TooBusy>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(context));
                self.sleep = None;
            }
            let now = Instant::now();
            // Others may have been told to wait longer meanwhile.
            let Some(left) = self.pauses.left(&self.host, now) else { return Poll::Ready(Ok(())) };
            if (now - self.since).saturating_add(left) > self.patience {
                let (limit, patience) = (Arc::clone(&self.host), self.patience);
                return Poll::Ready(Err(TooBusy { limit, patience, retry: Retry::After(left) }));
            }
            self.sleep = Some(Box::pin(tokio::time::sleep(left)));
        }
    }
}
