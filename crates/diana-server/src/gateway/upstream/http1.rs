//! An HTTP/1 connection to an upstream. Whoever has it drives it: nothing moves unless it is polled.
//!
//! # Why there is one of our own
//! hyper's client is made for many users of one connection: a channel before it, a task behind it, a map of headers that is built
//! to be written once. Here one request at a time has the connection, so a head is written as it is read, and the answer is read
//! by whoever waits for it. That took a third off the instructions of a forwarded request.
//!
//! # What always holds
//! - What is no HTTP/1 ends the connection, and never the next request's answer: of an answer whose end is in doubt, nothing
//!   is used again.
//! - Heads, trailers and chunk sizes are bounded; a body is read only as fast as the client takes it.

mod chunked;
mod decode;
mod encode;

use super::connector::UpstreamIo;
use super::response_timeout::ResponseTimeout;
use super::{UpstreamError, WireError};
use crate::gateway::client_io::Rewind;
use crate::gateway::deadlines::Deadline;
use crate::gateway::head::UpstreamRequest;
use crate::gateway::http2::{SHARE, StreamHandle};
use crate::gateway::request_body::RequestBodyStream;
use bytes::{BufMut, Bytes, BytesMut};
use decode::{BodyDecoder, ResponseHead};
use encode::RequestWriter;
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::task::unconstrained;

/// How much is read at once: of a head, and of a body of which more is to come. (For HTTP/2 clients, who may ask for a hundred at
/// once, their stream says how much.)
const HEAD: usize = 4 << 10;
const BODY: usize = 64 << 10;
const _: () = assert!(HEAD <= SHARE);

/// An HTTP/1 connection to an upstream.
pub(in crate::gateway) struct Http1 {
    io: UpstreamIo,
    /// What has come, and has not been used yet.
    input: BytesMut,
    /// The request that goes out, or has gone.
    asking: RequestWriter,
    /// What is still to come of the answer.
    rest: BodyDecoder,
    state: State,
    /// Whether the one who has it has looked for an answer in vain, and is woken when there is more to read.
    is_watched: bool,
    /// By when the upstream must have said something, and how long it has each time.
    deadline: Deadline,
    timeout: Duration,
    /// How many bytes it had taken when it was last looked.
    seen: u64,
    /// The stream of the client, if that speaks HTTP/2.
    client: Option<StreamHandle>,
    /// When it was last used, on the worker's clock.
    pub(super) used: u64,
}

/// Whether a connection can be used again when the answer is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The answer is the last.
    Last,
    Closed,
}

/// What became of a request that was sent.
pub(super) enum Sent {
    ResponseClass(Response<()>),
    /// Not one byte of it went out; its body can go elsewhere.
    Untouched(RequestBodyStream, UpstreamError),
    Failed(UpstreamError),
}

impl Http1 {
    pub(super) fn new(io: UpstreamIo, deadline: Deadline) -> Self {
        Self {
            io,
            input: BytesMut::new(),
            asking: RequestWriter::default(),
            rest: BodyDecoder::Nothing,
            state: State::Open,
            is_watched: false,
            deadline,
            timeout: Duration::ZERO,
            seen: 0,
            client: None,
            used: 0,
        }
    }

    /// Whether it takes a request now: it is open, and the upstream has not said anything, its goodbye for one.
    pub(super) fn is_free(&mut self, context: &mut Context<'_>) -> bool {
        if self.state != State::Open || !self.input.is_empty() {
            return false;
        }
        self.input.reserve(1);
        // It must really be looked, however much the task has done already.
        self.is_watched = pin!(unconstrained(self.io.read_buf(&mut self.input))).poll(context).is_pending();
        // The runtime knows only what it has been told by the system so far. An upstream may have sent something since (a surplus
        // answer, which would be the next client's), so the socket itself is asked.
        self.is_watched && !self.io.has_unread()
    }

    /// Whether it still sends a request. An upstream may answer before it has all of it.
    pub(super) fn is_sending(&self) -> bool {
        self.asking.is_under_way()
    }

    /// By when the upstream must have said something.
    pub(super) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Sends a request, and waits for the head of the answer.
    pub(super) async fn send(
        &mut self,
        request: UpstreamRequest<'_>,
        own: &[u8],
        body: RequestBodyStream,
        timeout: Duration,
    ) -> Sent {
        let mut max_wait = ResponseTimeout::new(&body, timeout);
        self.asking.begin(request, own, body);
        self.timeout = timeout;
        self.client = request.head.extensions.get::<StreamHandle>().cloned();
        self.deadline.set(timeout);
        let mut news = 0;
        let sent = poll_fn(|context| {
            // An upstream that has had enough of a body may have said why: so the answer is asked for all the same.
            let broken = match self.asking.poll(&mut self.io, context) {
                Poll::Ready(Err(fault)) => Some(fault),
                Poll::Ready(Ok(())) | Poll::Pending => None,
            };
            // It has just been seen that nothing had come, and nobody answers what he has not read yet.
            let is_too_early = std::mem::take(&mut self.is_watched) && broken.is_none();
            let head = if is_too_early { Poll::Pending } else { self.poll_head(request, &mut news, context) };
            match (head, broken) {
                (Poll::Ready(Ok(head)), None) => Poll::Ready(Ok(head)),
                // What has gone out is no whole request: nothing can follow it.
                (Poll::Ready(Ok(head)), Some(_)) => {
                    self.end_after_this();
                    Poll::Ready(Ok(head))
                }
                (Poll::Ready(Err(_)) | Poll::Pending, Some(fault)) | (Poll::Ready(Err(fault)), None) => {
                    Poll::Ready(Err(UpstreamError::Broken(fault)))
                }
                (Poll::Pending, None) => max_wait.poll(&self.deadline, context).map(|()| Err(UpstreamError::TimedOut)),
            }
        })
        .await;
        self.deadline.clear();
        match sent {
            Ok(head) => Sent::ResponseClass(self.begin_answer(head)),
            Err(failure) => {
                self.state = State::Closed;
                let failure = max_wait.blame(failure);
                if self.asking.is_untouched() {
                    Sent::Untouched(self.asking.take_back(), failure)
                } else {
                    Sent::Failed(failure)
                }
            }
        }
    }

    /// Uses it no more after the answer that comes.
    fn end_after_this(&mut self) {
        self.state = State::Last;
        self.asking.give_up();
    }

    fn begin_answer(&mut self, head: ResponseHead) -> Response<()> {
        self.rest = head.rest;
        if head.is_last && self.state == State::Open {
            self.state = State::Last;
        }
        head.response
    }

    /// Reads until there is a whole head that is no mere news on the way.
    fn poll_head(
        &mut self,
        request: UpstreamRequest<'_>,
        news: &mut usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, WireError>> {
        loop {
            if !self.input.is_empty()
                && let Some(head) = decode::read(&mut self.input, &request.head.method)?
            {
                let is_news = head.response.status().is_informational();
                if !is_news || head.response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    return Poll::Ready(Ok(head));
                }
                *news += 1;
                if *news > decode::MOST_NEWS {
                    return Poll::Ready(Err(WireError::NoHttp("it says too often that it goes on")));
                }
                if let Some(client) = &self.client {
                    client.forward(head.response);
                }
                continue;
            }
            ready!(self.poll_read(context, HEAD))?;
        }
    }

    /// Reads so much at most; its end is a fault.
    fn poll_read(&mut self, context: &mut Context<'_>, most: usize) -> Poll<Result<(), WireError>> {
        if self.input.capacity() - self.input.len() < most.min(HEAD / 2) || most > HEAD {
            self.input.reserve(most.max(HEAD));
        }
        match ready!(pin!(self.io.read_buf(&mut (&mut self.input).limit(most))).poll(context)) {
            Ok(0) => Poll::Ready(Err(WireError::Closed)),
            Ok(_) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(WireError::Io(error))),
        }
    }

    /// The next piece of the answer's body.
    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        if self.is_sending() && matches!(self.asking.poll(&mut self.io, context), Poll::Ready(Err(_))) {
            // The answer may be whole all the same.
            self.end_after_this();
        }
        loop {
            match self.rest.take(&mut self.input) {
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(None) if self.rest.is_over() => return Poll::Ready(None),
                Ok(None) => {}
                Err(fault) => return Poll::Ready(Some(Err(self.fail(fault)))),
            }
            let most = self.client.as_ref().map_or(BODY, StreamHandle::read_size);
            match ready!(self.poll_read(context, self.rest.expects().clamp(HEAD, most))) {
                Ok(()) => {}
                Err(WireError::Closed) if self.rest.ends_with_connection() => {
                    self.rest = BodyDecoder::Nothing;
                    self.state = State::Closed;
                    return Poll::Ready(None);
                }
                Err(fault) => return Poll::Ready(Some(Err(self.fail(fault)))),
            }
        }
    }

    fn fail(&mut self, fault: WireError) -> WireError {
        self.state = State::Closed;
        fault
    }

    /// Whether all of the answer has been handed out.
    pub(super) fn is_over(&self) -> bool {
        self.rest.is_over()
    }

    /// How long the rest of the answer is.
    pub(super) fn size_hint(&self) -> SizeHint {
        self.rest.size_hint()
    }

    /// Whether it can be used again, now that the answer is over.
    pub(super) fn is_reusable(&mut self) -> bool {
        // What a long body was read into is not kept for the next, short one.
        if self.input.capacity() > 2 * HEAD {
            self.input = BytesMut::from(&self.input[..]);
        }
        self.asking.trim();
        self.client = None;
        self.state == State::Open && self.input.is_empty()
    }

    /// Whether nothing of an answer has come.
    pub(super) fn is_silent(&self) -> bool {
        self.input.is_empty()
    }

    /// Ready when the upstream has been still for too long: it neither sends anything nor takes what there is for it. As long
    /// as it is the client that is waited for, who has a time of its own, it may be.
    pub(super) fn poll_stillness(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.deadline.is_set() {
            self.deadline.set(self.timeout);
        }
        ready!(self.deadline.poll(context));
        let written = self.asking.written();
        let has_moved = std::mem::replace(&mut self.seen, written) != written;
        if has_moved || (self.is_sending() && !self.asking.is_blocked()) {
            self.deadline.set(self.timeout);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Drives it until the request that it sends has gone out; the connection, if all went well.
    pub(super) async fn sent(mut self: Box<Self>) -> Option<Box<Self>> {
        self.deadline.clear();
        let is_sent = poll_fn(|context| match self.asking.poll(&mut self.io, context) {
            Poll::Ready(sent) => Poll::Ready(sent.is_ok()),
            Poll::Pending => self.poll_stillness(context).map(|()| false),
        })
        .await;
        is_sent.then_some(self)
    }

    /// What it is made of, now that it has become something else (an upgrade).
    pub(in crate::gateway) fn into_io(self) -> Rewind<UpstreamIo> {
        Rewind::new(self.input.freeze(), self.io)
    }
}

#[cfg(test)]
mod tests;
