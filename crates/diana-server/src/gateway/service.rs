//! The life of a request.
//!
//! 1. What no client may ask is rejected ([`head::check`]). The rest gets the head that the upstream will see, so that rules go by
//!    the same ([`head::remove_named`], [`head::name_host`]).
//! 2. Diana's filter stands first. What it refuses touches nothing behind it.
//! 3. The filters behind it, in their order.
//! 4. The request goes to its upstream, or to the one that a rule diverts it to; its body flows as it comes.
//! 5. The answer comes back with the fields that tell the client where it stands; its body flows as it comes. What the request
//!    holds is given back when the last byte has gone out, or the client is gone.

use super::conn_info::ConnInfo;
use super::conn_timeouts::ConnTimeouts;
use super::drain::{self, ConnReuse};
use super::head::{self, Rejected};
use super::leave::Leave;
use super::local_response;
use super::proxy::ProxyRequest;
use super::request_body::RequestBody;
use super::request_log::RequestTracker;
use super::response_body::ResponseBody;
use super::worker::ConnGuard;
use super::worker_state::{Store, WorkerState};
use crate::metrics::Outcome;
use bytes::Bytes;
use diana_http::{CheckResult, Denial};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A client's connection, whose requests are served.
pub(super) struct Connection {
    pub(super) worker: Arc<WorkerState>,
    pub(super) conn_info: ConnInfo,
    pub(super) phase: Arc<ConnTimeouts>,
    /// It counts as open as long as anybody has it: a tunnel, too.
    pub(super) _counted: ConnGuard,
}

/// The requests of a connection, as hyper brings them.
pub(super) struct Requests(pub(super) Arc<Connection>);

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        self.0.begin(request.map(RequestBody::Http1))
    }
}

/// An answer: here already, as those to refused requests mostly are, or on its way.
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

/// What the rules let a request do; else why it is refused.
fn decided(checked: CheckResult<Store>, tracker: &mut RequestTracker) -> Result<Leave, Denial> {
    let leave = match checked {
        CheckResult::Refuse(refused) => {
            tracker.decided(refused.verdict());
            tracker.outcome = Outcome::Denial;
            return Err(refused);
        }
        CheckResult::Divert(diverted) => Leave::Divert(diverted),
        CheckResult::RequestPermit(pass) => Leave::RequestPermit(pass),
    };
    tracker.decided(leave.verdict());
    Ok(leave)
}

impl Connection {
    /// Answers one request, or begins to.
    pub(super) fn begin(self: &Arc<Self>, request: Request<RequestBody>) -> ResponseFuture {
        let worker = &self.worker;
        let (mut head, body) = request.into_parts();
        let mut tracker = RequestTracker::begin(self, &head);
        if let Err(Rejected { status, why }) = head::check(&head, &worker.gateway).and_then(|()| fits(worker, &head)) {
            return self.without(Some(body), &head, rejected(local_response::problem(status, why), tracker)).into();
        }
        if let Err(Rejected { status, why }) = head::check_coding(&head.headers) {
            // The connection ends with this answer: another server may find the end of such a body elsewhere.
            return self
                .without(Some(body), &head, rejected(closing(local_response::problem(status, why)), tracker))
                .into();
        }
        let client = worker.filter.client(&head.headers, self.conn_info.peer);
        tracker.client(client);
        head::remove_named(&mut head.headers);
        head::name_host(&mut head, &worker.gateway);
        let mut checking = worker.filter.check_head(&head, Some(client));
        // Mostly it is decided at once, and a refusal then needs no future at all. Who must wait is polled again.
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

    /// An answer that did not need the request's body.
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

/// Whether a request fits what one may ask.
fn fits(worker: &WorkerState, head: &Parts) -> Result<(), Rejected> {
    // Of HTTP/1 more are not even read.
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

/// An answer of the gateway's own, by which the request ends.
pub(super) fn own(response: Response<Full<Bytes>>, mut tracker: RequestTracker) -> Response<ResponseBody> {
    tracker.status(response.status());
    response.map(|body| ResponseBody::own(body, tracker))
}

/// An answer to a request that goes no further.
fn rejected(response: Response<Full<Bytes>>, mut tracker: RequestTracker) -> Response<ResponseBody> {
    tracker.outcome = Outcome::Rejected;
    own(response, tracker)
}

/// After this answer nothing good can come on the connection. (Over HTTP/2, where only the stream ends, hyper leaves it out.)
pub(super) fn closing(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
