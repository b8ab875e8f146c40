//! The step that all clients share: a call waits for its turn, or hears why it has none.

use super::error::TooBusy;
use super::limit::{NoTurn, Turn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A call that waits for its turn: what it holds while it is under way, or the error that its caller gets. Dropped, it gives its
/// turn to the next.
pub(crate) struct Waiting<H> {
    turn: Turn<H>,
    name: Arc<str>,
    patience: Duration,
}

impl<H> Waiting<H> {
    pub(super) fn new(turn: Turn<H>, name: Arc<str>, patience: Duration) -> Self {
        Self { turn, name, patience }
    }
}

impl<H> Future for Waiting<H> {
    type Output = Result<H, TooBusy>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.turn.as_mut().poll(context).map_err(|NoTurn { limit, retry }| TooBusy {
            limit: limit.unwrap_or_else(|| Arc::clone(&self.name)),
            patience: self.patience,
            retry,
        })
    }
}
