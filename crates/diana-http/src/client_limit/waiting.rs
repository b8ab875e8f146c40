//! The step that all clients share: a call waits until it is granted, or fails.

use super::error::Overloaded;
use super::limit::{ClientLimitError, Turn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A call that waits for its permit; returns the permit or the caller's error. Dropping it releases its reservation to
/// the next call.
pub(crate) struct Waiting<H> {
    turn: Turn<H>,
    name: Arc<str>,
    max_wait: Duration,
}

impl<H> Waiting<H> {
    pub(super) fn new(turn: Turn<H>, name: Arc<str>, max_wait: Duration) -> Self {
        Self { turn, name, max_wait }
    }
}

impl<H> Future for Waiting<H> {
    type Output = Result<H, Overloaded>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.turn.as_mut().poll(context).map_err(|ClientLimitError { limit, retry }| Overloaded {
            limit: limit.unwrap_or_else(|| Arc::clone(&self.name)),
            max_wait: self.max_wait,
            retry,
        })
    }
}
