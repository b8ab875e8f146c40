//! The future of a request in the layer: check, inner service, response.

use super::body::RateLimitBody;
use super::caller::{By, Call};
use super::{ReroutedTo, Rerouting};
use crate::bandwidth::ThrottledBody;
use crate::body::PermitBody;
use crate::check_future::CheckFuture;
use crate::check_result::{CheckResult, Rerouted};
use crate::permit::RequestPermit;
use bytes::Bytes;
use diana::store::{MemoryStore, Store};
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
    pub struct RateLimitFuture<C, B, S = MemoryStore>
    where
        C: Service<Request<ThrottledBody<B>>>,
        S: Store,
        S: 'static,
    {
        #[pin]
        state: State<C, B, S>,
    }
}

pin_project! {
    #[project = StateNow]
    enum State<C, B, S>
    where
        C: Service<Request<ThrottledBody<B>>>,
        S: Store,
        S: 'static,
    {
        Rejected { why: &'static str },
        Checking { checking: CheckFuture<S>, request: Option<Waiting<C, B>> },
        Calling { #[pin] call: Call<C::Future>, way: Option<Way<S>> },
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

/// How a request reached the inner service.
enum Way<S: Store + 'static> {
    Passed(RequestPermit<S>),
    Rerouted(Rerouted),
}

impl<C, B, S> RateLimitFuture<C, B, S>
where
    C: Service<Request<ThrottledBody<B>>>,
    S: Store + 'static,
{
    pub(super) fn new(checking: CheckFuture<S>, request: Waiting<C, B>) -> Self {
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
    fn go_on<S, R>(self, checked: CheckResult<S>) -> Result<State<C, B, S>, Response<RateLimitBody<R, S>>>
    where
        S: Store + 'static,
    {
        let Self { mut head, body, mut inner, client, diverting } = self;
        match checked {
            CheckResult::Allow(mut pass) => {
                let by = By::of(pass.verdict().rules(), &head, client);
                let request = Request::from_parts(head, pass.request_body(body));
                pass.begin();
                Ok(State::Calling { call: by.call(&mut inner, request), way: Some(Way::Passed(pass)) })
            }
            CheckResult::Reroute(diverted) if diverting == Rerouting::Pass => {
                let by = By::of(diverted.verdict().rules(), &head, client);
                head.extensions.insert(ReroutedTo(diverted.to().clone()));
                let request = Request::from_parts(head, ThrottledBody::freely(body));
                Ok(State::Calling { call: by.call(&mut inner, request), way: Some(Way::Rerouted(diverted)) })
            }
            CheckResult::Reroute(diverted) => Err(diverted.refuse(&head).into_response().map(RateLimitBody::refused)),
            CheckResult::Deny(refused) => Err(refused.into_response().map(RateLimitBody::refused)),
        }
    }
}

fn bad_request(why: &str) -> Response<Full<Bytes>> {
    let body = format!(r#"{{"title":"Bad Request","status":400,"detail":"{why}"}}"#);
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

impl<C, B, S, R> Future for RateLimitFuture<C, B, S>
where
    C: Service<Request<ThrottledBody<B>>, Response = Response<R>>,
    S: Store + 'static,
    R: Body,
{
    type Output = Result<Response<RateLimitBody<R, S>>, C::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateNow::Rejected { why } => return Poll::Ready(Ok(bad_request(why).map(RateLimitBody::refused))),
                StateNow::Checking { checking, request } => {
                    let checked = ready!(Pin::new(checking).poll(context));
                    // Polled after completion.
                    let Some(request) = request.take() else { return Poll::Pending };
                    match request.go_on(checked) {
                        Ok(next) => next,
                        Err(refusal) => return Poll::Ready(Ok(refusal)),
                    }
                }
                StateNow::Calling { call, way } => {
                    let response = ready!(call.poll(context))?;
                    let response = match way.take() {
                        Some(Way::Passed(pass)) => pass.answer(response),
                        Some(Way::Rerouted(diverted)) => {
                            let mut response = response.map(PermitBody::freely);
                            diverted.add_fields(response.headers_mut());
                            response
                        }
                        None => return Poll::Pending,
                    };
                    return Poll::Ready(Ok(response.map(RateLimitBody::passed)));
                }
            };
            this.state.set(next);
        }
    }
}

impl<C, B, S> fmt::Debug for RateLimitFuture<C, B, S>
where
    C: Service<Request<ThrottledBody<B>>>,
    S: Store + 'static,
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
