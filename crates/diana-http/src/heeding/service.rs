//! The client behind the layer, and the call that waits for a pause to end.

use super::HeedLayer;
use super::waiting::Waiting;
use crate::call::{HttpAnswer, HttpCall};
use crate::outgoing::{NoLimit, OutgoingError, OutgoingLimit};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// A client that heeds what the other side says: what [`HeedLayer`] makes.
#[derive(Debug)]
pub struct Heeding<C, L = NoLimit> {
    inner: C,
    layer: HeedLayer<L>,
}

impl<C, L> Heeding<C, L> {
    pub(super) fn new(inner: C, layer: HeedLayer<L>) -> Self {
        Self { inner, layer }
    }
}

impl<C: Clone, L> Clone for Heeding<C, L> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.layer.clone())
    }
}

impl<R, L, C> Service<R> for Heeding<C, L>
where
    R: HttpCall,
    L: OutgoingLimit<R>,
    C: Service<R, Response: HttpAnswer> + Clone,
{
    type Response = C::Response;
    type Error = OutgoingError<C::Error>;
    type Future = HeedingFuture<R, L, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(OutgoingError::Client)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let waiting = self.layer.wait(&request);
        // The one that is ready makes the call; a clone need not be.
        let clone = self.inner.clone();
        let client = std::mem::replace(&mut self.inner, clone);
        HeedingFuture { waiting, state: State::Waiting { asked: Some((request, client)) } }
    }
}

pin_project! {
    /// A call that waits for a pause to end, and then is made.
    pub struct HeedingFuture<R, L: OutgoingLimit<R>, C: Service<R>> {
        waiting: Waiting<R, L>,
        #[pin]
        state: State<R, L::Held, C>,
    }
}

pin_project! {
    #[project = StateNow]
    enum State<R, H, C: Service<R>> {
        Waiting { asked: Option<(R, C)> },
        Calling { #[pin] call: C::Future, held: Option<H> },
    }
}

impl<R, L, C> Future for HeedingFuture<R, L, C>
where
    R: HttpCall,
    L: OutgoingLimit<R>,
    C: Service<R, Response: HttpAnswer>,
{
    type Output = Result<C::Response, OutgoingError<C::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateNow::Waiting { asked } => {
                    // Whoever asks again has had the answer.
                    let Some((request, _)) = asked else { return Poll::Pending };
                    let turn = ready!(this.waiting.poll(request, context));
                    let Some((request, mut client)) = asked.take() else { return Poll::Pending };
                    let held = turn.map_err(OutgoingError::TooBusy)?;
                    State::Calling { call: client.call(request), held }
                }
                // What it holds goes back when the future is dropped, right after this.
                StateNow::Calling { call, .. } => {
                    let response = ready!(call.poll(context)).map_err(OutgoingError::Client)?;
                    this.waiting.heard(&response);
                    return Poll::Ready(Ok(response));
                }
            };
            this.state.set(next);
        }
    }
}

impl<R, L: OutgoingLimit<R>, C: Service<R>> fmt::Debug for HeedingFuture<R, L, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeedingFuture").field("host", &self.waiting.host()).finish_non_exhaustive()
    }
}
