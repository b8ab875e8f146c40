//! The client of the layer, and the future of a call.

use super::RetryAfterLayer;
use super::waiting::Waiting;
use crate::client_ext::{RequestHost, ResponseMeta};
use crate::client_limit::{ClientLimit, ClientRateLimitError, NoLimit};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// A client that respects `Retry-After`; created by [`RetryAfterLayer`].
#[derive(Debug)]
pub struct RetryAfter<C, L = NoLimit> {
    inner: C,
    layer: RetryAfterLayer<L>,
}

impl<C, L> RetryAfter<C, L> {
    pub(super) fn new(inner: C, layer: RetryAfterLayer<L>) -> Self {
        Self { inner, layer }
    }
}

impl<C: Clone, L> Clone for RetryAfter<C, L> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.layer.clone())
    }
}

impl<R, L, C> Service<R> for RetryAfter<C, L>
where
    R: RequestHost,
    L: ClientLimit<R>,
    C: Service<R, Response: ResponseMeta> + Clone,
{
    type Response = C::Response;
    type Error = ClientRateLimitError<C::Error>;
    type Future = RetryAfterFuture<R, L, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(ClientRateLimitError::Client)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let waiting = self.layer.wait(&request);
        // The ready service makes the call; its clone may not be ready.
        let clone = self.inner.clone();
        let client = std::mem::replace(&mut self.inner, clone);
        RetryAfterFuture { waiting, state: State::Waiting { asked: Some((request, client)) } }
    }
}

pin_project! {
    /// A call that waits for the end of a pause, and then is made.
    pub struct RetryAfterFuture<R, L: ClientLimit<R>, C: Service<R>> {
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

impl<R, L, C> Future for RetryAfterFuture<R, L, C>
where
    R: RequestHost,
    L: ClientLimit<R>,
    C: Service<R, Response: ResponseMeta>,
{
    type Output = Result<C::Response, ClientRateLimitError<C::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateNow::Waiting { asked } => {
                    // Polled after completion.
                    let Some((request, _)) = asked else { return Poll::Pending };
                    let turn = ready!(this.waiting.poll(request, context));
                    let Some((request, mut client)) = asked.take() else { return Poll::Pending };
                    let held = turn.map_err(ClientRateLimitError::Overloaded)?;
                    State::Calling { call: client.call(request), held }
                }
                // Its permit is released when the future is dropped, right after this.
                StateNow::Calling { call, .. } => {
                    let response = ready!(call.poll(context)).map_err(ClientRateLimitError::Client)?;
                    this.waiting.heard(&response);
                    return Poll::Ready(Ok(response));
                }
            };
            this.state.set(next);
        }
    }
}

impl<R, L: ClientLimit<R>, C: Service<R>> fmt::Debug for RetryAfterFuture<R, L, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryAfterFuture").field("host", &self.waiting.host()).finish_non_exhaustive()
    }
}
