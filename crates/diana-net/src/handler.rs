//! The interface between an HTTP server and its application: a [`Handler`] answers each request.

use crate::connection::{Admission, Connection};
use crate::recorded_body::{LocalBody, RecordedBody};
use crate::request_body::{ConnReuse, RequestBody};
use crate::request_record::RequestRecord;
use bytes::Bytes;
use diana_http::{Denial, problem_response};
use diana_metrics::Outcome;
use http::header::{HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Answers the requests of an HTTP server. Each worker has its own, or all share one.
pub trait Handler: Send + Sync + 'static {
    /// The body of a response; also that of one that is in memory.
    type Body: Body<Data = Bytes, Error: Send> + From<Full<Bytes>> + Send + Unpin + 'static;

    /// Serves one request. `keep` is called with its head if the head is needed after this call: not if the request is
    /// answered at once.
    fn serve(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        head: Parts,
        body: RequestBody,
        keep: impl FnOnce(&mut Parts),
    ) -> Answer<Self::Body>;

    /// Does periodic work; the worker calls it every five seconds.
    fn upkeep(&self) {}
}

/// The answer to a request.
#[allow(clippy::large_enum_variant, reason = "the large variants make a denial cheap: it needs no box")]
pub enum Answer<B> {
    /// The request is denied.
    Denied(DeniedRequest),
    /// A response from another source, which is ready.
    Ready(Response<RecordedBody<B>>),
    /// A response in progress.
    Later(Pin<Box<dyn Future<Output = Response<RecordedBody<B>>> + Send>>),
}

/// A denied request, whose response has not been built.
#[derive(Debug)]
pub struct DeniedRequest {
    /// The response.
    pub denial: Denial,
    /// The record of the request.
    pub record: RequestRecord,
    /// Whether the connection can be reused after the response.
    pub reuse: ConnReuse,
}

impl DeniedRequest {
    /// Builds the response.
    pub fn into_response(self) -> Response<LocalBody> {
        let mut response = self.record.respond(self.denial.into_response(), Outcome::Denied);
        self.reuse.announce(response.headers_mut());
        response
    }

    /// Writes the response as HTTP/1 text, from the status on; `end_head` writes the end of the head. Returns `false` if it
    /// is not a response that is cached, and nothing was written.
    pub(crate) fn write_http1(&mut self, text: &mut Vec<u8>, end_head: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some((status, length)) = self.denial.write_http1(text, end_head) else { return false };
        self.record.outcome = Outcome::Denied;
        self.record.status(status);
        self.record.sent(length);
        true
    }
}

impl<B: From<Full<Bytes>>> Answer<B> {
    /// Returns a local response, which is ready.
    pub fn local(response: Response<LocalBody>) -> Self {
        Self::Ready(response.map(|body| body.map(B::from)))
    }
}

impl<B> std::fmt::Debug for Answer<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Denied(_) => "Denied",
            Self::Ready(_) => "Ready",
            Self::Later(_) => "Later",
        })
    }
}

/// Serves a request, unless the wait of its connection for another one to be closed timed out.
pub(crate) fn serve<H: Handler>(
    handler: &Arc<H>,
    connection: &Arc<Connection>,
    head: Parts,
    body: RequestBody,
    keep: impl FnOnce(&mut Parts),
) -> Answer<H::Body> {
    if connection.guard.admission() != Admission::Refused {
        return handler.serve(connection, head, body, keep);
    }
    let record = RequestRecord::begin(connection, &head);
    let response = too_many_connections(connection.worker.settings.timeouts.accept);
    let mut response = record.respond(response, Outcome::Rejected);
    // The rest of the body need not be read, but what has arrived is.
    let _ = body.drain(&head);
    ConnReuse::Close.announce(response.headers_mut());
    Answer::local(response)
}

/// Returns the response on a connection that waited for `wait` while too many others were open.
fn too_many_connections(wait: Duration) -> Response<Full<Bytes>> {
    let mut response = problem_response(StatusCode::SERVICE_UNAVAILABLE, "too many connections are open");
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}
