//! The life of a request.
//!
//! 1. Invalid requests are rejected ([`head::check`]). The others get the head that the upstream will see, so that
//!    rules match on the same head ([`head::remove_named`], [`head::name_host`]).
//! 2. Diana's filter runs first. A denied request reaches nothing after it.
//! 3. The other filters run in their order.
//! 4. The request is forwarded to its upstream, or to the one that a rule reroutes it to; its body is streamed.
//! 5. The response gets the rate limit headers; its body is streamed. The request's permits are released when the last
//!    byte has been sent, or the client has disconnected.

use super::connection::{ConnInfo, ConnTimeouts};
use super::leave::Leave;
use super::proxy::ProxyRequest;
use super::request::drain::{self, ConnReuse};
use super::request::head::{self, Rejected};
use super::request::{RequestBody, RequestTracker};
use super::response::{ResponseBody, local_response};
use super::worker::{ConnGuard, Store, WorkerState};
use bytes::Bytes;
use diana_http::{CheckResult, Denial};
use diana_metrics::Outcome;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A client's connection, with the state that its requests share.
pub(super) struct Connection {
    pub(super) worker: Arc<WorkerState>,
    pub(super) conn_info: ConnInfo,
    pub(super) phase: Arc<ConnTimeouts>,
    /// Counts the connection as open while any owner exists, including an upgraded connection.
    pub(super) _counted: ConnGuard,
}

/// The hyper service of a connection.
pub(super) struct Requests(pub(super) Arc<Connection>);

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        self.0.begin(request.map(RequestBody::Http1))
    }
}

/// A response: ready, as for most denied requests, or in progress.
#[allow(clippy::large_enum_variant, reason = "the large one is what makes a refusal cheap: it takes no box")]
pub(super) enum ResponseFuture {
    Here(Option<Response<ResponseBody>>),
    Coming(Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>),
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Here(response) => response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response))),
            Self::Coming(response) => response.as_mut().poll(context).map(Ok),
        }
    }
}

impl From<Response<ResponseBody>> for ResponseFuture {
    fn from(response: Response<ResponseBody>) -> Self {
        Self::Here(Some(response))
    }
}

impl<F: Future<Output = Response<ResponseBody>> + Send + 'static> From<Pin<Box<F>>> for ResponseFuture {
    fn from(response: Pin<Box<F>>) -> Self {
        Self::Coming(response)
    }
}

/// Returns what the rules allow, or the denial.
fn decided(checked: CheckResult<Store>, tracker: &mut RequestTracker) -> Result<Leave, Denial> {
    let leave = match checked {
        CheckResult::Deny(refused) => {
            tracker.decided(refused.verdict());
            tracker.outcome = Outcome::Denied;
            return Err(refused);
        }
        CheckResult::Reroute(diverted) => Leave::Divert(diverted),
        CheckResult::Allow(pass) => Leave::Pass(pass),
    };
    tracker.decided(leave.verdict());
    Ok(leave)
}

impl Connection {
    /// Serves one request.
    pub(super) fn begin(self: &Arc<Self>, request: Request<RequestBody>) -> ResponseFuture {
        let worker = &self.worker;
        let (mut head, body) = request.into_parts();
        let mut tracker = RequestTracker::begin(self, &head);
        if let Err(Rejected { status, why }) = head::check(&head, &worker.gateway).and_then(|()| fits(worker, &head)) {
            return self.without(Some(body), &head, rejected(local_response::problem(status, why), tracker)).into();
        }
        if let Err(Rejected { status, why }) = head::check_coding(&head.headers) {
            // The connection is closed after this response: another server may see the end of such a body elsewhere.
            return self
                .without(Some(body), &head, rejected(closing(local_response::problem(status, why)), tracker))
                .into();
        }
        let client = worker.filter.client(&head.headers, self.conn_info.peer);
        tracker.client(client);
        head::remove_named(&mut head.headers);
        head::name_host(&mut head, &worker.gateway);
        let mut checking = worker.filter.check_head(&head, Some(client));
        // Most requests are decided at once, and a denial then needs no boxed future. A queued request is polled again.
        match Pin::new(&mut checking).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(checked) => match decided(checked, &mut tracker) {
                Ok(leave) => {
                    let journey = ProxyRequest::new(Arc::clone(self), head, body, client, leave, tracker);
                    if journey.outlives_client() { journey.run_detached().into() } else { journey.run().into() }
                }
                Err(refused) => self.without(Some(body), &head, own(refused.into_response(), tracker)).into(),
            },
            Poll::Pending => {
                let this = Arc::clone(self);
                let waiting = async move {
                    match decided(checking.await, &mut tracker) {
                        Ok(leave) => {
                            let journey = ProxyRequest::new(this, head, body, client, leave, tracker);
                            if journey.outlives_client() { journey.run_detached().await } else { journey.run().await }
                        }
                        Err(refused) => this.without(Some(body), &head, own(refused.into_response(), tracker)),
                    }
                };
                Box::pin(waiting).into()
            }
        }
    }

    /// Returns a response that did not need the request's body, and drains the body.
    pub(super) fn without(
        &self,
        body: Option<RequestBody>,
        head: &Parts,
        mut response: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        if let Some(body) = body
            && drain::throw_away(head, body, self.worker.gateway.timeouts.body) == ConnReuse::Close
        {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Rejects a request with too many headers or too long a body.
fn fits(worker: &WorkerState, head: &Parts) -> Result<(), Rejected> {
    // For HTTP/1, hyper enforces this limit while it reads the head.
    if head.headers.len() > worker.gateway.bounds.headers {
        return Err(Rejected {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            why: "there are too many headers",
        });
    }
    let Some(most) = worker.gateway.bounds.body else { return Ok(()) };
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > most) {
        return Err(Rejected { status: StatusCode::PAYLOAD_TOO_LARGE, why: "the body is too long" });
    }
    Ok(())
}

/// Returns a local response, which completes the request.
pub(super) fn own(response: Response<Full<Bytes>>, mut tracker: RequestTracker) -> Response<ResponseBody> {
    tracker.status(response.status());
    response.map(|body| ResponseBody::own(body, tracker))
}

/// Returns a local response to a rejected request.
fn rejected(response: Response<Full<Bytes>>, mut tracker: RequestTracker) -> Response<ResponseBody> {
    tracker.outcome = Outcome::Rejected;
    own(response, tracker)
}

/// Closes the connection after this response, as no valid request can follow on it. (Over HTTP/2 the header is removed:
/// only the stream ends.)
pub(super) fn closing(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
