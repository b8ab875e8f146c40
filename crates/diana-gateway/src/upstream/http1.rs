//! An HTTP/1 connection to an upstream. Its owner drives it: nothing is sent or received unless it is polled.
//!
//! # Why not hyper's client
//! hyper's client supports many users of one connection: it has a channel, a task, and a header map that is built to be
//! written once. Here one request at a time owns the connection, so the head is encoded directly from the client's
//! headers, and the task that waits for the response reads it. That saved a third of the instructions of a forwarded
//! request.
//!
//! # What always holds
//! - Invalid HTTP/1 closes the connection, and never becomes the next request's response: a connection is not reused if
//!   the end of a response is ambiguous.
//! - Heads, trailers and chunk sizes are bounded; a body is read only as fast as the client reads it.

mod decode;
mod encode;

use super::connector::UpstreamIo;
use super::response_timeout::ResponseTimeout;
use super::{UpstreamError, WireError};
use crate::head::UpstreamRequest;
use crate::paced_upload::PacedUpload;
use bytes::{BufMut, Bytes, BytesMut};
use decode::ResponseHead;
pub(super) use decode::{MAX_INTERIM, read as read_head};
use diana_net::Rewind;
use diana_net::coarse_timer::Deadline;
use diana_net::http1_codec::body_decoder::BodyDecoder;
use diana_net::http2_codec::{MIN_READ, StreamHandle};
use encode::RequestWriter;
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::task::unconstrained;

/// The number of bytes read at once: of a head, and of a body with more to come. (For an HTTP/2 client, which may send a
/// hundred requests at once, its stream sets the read size.)
const HEAD: usize = 4 << 10;
const BODY: usize = 64 << 10;
const _: () = assert!(HEAD <= MIN_READ);

/// An HTTP/1 connection to an upstream.
pub(crate) struct UpstreamConnection {
    io: UpstreamIo,
    /// Bytes that have been received but not consumed.
    input: BytesMut,
    /// The request being sent, or the last one.
    writer: RequestWriter,
    /// Decodes the rest of the response.
    decoder: BodyDecoder,
    state: ReuseState,
    /// Whether the last read returned `Pending`, so that the owner is woken when there is more to read.
    is_watched: bool,
    /// The deadline for the upstream's next bytes, and the timeout that it is set to each time.
    deadline: Deadline,
    timeout: Duration,
    /// The number of bytes written as of the last check.
    last_written: u64,
    /// The client's stream, if it uses HTTP/2.
    client: Option<StreamHandle>,
    /// The time of the connection's last use, on the worker's clock.
    pub(super) last_used: u64,
}

/// Whether a connection can be reused after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReuseState {
    Open,
    /// The connection ends after this response.
    Last,
    Closed,
}

/// The result of sending a request.
pub(super) enum Sent {
    Response(Response<()>),
    /// No byte of it was sent; its body can be sent to another upstream.
    Untouched(PacedUpload, UpstreamError),
    Failed(UpstreamError),
}

impl UpstreamConnection {
    pub(super) fn new(io: UpstreamIo, deadline: Deadline) -> Self {
        Self {
            io,
            input: BytesMut::new(),
            writer: RequestWriter::default(),
            decoder: BodyDecoder::Nothing,
            state: ReuseState::Open,
            is_watched: false,
            deadline,
            timeout: Duration::ZERO,
            last_written: 0,
            client: None,
            last_used: 0,
        }
    }

    /// Returns `true` if the connection can take a request: it is open, and the upstream has sent nothing, nor closed
    /// it.
    pub(super) fn is_idle(&mut self, context: &mut Context<'_>) -> bool {
        if self.state != ReuseState::Open || !self.input.is_empty() {
            return false;
        }
        self.input.reserve(1);
        // `unconstrained`: the read must happen even if the task's cooperative budget is used up.
        self.is_watched = pin!(unconstrained(self.io.read_buf(&mut self.input))).poll(context).is_pending();
        // The runtime knows only the events that it has polled so far. The upstream may have sent something since (a
        // surplus response, which the next client would get), so the socket itself is checked.
        self.is_watched && !self.io.has_unread()
    }

    /// Returns `true` if a request is still being sent. An upstream may respond before it has all of it.
    pub(super) fn is_sending(&self) -> bool {
        self.writer.is_sending()
    }

    /// Returns the deadline for the upstream's next bytes.
    pub(super) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Sends a request, and waits for the head of the response.
    pub(super) async fn send(
        &mut self,
        request: UpstreamRequest<'_>,
        upstream_host: &[u8],
        body: PacedUpload,
        timeout: Duration,
    ) -> Sent {
        let mut response_timeout = ResponseTimeout::new(&body, timeout);
        self.writer.begin(request, upstream_host, body);
        self.timeout = timeout;
        self.client = request.head.extensions.get::<StreamHandle>().cloned();
        self.deadline.set(timeout);
        let mut interim = 0;
        let sent = poll_fn(|context| {
            // An upstream that stops reading a body may have responded with the reason, so the response is still read.
            let broken = match self.writer.poll(&mut self.io, context) {
                Poll::Ready(Err(error)) => Some(error),
                Poll::Ready(Ok(())) | Poll::Pending => None,
            };
            // The last read found nothing, and an upstream can't respond to a request that it has not read.
            let is_too_early = std::mem::take(&mut self.is_watched) && broken.is_none();
            let head = if is_too_early { Poll::Pending } else { self.poll_head(request, &mut interim, context) };
            match (head, broken) {
                (Poll::Ready(Ok(head)), None) => Poll::Ready(Ok(head)),
                // The request was sent incompletely, so no other request can follow.
                (Poll::Ready(Ok(head)), Some(_)) => {
                    self.close_after_response();
                    Poll::Ready(Ok(head))
                }
                (Poll::Ready(Err(_)) | Poll::Pending, Some(error)) | (Poll::Ready(Err(error)), None) => {
                    Poll::Ready(Err(UpstreamError::Broken(error)))
                }
                (Poll::Pending, None) => {
                    response_timeout.poll(&self.deadline, context).map(|()| Err(UpstreamError::TimedOut))
                }
            }
        })
        .await;
        self.deadline.clear();
        match sent {
            Ok(head) => Sent::Response(self.begin_response(head)),
            Err(error) => {
                self.state = ReuseState::Closed;
                let error = response_timeout.attribute(error);
                if self.writer.is_untouched() {
                    Sent::Untouched(self.writer.take_body(), error)
                } else {
                    Sent::Failed(error)
                }
            }
        }
    }

    /// Closes the connection after the current response.
    fn close_after_response(&mut self) {
        self.state = ReuseState::Last;
        self.writer.abort();
    }

    fn begin_response(&mut self, head: ResponseHead) -> Response<()> {
        self.decoder = head.decoder;
        if head.is_last && self.state == ReuseState::Open {
            self.state = ReuseState::Last;
        }
        head.response
    }

    /// Reads until there is a complete head that is not an interim response.
    fn poll_head(
        &mut self,
        request: UpstreamRequest<'_>,
        interim: &mut usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, WireError>> {
        loop {
            if !self.input.is_empty()
                && let Some(head) = decode::read(&mut self.input, &request.head.method)?
            {
                let is_interim = head.response.status().is_informational();
                if !is_interim || head.response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    return Poll::Ready(Ok(head));
                }
                *interim += 1;
                if *interim > MAX_INTERIM {
                    return Poll::Ready(Err(WireError::InvalidHttp("too many interim responses")));
                }
                if let Some(client) = &self.client {
                    client.forward(head.response);
                }
                continue;
            }
            ready!(self.poll_read(context, HEAD))?;
        }
    }

    /// Reads at most `max` bytes. The end of the stream is an error.
    fn poll_read(&mut self, context: &mut Context<'_>, max: usize) -> Poll<Result<(), WireError>> {
        if self.input.capacity() - self.input.len() < max.min(HEAD / 2) || max > HEAD {
            self.input.reserve(max.max(HEAD));
        }
        match ready!(pin!(self.io.read_buf(&mut (&mut self.input).limit(max))).poll(context)) {
            Ok(0) => Poll::Ready(Err(WireError::Closed)),
            Ok(_) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(WireError::Io(error))),
        }
    }

    /// Returns the next frame of the response body.
    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        if self.is_sending() && matches!(self.writer.poll(&mut self.io, context), Poll::Ready(Err(_))) {
            // The response may still be complete.
            self.close_after_response();
        }
        loop {
            match self.decoder.take(&mut self.input) {
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(None) if self.decoder.is_over() => return Poll::Ready(None),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(self.fail(error.into())))),
            }
            let max = self.client.as_ref().map_or(BODY, StreamHandle::read_size);
            match ready!(self.poll_read(context, self.decoder.expects().clamp(HEAD, max))) {
                Ok(()) => {}
                Err(WireError::Closed) if self.decoder.ends_with_connection() => {
                    self.decoder = BodyDecoder::Nothing;
                    self.state = ReuseState::Closed;
                    return Poll::Ready(None);
                }
                Err(error) => return Poll::Ready(Some(Err(self.fail(error)))),
            }
        }
    }

    fn fail(&mut self, error: WireError) -> WireError {
        self.state = ReuseState::Closed;
        error
    }

    /// Returns `true` if the whole response has been returned.
    pub(super) fn is_over(&self) -> bool {
        self.decoder.is_over()
    }

    /// Returns the length of the rest of the response.
    pub(super) fn size_hint(&self) -> SizeHint {
        self.decoder.size_hint()
    }

    /// Returns `true` if the connection can be reused, now that the response has ended.
    pub(super) fn is_reusable(&mut self) -> bool {
        // The large buffer of a long body is not kept for the next response.
        if self.input.capacity() > 2 * HEAD {
            self.input = BytesMut::from(&self.input[..]);
        }
        self.writer.trim();
        self.client = None;
        self.state == ReuseState::Open && self.input.is_empty()
    }

    /// Returns `true` if no byte of a response has been received.
    pub(super) fn is_silent(&self) -> bool {
        self.input.is_empty()
    }

    /// Ready when the upstream has been idle for too long: it neither sends nor accepts data. Time spent waiting for
    /// the client, which has its own timeout, does not count.
    pub(super) fn poll_idle_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.deadline.is_set() {
            self.deadline.set(self.timeout);
        }
        ready!(self.deadline.poll(context));
        let written = self.writer.written();
        let has_progress = std::mem::replace(&mut self.last_written, written) != written;
        if has_progress || (self.is_sending() && !self.writer.is_blocked()) {
            self.deadline.set(self.timeout);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Drives the connection until its request has been sent. Returns the connection on success.
    pub(super) async fn sent(mut self: Box<Self>) -> Option<Box<Self>> {
        self.deadline.clear();
        let is_sent = poll_fn(|context| match self.writer.poll(&mut self.io, context) {
            Poll::Ready(sent) => Poll::Ready(sent.is_ok()),
            Poll::Pending => self.poll_idle_timeout(context).map(|()| false),
        })
        .await;
        is_sent.then_some(self)
    }

    /// Returns the transport, after an upgrade.
    pub(crate) fn into_io(self) -> Rewind<UpstreamIo> {
        Rewind::new(self.input.freeze(), self.io)
    }
}

#[cfg(test)]
mod tests;
