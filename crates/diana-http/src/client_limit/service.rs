//! The client of the layer, and the future of a call.

use super::ClientRateLimitLayer;
use super::error::ClientRateLimitError;
use super::limit::ClientLimit;
use super::waiting::Waiting;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// A client whose calls wait until they are granted; created by [`ClientRateLimitLayer`].
#[derive(Debug)]
pub struct ClientRateLimit<L, C> {
    inner: C,
    layer: ClientRateLimitLayer<L>,
}

impl<L, C> ClientRateLimit<L, C> {
    pub(super) fn new(inner: C, layer: ClientRateLimitLayer<L>) -> Self {
        Self { inner, layer }
    }
}

impl<L, C: Clone> Clone for ClientRateLimit<L, C> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.layer.clone())
    }
}

impl<R, L, C> Service<R> for ClientRateLimit<L, C>
where
    L: ClientLimit<R>,
    C: Service<R> + Clone,
{
    type Response = C::Response;
    type Error = ClientRateLimitError<C::Error>;
    type Future = ClientRateLimitFuture<R, L::Held, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(ClientRateLimitError::Client)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let waiting = self.layer.turn(&request);
        // The ready service makes the call; its clone may not be ready.
        let clone = self.inner.clone();
        let client = std::mem::replace(&mut self.inner, clone);
        ClientRateLimitFuture { state: State::Waiting { waiting, asked: Some((request, client)) } }
    }
}

pin_project! {
    /// A call that waits until it is granted, and then is made.
    pub struct ClientRateLimitFuture<R, H, C: Service<R>> {
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

impl<R, H, C: Service<R>> Future for ClientRateLimitFuture<R, H, C> {
    type Output = Result<C::Response, ClientRateLimitError<C::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateNow::Waiting { waiting, asked } => {
                    // Polled after completion.
                    if asked.is_none() {
                        return Poll::Pending;
                    }
                    let turn = ready!(waiting.poll(context));
                    let Some((request, mut client)) = asked.take() else { return Poll::Pending };
                    let held = turn.map_err(ClientRateLimitError::Overloaded)?;
                    State::Calling { call: client.call(request), held }
                }
                // Its permit is released when the future is dropped, right after this.
                StateNow::Calling { call, .. } => return call.poll(context).map_err(ClientRateLimitError::Client),
            };
            this.state.set(next);
        }
    }
}

impl<R, H, C: Service<R>> fmt::Debug for ClientRateLimitFuture<R, H, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRateLimitFuture").finish_non_exhaustive()
    }
}
