//! Requests to an upstream over HTTP/2, each on a free stream of the [`pool`].

mod pool;

pub(super) use pool::{Checkout, Pool, Slot};

use super::response_timeout::ResponseTimeout;
use super::{UpstreamError, WireError};
use crate::paced_upload::PacedUpload;
use bytes::Bytes;
use diana_http::head::is_trailer_allowed;
use diana_net::coarse_timer::Deadline;
use diana_net::http2_codec::{Http2Body, Pipe, PipeError, SendChunk, StreamHandle};
use h2::{Reason, SendStream};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The maximum number of interim responses of an upstream.
const MAX_INTERIM: usize = 16;

/// The result of sending a request.
pub(super) enum Sent {
    Response(Response<Box<ResponseStream>>),
    /// The upstream has not processed it; it can be sent to another one.
    Untouched(PacedUpload, UpstreamError),
    Failed(UpstreamError),
}

/// The body of a response. The rest of the request's body is sent meanwhile.
pub(super) struct ResponseStream {
    body: Http2Body,
    request_body: RequestBodySender,
    /// The deadline for the upstream's next frame.
    deadline: Deadline,
    response_timeout: ResponseTimeout,
    /// The client's stream, if it uses HTTP/2.
    client: Option<StreamHandle>,
    _slot: Slot,
}

/// The request body being sent.
enum RequestBodySender {
    Sending(Box<(PacedUpload, SendStream<SendChunk>, Pipe)>),
    Done,
}

impl RequestBodySender {
    /// Sends the available data. Errors are ignored: an upstream may stop reading the body and still respond.
    fn poll(&mut self, context: &mut Context<'_>) {
        let Self::Sending(sending) = self else { return };
        let (body, stream, pipe) = &mut **sending;
        match pipe.poll(body, stream, context) {
            Poll::Pending => {}
            Poll::Ready(Ok(()) | Err(PipeError::Reset | PipeError::Body(_))) => *self = Self::Done,
        }
    }
}

/// Sends a request, and waits for the head of the response.
pub(super) async fn send(
    mut slot: Slot,
    request: Request<PacedUpload>,
    deadline: Deadline,
    timeout: Duration,
    client: Option<&StreamHandle>,
) -> Sent {
    let (head, body) = request.into_parts();
    let mut response_timeout = ResponseTimeout::new(&body, timeout);
    deadline.set(timeout);
    let broken = |error| UpstreamError::Broken(WireError::Http2(error));
    let ready = poll_fn(|context| match slot.sender.poll_ready(context) {
        Poll::Ready(ready) => Poll::Ready(ready.map_err(broken)),
        Poll::Pending => deadline.poll(context).map(|()| Err(UpstreamError::TimedOut)),
    })
    .await;
    if let Err(error) = ready {
        slot.retire();
        return Sent::Untouched(body, error);
    }
    let is_empty = body.is_empty();
    let (mut response, stream) = match slot.sender.send_request(Request::from_parts(head, ()), is_empty) {
        Ok(sent) => sent,
        // The connection has just ended.
        Err(error) if error.is_io() || error.is_go_away() => return Sent::Untouched(body, broken(error)),
        Err(error) => return Sent::Failed(broken(error)),
    };
    let mut request_body = if is_empty {
        RequestBodySender::Done
    } else {
        RequestBodySender::Sending(Box::new((body, stream, Pipe::to_upstream())))
    };
    let mut interim_count = 0;
    let received = poll_fn(|context| {
        request_body.poll(context);
        while let Poll::Ready(Some(Ok(interim))) = response.poll_informational(context) {
            interim_count += 1;
            if interim_count > MAX_INTERIM {
                return Poll::Ready(Err(UpstreamError::Broken(WireError::InvalidHttp("too many interim responses"))));
            }
            if let Some(client) = client {
                client.forward(interim);
            }
        }
        match Pin::new(&mut response).poll(context) {
            Poll::Ready(response) => Poll::Ready(response.map_err(broken)),
            Poll::Pending => response_timeout.poll(&deadline, context).map(|()| Err(UpstreamError::TimedOut)),
        }
    })
    .await;
    deadline.clear();
    match received {
        Ok(response) => {
            let (head, body) = response.into_parts();
            let body = Http2Body::new(body, &head.headers);
            let client = client.cloned();
            let stream = ResponseStream { body, request_body, deadline, response_timeout, client, _slot: slot };
            Sent::Response(Response::from_parts(head, Box::new(stream)))
        }
        Err(error) => {
            if matches!(error, UpstreamError::TimedOut) {
                slot.retire();
            }
            if is_empty && matches!(&error, UpstreamError::Broken(WireError::Http2(error)) if is_untouched(error)) {
                return Sent::Untouched(PacedUpload::empty(), error);
            }
            Sent::Failed(response_timeout.attribute(error))
        }
    }
}

/// Returns `true` if the upstream has not processed the request (RFC 9113, section 8.7): it refused the stream, or its
/// GOAWAY names a last stream before this one.
fn is_untouched(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}

impl ResponseStream {
    /// Returns the next frame.
    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        self.request_body.poll(context);
        let max = self.client.as_ref().map_or(usize::MAX, StreamHandle::read_size);
        let Some(frame) = ready!(self.body.poll_frame(max, context)) else { return Poll::Ready(None) };
        Poll::Ready(Some(frame.map(without_forbidden_trailers).map_err(WireError::Http2)))
    }

    /// Returns the deadline for the upstream's next frame.
    pub(super) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Ready when the upstream has sent nothing for too long. Time while the request's body moves, or the client is
    /// waited for, does not count.
    pub(super) fn poll_idle_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.response_timeout.poll(&self.deadline, context)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Removes the trailers that are not allowed.
fn without_forbidden_trailers(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => {
            let allowed = trailers.iter().filter(|(name, _)| is_trailer_allowed(name));
            Frame::trailers(allowed.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        Err(frame) => frame,
    }
}
