//! The future of a request in the layer: check, inner service, response.

use super::body::RateLimitBody;
use super::caller::{By, Call};
use super::{ReroutedTo, Rerouting};
use crate::bandwidth::ThrottledBody;
use crate::check_future::CheckFuture;
use crate::check_result::CheckResult;
use crate::permit::RequestPermit;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use pin_project_lite::pin_project;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
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
        state: State<C, B>,
    }
}

pin_project! {
    #[project = StateNow]
    enum State<C, B>
    where
        C: Service<Request<ThrottledBody<B>>>,
    {
        Rejected { why: &'static str },
        Checking { checking: CheckFuture, request: Option<Waiting<C, B>> },
        Calling { #[pin] call: Call<C::Future>, permit: Option<RequestPermit> },
    }
}

/// A request that waits for its decision, and the inner service.
pub(super) struct Waiting<C, B> {
    pub(super) head: Parts,
    pub(super) body: B,
    pub(super) inner: C,
    pub(super) client: Option<IpAddr>,
    pub(super) diverting: Rerouting,
}

impl<C, B> RateLimitFuture<C, B>
where
    C: Service<Request<ThrottledBody<B>>>,
{
    pub(super) fn new(checking: CheckFuture, request: Waiting<C, B>) -> Self {
        Self { state: State::Checking { checking, request: Some(request) } }
    }

    /// Creates a response with the status 400, before any rule is checked.
    pub(super) fn rejected(why: &'static str) -> Self {
        Self { state: State::Rejected { why } }
    }
}

impl<C, B> Waiting<C, B>
where
    C: Service<Request<ThrottledBody<B>>>,
{
    /// Applies the decision: calls the inner service, or denies the request.
    #[allow(clippy::result_large_err, reason = "it is handed on once, and a box would cost each refusal more")]
    fn go_on<R>(self, checked: CheckResult) -> Result<State<C, B>, Response<RateLimitBody<R>>> {
        let Self { mut head, body, mut inner, client, diverting } = self;
        let mut permit = match checked {
            CheckResult::Allow(permit) => permit,
            CheckResult::Reroute(permit) if diverting == Rerouting::Pass => {
                if let Some(target) = permit.reroute_to() {
                    head.extensions.insert(ReroutedTo(target.clone()));
                }
                permit
            }
            CheckResult::Reroute(permit) => {
                return Err(permit.into_denial(&head).into_response().map(RateLimitBody::denied));
            }
            CheckResult::Deny(denial) => return Err(denial.into_response().map(RateLimitBody::denied)),
        };
        let caller = By::of(permit.verdict().rules(), &head, client);
        let request = Request::from_parts(head, permit.request_body(body));
        permit.begin();
        Ok(State::Calling { call: caller.call(&mut inner, request), permit: Some(permit) })
    }
}

fn bad_request(why: &str) -> Response<Full<Bytes>> {
    let body = format!(r#"{{"title":"Bad Request","status":400,"detail":"{why}"}}"#);
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
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
                StateNow::Rejected { why } => return Poll::Ready(Ok(bad_request(why).map(RateLimitBody::denied))),
                StateNow::Checking { checking, request } => {
                    let checked = ready!(Pin::new(checking).poll(context));
                    // Polled after completion.
                    let Some(request) = request.take() else { return Poll::Pending };
                    match request.go_on(checked) {
                        Ok(next) => next,
                        Err(denial) => return Poll::Ready(Ok(denial)),
                    }
                }
                StateNow::Calling { call, permit } => {
                    let response = ready!(call.poll(context))?;
                    // Polled after completion.
                    let Some(permit) = permit.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(permit.answer(response).map(RateLimitBody::granted)));
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
            State::Rejected { .. } => "rejected",
            State::Checking { .. } => "checking",
            State::Calling { .. } => "calling",
        };
        f.debug_tuple("RateLimitFuture").field(&state).finish()
    }
}
