//! The client behind the layer, and the call that waits.

use super::OutgoingLayer;
use super::error::OutgoingError;
use super::limit::OutgoingLimit;
use super::waiting::Waiting;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// A client whose calls wait for their turn: what [`OutgoingLayer`] makes.
#[derive(Debug)]
pub struct Outgoing<L, C> {
    inner: C,
    layer: OutgoingLayer<L>,
}

impl<L, C> Outgoing<L, C> {
    pub(super) fn new(inner: C, layer: OutgoingLayer<L>) -> Self {
        Self { inner, layer }
    }
}

impl<L, C: Clone> Clone for Outgoing<L, C> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.layer.clone())
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
        let waiting = self.layer.turn(&request);
        // The one that is ready makes the call; a clone need not be.
        let clone = self.inner.clone();
        let client = std::mem::replace(&mut self.inner, clone);
        OutgoingFuture { state: State::Waiting { waiting, asked: Some((request, client)) } }
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
        Waiting { #[pin] waiting: Waiting<H>, asked: Option<(R, C)> },
        Calling { #[pin] call: C::Future, held: H },
    }
}

impl<R, H, C: Service<R>> Future for OutgoingFuture<R, H, C> {
    type Output = Result<C::Response, OutgoingError<C::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateNow::Waiting { waiting, asked } => {
                    // Whoever asks again has had the answer.
                    if asked.is_none() {
                        return Poll::Pending;
                    }
                    let turn = ready!(waiting.poll(context));
                    let Some((request, mut client)) = asked.take() else { return Poll::Pending };
                    let held = turn.map_err(OutgoingError::TooBusy)?;
                    State::Calling { call: client.call(request), held }
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
