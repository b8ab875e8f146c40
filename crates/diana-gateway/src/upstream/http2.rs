//! Requests to an upstream over HTTP/2, each on a free stream of the [pool](pool).

mod pool;

pub(super) use pool::{Pool, Slot, Turn};

use super::response_timeout::ResponseTimeout;
use super::{UpstreamError, WireError};
use crate::connection::Deadline;
use crate::http2::{Http2Body, Piece, Pipe, PipeError, StreamHandle};
use crate::request::RequestBodyStream;
use crate::request::head::may_trail;
use bytes::Bytes;
use h2::{Reason, SendStream};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How many interim responses an upstream may send.
const MOST_INTERIM: usize = 16;

/// The result of sending a request.
pub(super) enum Sent {
    Answered(Response<Box<Answer>>),
    /// The upstream has not processed it; it can be sent to another one.
    Untouched(RequestBodyStream, UpstreamError),
    Failed(UpstreamError),
}

/// The body of a response. The rest of the request's body is sent meanwhile.
pub(super) struct Answer {
    body: Http2Body,
    asking: Asking,
    /// The deadline for the upstream's next frame.
    deadline: Deadline,
    max_wait: ResponseTimeout,
    /// The client's stream, if it uses HTTP/2.
    client: Option<StreamHandle>,
    _slot: Slot,
}

/// The request body being sent.
enum Asking {
    Sending(Box<(RequestBodyStream, SendStream<Piece>, Pipe)>),
    Done,
}

impl Asking {
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
    request: Request<RequestBodyStream>,
    deadline: Deadline,
    timeout: Duration,
    client: Option<&StreamHandle>,
) -> Sent {
    let (head, body) = request.into_parts();
    let mut max_wait = ResponseTimeout::new(&body, timeout);
    deadline.set(timeout);
    let broken = |error| UpstreamError::Broken(WireError::Http2(error));
    let ready = poll_fn(|context| match slot.sender.poll_ready(context) {
        Poll::Ready(ready) => Poll::Ready(ready.map_err(broken)),
        Poll::Pending => deadline.poll(context).map(|()| Err(UpstreamError::TimedOut)),
    })
    .await;
    if let Err(failure) = ready {
        slot.retire();
        return Sent::Untouched(body, failure);
    }
    let is_empty = body.is_empty();
    let (mut answer, stream) = match slot.sender.send_request(Request::from_parts(head, ()), is_empty) {
        Ok(sent) => sent,
        // The connection has just ended.
        Err(error) if error.is_io() || error.is_go_away() => return Sent::Untouched(body, broken(error)),
        Err(error) => return Sent::Failed(broken(error)),
    };
    let mut asking =
        if is_empty { Asking::Done } else { Asking::Sending(Box::new((body, stream, Pipe::to_upstream()))) };
    let mut news = 0;
    let answered = poll_fn(|context| {
        asking.poll(context);
        while let Poll::Ready(Some(Ok(response))) = answer.poll_informational(context) {
            news += 1;
            if news > MOST_INTERIM {
                return Poll::Ready(Err(UpstreamError::Broken(WireError::NoHttp("it says too often that it goes on"))));
            }
            if let Some(client) = client {
                client.forward(response);
            }
        }
        match Pin::new(&mut answer).poll(context) {
            Poll::Ready(answer) => Poll::Ready(answer.map_err(broken)),
            Poll::Pending => max_wait.poll(&deadline, context).map(|()| Err(UpstreamError::TimedOut)),
        }
    })
    .await;
    deadline.clear();
    match answered {
        Ok(response) => {
            let (head, body) = response.into_parts();
            let body = Http2Body::new(body, &head.headers);
            let client = client.cloned();
            let answer = Answer { body, asking, deadline, max_wait, client, _slot: slot };
            Sent::Answered(Response::from_parts(head, Box::new(answer)))
        }
        Err(failure) => {
            if matches!(failure, UpstreamError::TimedOut) {
                slot.retire();
            }
            if is_empty && matches!(&failure, UpstreamError::Broken(WireError::Http2(error)) if is_untouched(error)) {
                return Sent::Untouched(RequestBodyStream::empty(), failure);
            }
            Sent::Failed(max_wait.blame(failure))
        }
    }
}

/// Returns `true` if the upstream has not processed the request (RFC 9113, section 8.7): it refused the stream, or its
/// GOAWAY names a last stream before this one.
fn is_untouched(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}

impl Answer {
    /// Returns the next frame.
    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        self.asking.poll(context);
        let most = self.client.as_ref().map_or(usize::MAX, StreamHandle::read_size);
        let Some(frame) = ready!(self.body.poll_frame(most, context)) else { return Poll::Ready(None) };
        Poll::Ready(Some(frame.map(only_what_may_trail).map_err(WireError::Http2)))
    }

    /// Returns the deadline for the upstream's next frame.
    pub(super) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Ready when the upstream has sent nothing for too long. Time while the request's body moves, or the client is
    /// waited for, does not count.
    pub(super) fn poll_stillness(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.max_wait.poll(&self.deadline, context)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Removes the trailers that are not allowed.
fn only_what_may_trail(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => {
            let kept = trailers.iter().filter(|(name, _)| may_trail(name));
            Frame::trailers(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        Err(frame) => frame,
    }
}
