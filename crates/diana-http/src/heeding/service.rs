//! The client behind the layer, and the call that waits for a pause to end.

use super::pauses::Pauses;
use super::said;
use crate::outgoing::{OutgoingError, TooBusy};
use diana::core::Retry;
use http::header::HOST;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};
use tower_service::Service;

/// A client that heeds what the other side says: what [`HeedLayer`](super::HeedLayer) makes.
#[derive(Clone, Debug)]
pub struct Heeding<C> {
    inner: C,
    pauses: Arc<Pauses>,
    patience: Duration,
}

impl<C> Heeding<C> {
    pub(super) fn new(inner: C, pauses: Arc<Pauses>, patience: Duration) -> Self {
        Self { inner, pauses, patience }
    }
}

impl<B, R, C> Service<Request<B>> for Heeding<C>
where
    C: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<R>;
    type Error = OutgoingError<C::Error>;
    type Future = HeedingFuture<B, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(OutgoingError::Client)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready makes the call; a clone need not be.
        let clone = self.inner.clone();
        let client = std::mem::replace(&mut self.inner, clone);
        HeedingFuture {
            host: host(&request),
            pauses: Arc::clone(&self.pauses),
            patience: self.patience,
            end: Instant::now() + self.patience,
            state: State::Asking { sleep: None, asked: Some((request, client)) },
        }
    }
}

/// Whom a call goes to.
fn host<B>(request: &Request<B>) -> Arc<str> {
    let of_address = request.uri().authority().map(http::uri::Authority::as_str);
    let of_header = || request.headers().get(HOST).and_then(|host| host.to_str().ok());
    // Those that name nobody go to the same one, as far as anybody can tell.
    of_address.or_else(of_header).unwrap_or_default().into()
}

pin_project! {
    /// A call that waits for a pause to end, and then is made.
    pub struct HeedingFuture<B, C: Service<Request<B>>> {
        host: Arc<str>,
        pauses: Arc<Pauses>,
        patience: Duration,
        end: Instant,
        #[pin]
        state: State<B, C>,
    }
}

pin_project! {
    #[project = StateNow]
    enum State<B, C: Service<Request<B>>> {
        Asking { sleep: Option<Pin<Box<Sleep>>>, asked: Option<(Request<B>, C)> },
        Calling { #[pin] call: C::Future },
    }
}

impl<B, R, C> Future for HeedingFuture<B, C>
where
    C: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<R>, OutgoingError<C::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateNow::Asking { sleep, asked } => {
                    if let Some(sleep) = sleep {
                        ready!(sleep.as_mut().poll(context));
                    }
                    let now = Instant::now();
                    // Others may have been told to wait longer meanwhile.
                    match this.pauses.left(this.host, now) {
                        Some(left) if now + left > *this.end => {
                            let (limit, retry) = (Arc::clone(this.host), Retry::After(left));
                            let busy = TooBusy { limit, patience: *this.patience, retry };
                            return Poll::Ready(Err(OutgoingError::TooBusy(busy)));
                        }
                        Some(left) => {
                            *sleep = Some(Box::pin(tokio::time::sleep(left)));
                            continue;
                        }
                        None => {}
                    }
                    // Whoever asks again has had the answer.
                    let Some((request, mut client)) = asked.take() else { return Poll::Pending };
                    State::Calling { call: client.call(request) }
                }
                StateNow::Calling { call } => {
                    let response = ready!(call.poll(context)).map_err(OutgoingError::Client)?;
                    if let Some(time) = said::pause(response.status(), response.headers()) {
                        this.pauses.pause(this.host, time, Instant::now());
                    }
                    return Poll::Ready(Ok(response));
                }
            };
            this.state.set(next);
        }
    }
}

impl<B, C: Service<Request<B>>> fmt::Debug for HeedingFuture<B, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeedingFuture").field("host", &self.host).finish_non_exhaustive()
    }
}
