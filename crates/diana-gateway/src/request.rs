//! The life of a request: the place to start reading.
//!
//! 1. Invalid requests are rejected ([`head::check`]). The others get the head that the upstream will see, so that
//!    rules match on the same head ([`head::remove_connection_headers`], [`head::remove_aliases`], [`head::add_host`]).
//! 2. Diana's filter runs first. A denied request reaches nothing after it.
//! 3. The other filters run in their order: permissions, signatures, and those of the program. `filters` may put some of them
//!    before Diana's filter.
//! 4. The request is forwarded to its upstream, or to the one that a rule reroutes it to; its body is streamed.
//! 5. The response gets the rate limit headers; its body is streamed. The request's permits are released when the last
//!    byte has been sent, or the client has disconnected.
//!
//! Its parts:
//! - [`head`] checks the head of a request, and builds the head that an upstream gets.
//! - [`body`] streams the body to an upstream; [`drain`] discards the body of a request that was answered without it.
//! - [`request_record`] counts and logs a request.
//! - [`forward_auth`] answers the checks of other gateways, which describe a request in headers.
//! - [`described_head`] is the head of a request that the client of another service describes.
//! - [`explained_request`] is a request that a user describes, parsed as the gateway parses one from the network.

mod body;
mod described_head;
pub(crate) mod drain;
mod explained_request;
mod forward_auth;
pub(crate) mod head;
mod request_record;

pub(crate) use body::{BodyFault, BodyProgress, RequestBody, RequestBodyStream};
pub use described_head::{DescribedHead, HeadDescription};
pub use explained_request::{DescribedRequest, InvalidRequest, RejectedRequest};
pub use head::{parse_target, prepare_head};
pub(crate) use request_record::RequestTracker;

use super::connection::{Connection, PeerTrust};
use super::listener::Admission;
use super::proxy::ProxyRequest;
use super::response::{ResponseBody, local_response};
use super::worker::NoUpstream;
use bytes::Bytes;
use diana::{AcquireFuture, Permit, Verdict};
use diana_http::{Denial, HttpAttributes, RequestPermit};
use diana_metrics::Outcome;
use drain::ConnReuse;
use head::Rejected;
use http::request::Parts;
use http::{HeaderMap, Response};
use http_body_util::Full;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The name of this front end in the log of denials.
const SERVICE: &str = "gateway";

/// A response: that of a denied request, another one that is ready, or in progress.
#[allow(clippy::large_enum_variant, reason = "the large variants make a denial cheap: it needs no box")]
pub(super) enum ResponseFuture {
    /// `None` once it is returned.
    Denied(Option<DeniedRequest>),
    Ready(Option<Response<ResponseBody>>),
    Pending(Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>),
}

impl Future for ResponseFuture {
    type Output = Response<ResponseBody>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Denied(denied) => denied.take().map_or(Poll::Pending, |denied| Poll::Ready(denied.into_response())),
            Self::Ready(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            Self::Pending(response) => response.as_mut().poll(context),
        }
    }
}

/// A denied request, whose response has not been built.
pub(super) struct DeniedRequest {
    denial: Denial,
    tracker: RequestTracker,
    reuse: ConnReuse,
}

impl DeniedRequest {
    /// Returns `true` if the connection can be reused after the response.
    pub(super) fn keeps_connection(&self) -> bool {
        self.reuse == ConnReuse::KeepAlive
    }

    /// Returns the response.
    pub(super) fn into_response(self) -> Response<ResponseBody> {
        let mut response = respond(self.denial.into_response(), self.tracker);
        self.reuse.announce(response.headers_mut());
        response
    }

    /// Writes the response as HTTP/1 text, from the status on; `end_head` writes the end of the head. Returns `false` if it
    /// is not a response that is cached, and nothing was written.
    pub(super) fn write_http1(&mut self, text: &mut Vec<u8>, end_head: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some((status, length)) = self.denial.write_http1(text, end_head) else { return false };
        self.tracker.status(status);
        self.tracker.sent(length);
        true
    }
}

impl From<Response<ResponseBody>> for ResponseFuture {
    fn from(response: Response<ResponseBody>) -> Self {
        Self::Ready(Some(response))
    }
}

impl<F: Future<Output = Response<ResponseBody>> + Send + 'static> From<Pin<Box<F>>> for ResponseFuture {
    fn from(response: Pin<Box<F>>) -> Self {
        Self::Pending(response)
    }
}

impl Connection {
    /// Serves one request. `keep` is called with its head if the head is needed after this call: not if the request is
    /// denied or rejected at once.
    pub(super) fn begin(
        self: &Arc<Self>,
        mut head: Parts,
        body: RequestBody,
        keep: impl FnOnce(&mut Parts),
    ) -> ResponseFuture {
        let worker = &self.worker;
        if self.guard.admission() == Admission::Refused {
            let response = local_response::too_many_connections(worker.gateway.timeouts.accept);
            let mut response = rejected(closing(response), RequestTracker::begin(self, &head));
            self.drain(body, &head, response.headers_mut());
            return response.into();
        }
        if worker.no_upstream == NoUpstream::Check {
            keep(&mut head);
            return self.check(head, body);
        }
        let mut tracker = RequestTracker::begin(self, &head);
        if let Err(Rejected { status, detail }) =
            head::check(&head, &worker.gateway).and_then(|()| head::check_bounds(&worker.gateway.bounds, &head))
        {
            let mut response = rejected(local_response::problem(status, detail), tracker);
            self.drain(body, &head, response.headers_mut());
            return response.into();
        }
        if let Err(Rejected { status, detail }) = head::check_coding(&head.headers) {
            // The connection is closed after this response: another server may see the end of such a body elsewhere.
            let mut response = rejected(closing(local_response::problem(status, detail)), tracker);
            self.drain(body, &head, response.headers_mut());
            return response.into();
        }
        let client = match self.conn_info.trust {
            PeerTrust::Untrusted => self.conn_info.peer,
            PeerTrust::Trusted => worker.filter.client(&head.headers, self.conn_info.peer),
        };
        tracker.client(client);
        head::remove_connection_headers(&mut head.headers);
        head::remove_aliases(&mut head.headers, &worker.filter);
        head::add_host(&mut head, &worker.gateway);
        if !worker.before.is_idle() {
            keep(&mut head);
            return Box::pin(Arc::clone(self).filter_first(head, body, client, tracker)).into();
        }
        // Most requests are decided at once, and a denial then needs no boxed future.
        match self.acquire(&head, client).now() {
            Ok(decided) => match self.decided(decided, &head, client, &mut tracker) {
                Ok(permit) => {
                    keep(&mut head);
                    let request = ProxyRequest::new(Arc::clone(self), head, body, client, permit, tracker);
                    if request.outlives_client() { request.run_detached().into() } else { request.run().into() }
                }
                Err(denial) => {
                    let reuse = drain::drain(&head, body);
                    head::recycle(head.headers);
                    ResponseFuture::Denied(Some(DeniedRequest { denial, tracker, reuse }))
                }
            },
            Err(waiting) => {
                keep(&mut head);
                Box::pin(Arc::clone(self).wait(waiting, head, body, client, tracker)).into()
            }
        }
    }

    /// Asks the rules about a request.
    fn acquire(&self, head: &Parts, client: IpAddr) -> AcquireFuture {
        let request = HttpAttributes::of_head(head, Some(client)).with_scheme(self.conn_info.request_scheme);
        self.worker.filter.acquire(&request)
    }

    /// Logs and records a decision. A rerouted request goes on.
    fn decided(
        &self,
        decided: Result<Permit, diana::Denial>,
        head: &Parts,
        client: IpAddr,
        tracker: &mut RequestTracker,
    ) -> Result<RequestPermit, Denial> {
        let filter = &self.worker.filter;
        diana_http::log(Verdict::of(&decided), head, Some(client), SERVICE);
        tracker.decided(Verdict::of(&decided));
        match decided {
            Ok(permit) => Ok(filter.permit(permit)),
            Err(denial) => filter.rerouted(denial).map_err(|denial| {
                tracker.outcome = Outcome::Denied;
                filter.denial(denial, &HttpAttributes::of_head(head, Some(client)))
            }),
        }
    }

    /// Serves a request for which other filters run before the limits.
    async fn filter_first(
        self: Arc<Self>,
        mut head: Parts,
        body: RequestBody,
        client: IpAddr,
        tracker: RequestTracker,
    ) -> Response<ResponseBody> {
        if let Err(denial) = self.worker.before.check(&mut head, client).await {
            tracing::debug!("a request of {client} was denied by the filter `{}`", denial.by);
            let mut response = rejected(denial.response, tracker);
            self.drain(body, &head, response.headers_mut());
            return response;
        }
        let acquiring = self.acquire(&head, client);
        self.wait(acquiring, head, body, client, tracker).await
    }

    /// Serves a request that may have to wait for its decision.
    async fn wait(
        self: Arc<Self>,
        acquiring: AcquireFuture,
        head: Parts,
        body: RequestBody,
        client: IpAddr,
        mut tracker: RequestTracker,
    ) -> Response<ResponseBody> {
        match self.decided(acquiring.await, &head, client, &mut tracker) {
            Ok(permit) => {
                let request = ProxyRequest::new(self, head, body, client, permit, tracker);
                if request.outlives_client() { request.run_detached().await } else { request.run().await }
            }
            Err(denial) => {
                let reuse = drain::drain(&head, body);
                DeniedRequest { denial, tracker, reuse }.into_response()
            }
        }
    }

    /// Drains the body of a request whose response did not need it. `response` is the head of the response.
    pub(super) fn drain(&self, body: RequestBody, head: &Parts, response: &mut HeaderMap) {
        drain::drain(head, body).announce(response);
    }
}

/// Returns a local response, which completes the request.
pub(super) fn respond(response: Response<Full<Bytes>>, mut tracker: RequestTracker) -> Response<ResponseBody> {
    tracker.status(response.status());
    response.map(|body| ResponseBody::local(body, tracker))
}

/// Returns a local response to a rejected request.
fn rejected(response: Response<Full<Bytes>>, mut tracker: RequestTracker) -> Response<ResponseBody> {
    tracker.outcome = Outcome::Rejected;
    respond(response, tracker)
}

/// Closes the connection after this response, as no valid request can follow on it. (Over HTTP/2 the header is removed:
/// only the stream ends.)
pub(super) fn closing(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    ConnReuse::Close.announce(response.headers_mut());
    response
}
