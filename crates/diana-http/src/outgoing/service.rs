//! The client behind the layer, and the call that waits.

use super::error::{OutgoingError, TooBusy};
use super::limit::{NoTurn, OutgoingLimit, Turn};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_service::Service;

/// A client whose calls wait for their turn: what [`OutgoingLayer`](super::OutgoingLayer) makes.
#[derive(Debug)]
pub struct Outgoing<L, C> {
    inner: C,
    limit: Arc<L>,
    name: Arc<str>,
    patience: Duration,
}

impl<L, C> Outgoing<L, C> {
    pub(super) fn new(inner: C, limit: Arc<L>, name: Arc<str>, patience: Duration) -> Self {
        Self { inner, limit, name, patience }
    }
}

impl<L, C: Clone> Clone for Outgoing<L, C> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.limit), Arc::clone(&self.name), self.patience)
    }
}

impl<R, L, C> Service<R> for Outgoing<L, C>
where
    L: OutgoingLimit<R>,
    C: Service<R> + Clone,
{
    type Response = C::Response;
    type Error = OutgoingError<C::Error>;
    type Future = OutgoingFuture<R, L::Held, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(OutgoingError::Client)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let turn = Arc::clone(&self.limit).turn(&request, self.patience);
        // The one that is ready makes the call; a clone need not be.
        let clone = self.inner.clone();
        let client = std::mem::replace(&mut self.inner, clone);
        let waiting = Waiting { request, client, name: Arc::clone(&self.name), patience: self.patience };
        OutgoingFuture { state: State::Waiting { turn, waiting: Some(waiting) } }
    }
}

pin_project! {
    /// A call that waits for its turn, and then is made.
    pub struct OutgoingFuture<R, H, C: Service<R>> {
        #[pin]
        state: State<R, H, C>,
    }
}

pin_project! {
    #[project = StateNow]
    enum State<R, H, C: Service<R>> {
        Waiting { turn: Turn<H>, waiting: Option<Waiting<R, C>> },
        Calling { #[pin] call: C::Future, held: H },
    }
}

struct Waiting<R, C> {
    request: R,
    client: C,
    name: Arc<str>,
    patience: Duration,
}

impl<R, H, C: Service<R>> Future for OutgoingFuture<R, H, C> {
    type Output = Result<C::Response, OutgoingError<C::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateNow::Waiting { turn, waiting } => {
                    let turn = ready!(turn.as_mut().poll(context));
                    // Whoever asks again has had the answer.
                    let Some(Waiting { request, mut client, name, patience }) = waiting.take() else {
                        return Poll::Pending;
                    };
                    match turn {
                        Ok(held) => State::Calling { call: client.call(request), held },
                        Err(NoTurn { limit, retry }) => {
                            let busy = TooBusy { limit: limit.unwrap_or(name), patience, retry };
                            return Poll::Ready(Err(OutgoingError::TooBusy(busy)));
                        }
                    }
                }
                // What it holds goes back when the future is dropped, right after this.
                StateNow::Calling { call, .. } => return call.poll(context).map_err(OutgoingError::Client),
            };
            this.state.set(next);
        }
    }
}

impl<R, H, C: Service<R>> fmt::Debug for OutgoingFuture<R, H, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingFuture").finish_non_exhaustive()
    }
}
