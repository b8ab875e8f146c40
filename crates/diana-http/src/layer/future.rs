//! The future of a request in the layer: check, inner service, response.

use super::body::RateLimitBody;
use super::limited_caller::{CallFuture, RequestCaller};
use super::{LayerState, ReroutedTo, Rerouting};
use crate::attributes::HttpAttributes;
use crate::permit::RequestPermit;
use crate::problem::problem_response;
use crate::throttle::ThrottledBody;
use diana::{AcquireFuture, Denial, Permit, Verdict};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_service::Service;

pin_project! {
    /// The future of a request: checks it, and calls the inner service if it is granted. Dropping it releases or
    /// refunds its charges.
    pub struct RateLimitFuture<C, B>
    where
        C: Service<Request<ThrottledBody<B>>>,
    {
        #[pin]
        state: CallState<C, B>,
    }
}

pin_project! {
    #[project = CallStateProj]
    enum CallState<C, B>
    where
        C: Service<Request<ThrottledBody<B>>>,
    {
        Rejected { detail: &'static str },
        Acquiring { acquiring: AcquireFuture, request: Option<PendingRequest<C, B>> },
        Calling { #[pin] response: CallFuture<C::Future>, permit: Option<RequestPermit> },
    }
}

/// A request that waits for its decision, and the inner service.
pub(super) struct PendingRequest<C, B> {
    pub(super) head: Parts,
    pub(super) body: B,
    pub(super) inner: C,
    pub(super) client: Option<IpAddr>,
    pub(super) state: Arc<LayerState>,
}

impl<C, B> RateLimitFuture<C, B>
where
    C: Service<Request<ThrottledBody<B>>>,
{
    pub(super) fn new(acquiring: AcquireFuture, request: PendingRequest<C, B>) -> Self {
        Self { state: CallState::Acquiring { acquiring, request: Some(request) } }
    }

    /// Creates a response with the status 400, before any rule is checked.
    pub(super) fn rejected(detail: &'static str) -> Self {
        Self { state: CallState::Rejected { detail } }
    }
}

impl<C, B> PendingRequest<C, B>
where
    C: Service<Request<ThrottledBody<B>>>,
{
    /// Applies the decision: calls the inner service, or denies the request.
    #[allow(clippy::result_large_err, reason = "it is moved once, and a box would make each denial slower")]
    fn apply<R>(self, decided: Result<Permit, Denial>) -> Result<CallState<C, B>, Response<RateLimitBody<R>>> {
        let Self { mut head, body, mut inner, client, state } = self;
        crate::log(Verdict::of(&decided), &head, client, "layer");
        let permit = match decided {
            Ok(permit) => Ok(state.filter.permit(permit)),
            Err(denial) if state.rerouting == Rerouting::Forward => state.filter.rerouted(denial),
            Err(denial) => Err(denial),
        };
        let mut permit = permit.map_err(|denial| {
            let denial = state.filter.denial(denial, &HttpAttributes::of_head(&head, client));
            denial.into_response().map(RateLimitBody::denied)
        })?;
        if let Some(target) = permit.reroute_to() {
            head.extensions.insert(ReroutedTo(target.clone()));
        }
        let caller = RequestCaller::of(permit.verdict().rules(), &head, client);
        let request = Request::from_parts(head, permit.request_body(body));
        permit.begin();
        Ok(CallState::Calling { response: caller.call(&mut inner, request), permit: Some(permit) })
    }
}

impl<C, B, R> Future for RateLimitFuture<C, B>
where
    C: Service<Request<ThrottledBody<B>>, Response = Response<R>>,
    R: Body,
{
    type Output = Result<Response<RateLimitBody<R>>, C::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                CallStateProj::Rejected { detail } => {
                    let response = problem_response(StatusCode::BAD_REQUEST, detail);
                    return Poll::Ready(Ok(response.map(RateLimitBody::denied)));
                }
                CallStateProj::Acquiring { acquiring, request } => {
                    let result = ready!(Pin::new(acquiring).poll(context));
                    // Polled after completion.
                    let Some(request) = request.take() else { return Poll::Pending };
                    match request.apply(result) {
                        Ok(next) => next,
                        Err(denial) => return Poll::Ready(Ok(denial)),
                    }
                }
                CallStateProj::Calling { response, permit } => {
                    let response = ready!(response.poll(context))?;
                    // Polled after completion.
                    let Some(permit) = permit.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(permit.finish(response).map(RateLimitBody::granted)));
                }
            };
            this.state.set(next);
        }
    }
}

impl<C, B> fmt::Debug for RateLimitFuture<C, B>
where
    C: Service<Request<ThrottledBody<B>>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            CallState::Rejected { .. } => "rejected",
            CallState::Acquiring { .. } => "acquiring",
            CallState::Calling { .. } => "calling",
        };
        f.debug_tuple("RateLimitFuture").field(&state).finish()
    }
}
