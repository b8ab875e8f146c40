//! The client of the layer, the future of a call, and the wait for its permit, which all clients share.

use super::ClientRateLimitLayer;
use super::error::{ClientRateLimitError, Overloaded};
use super::limit_trait::{ClientLimit, ClientLimitError, PermitFuture};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
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
    type Future = ClientRateLimitFuture<R, L::Permit, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(ClientRateLimitError::Client)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let wait = self.layer.acquire(&request);
        // The ready service makes the call; its clone may not be ready.
        let clone = self.inner.clone();
        let client = std::mem::replace(&mut self.inner, clone);
        ClientRateLimitFuture { state: CallState::Waiting { wait, call: Some((request, client)) } }
    }
}

pin_project! {
    /// A call that waits until it is granted, and then is made.
    pub struct ClientRateLimitFuture<R, P, C: Service<R>> {
        #[pin]
        state: CallState<R, P, C>,
    }
}

pin_project! {
    #[project = CallStateProj]
    enum CallState<R, P, C: Service<R>> {
        Waiting { #[pin] wait: PermitWait<P>, call: Option<(R, C)> },
        Calling { #[pin] response: C::Future, permit: P },
    }
}

impl<R, P, C: Service<R>> Future for ClientRateLimitFuture<R, P, C> {
    type Output = Result<C::Response, ClientRateLimitError<C::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                CallStateProj::Waiting { wait, call } => {
                    // Polled after completion.
                    if call.is_none() {
                        return Poll::Pending;
                    }
                    let acquired = ready!(wait.poll(context));
                    let Some((request, mut client)) = call.take() else { return Poll::Pending };
                    let permit = acquired.map_err(ClientRateLimitError::Overloaded)?;
                    CallState::Calling { response: client.call(request), permit }
                }
                // Its permit is released when the future is dropped, right after this.
                CallStateProj::Calling { response, .. } => {
                    return response.poll(context).map_err(ClientRateLimitError::Client);
                }
            };
            this.state.set(next);
        }
    }
}

impl<R, P, C: Service<R>> fmt::Debug for ClientRateLimitFuture<R, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRateLimitFuture").finish_non_exhaustive()
    }
}

/// A call that waits for its permit; returns the permit or the caller's error. Dropping it releases its reservation to
/// the next call.
pub(crate) struct PermitWait<P> {
    permit: PermitFuture<P>,
    name: Arc<str>,
    max_wait: Duration,
}

impl<P> PermitWait<P> {
    pub(super) fn new(permit: PermitFuture<P>, name: Arc<str>, max_wait: Duration) -> Self {
        Self { permit, name, max_wait }
    }
}

impl<P> Future for PermitWait<P> {
    type Output = Result<P, Overloaded>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.permit.as_mut().poll(context).map_err(|ClientLimitError { limit, retry }| Overloaded {
            limit: limit.unwrap_or_else(|| Arc::clone(&self.name)),
            max_wait: self.max_wait,
            retry,
        })
    }
}
