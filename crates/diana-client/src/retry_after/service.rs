//! The client of the layer, and the future of a call.

use super::RetryAfterLayer;
use super::pause_wait::PauseWait;
use crate::client_limit::{ClientLimit, ClientRateLimitError, NoLimit};
use crate::client_messages::{RequestHost, ResponseMeta};
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
        let wait = self.layer.wait(&request);
        // The ready service makes the call; its clone may not be ready.
        let clone = self.inner.clone();
        let client = std::mem::replace(&mut self.inner, clone);
        RetryAfterFuture { wait, state: CallState::Waiting { call: Some((request, client)) } }
    }
}

pin_project! {
    /// A call that waits for the end of a pause, and then is made.
    pub struct RetryAfterFuture<R, L: ClientLimit<R>, C: Service<R>> {
        wait: PauseWait<R, L>,
        #[pin]
        state: CallState<R, L::Permit, C>,
    }
}

pin_project! {
    #[project = CallStateProj]
    enum CallState<R, P, C: Service<R>> {
        Waiting { call: Option<(R, C)> },
        Calling { #[pin] response: C::Future, permit: Option<P> },
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
                CallStateProj::Waiting { call } => {
                    // Polled after completion.
                    let Some((request, _)) = call else { return Poll::Pending };
                    let acquired = ready!(this.wait.poll(request, context));
                    let Some((request, mut client)) = call.take() else { return Poll::Pending };
                    let permit = acquired.map_err(ClientRateLimitError::Overloaded)?;
                    CallState::Calling { response: client.call(request), permit }
                }
                // Its permit is released when the future is dropped, right after this.
                CallStateProj::Calling { response, .. } => {
                    let response = ready!(response.poll(context)).map_err(ClientRateLimitError::Client)?;
                    this.wait.observe(&response);
                    return Poll::Ready(Ok(response));
                }
            };
            this.state.set(next);
        }
    }
}

impl<R, L: ClientLimit<R>, C: Service<R>> fmt::Debug for RetryAfterFuture<R, L, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryAfterFuture").field("host", &self.wait.host()).finish_non_exhaustive()
    }
}
