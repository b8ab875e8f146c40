//! HTTP/1 with clients.
//!
//! # Why not hyper's server
//! It keeps an 8 KiB buffer and a large state machine for each connection, idle or not: 15 KB, where this one takes 2 KB. Here
//! an idle connection has no buffer at all: a head is parsed where it was read, in a buffer that all connections of a thread
//! share, and a response is written from another one, a denial from text that is cached.
//!
//! # What always holds (tests/it/gateway/ of diana-server; tests.rs compares with hyper)
//! - Requests are answered one by one, in their order. Where the end of a request is ambiguous, nothing after it is read.
//! - What hyper rejects is rejected, with the same status.
//! - Heads, chunk lines, trailers and buffered frames are bounded, and a body is read only as fast as it is forwarded.
//!
//! Its parts: [`request_head`] parses a head, [`body_decoder`](crate::http1_codec::body_decoder) a body; [`response_head`] and
//! [`body_writer`](crate::http1_codec::body_writer) write a response.

mod request_head;
mod response_head;
#[cfg(test)]
mod tests;

use crate::client_io::ClientIo;
use crate::connection::Connection;
use crate::handler::{self, Answer, DeniedRequest, Handler};
use crate::http1_codec::body_writer::{Framing, WriteBuffer};
use crate::http1_codec::{MAX_READ, MIN_READ};
use crate::recorded_body::RecordedBody;
use crate::request_body::{self, BodySender, ConnReuse, Demand, RequestBody};
use crate::{Rewind, read_shared};
use bytes::{BufMut, Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::Body;
use request_head::{HeadError, HeadReader, RequestHead};
use response_head::{RequestInfo, ResponseFraming};
use std::cell::Cell;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::oneshot;

/// The maximum number of requests of one connection that are served before other connections.
const MAX_REQUESTS_PER_POLL: usize = 16;

/// The reason why a connection ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Http1Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the client closed the connection during a request")]
    Disconnected,
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error("the response body was aborted")]
    ResponseBody,
}

/// The connection of a client after an upgrade, with the bytes that follow the head of the request.
pub type Upgraded = Rewind<ClientIo>;

/// The client's side of a requested upgrade, in the extensions of the head of a request that asks for one.
#[derive(Clone)]
pub struct OnUpgrade(Arc<parking_lot::Mutex<Option<oneshot::Receiver<Upgraded>>>>);

impl OnUpgrade {
    /// Returns the connection when the response has been sent; `None` if there is no upgrade.
    pub async fn upgraded(self) -> Option<Upgraded> {
        let receiver = self.0.lock().take()?;
        receiver.await.ok()
    }
}

impl std::fmt::Debug for OnUpgrade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnUpgrade")
    }
}

/// An HTTP/1 connection of a client.
pub(crate) struct ServerConnection<H: Handler> {
    handler: Arc<H>,
    io: ClientIo,
    connection: Arc<Connection>,
    /// Bytes that have been received but not consumed. Without memory while the connection is idle.
    input: BytesMut,
    head_reader: HeadReader,
    state: Exchange<H::Body>,
    /// The body of the current request, until all of it has been received.
    upload: Option<BodySender>,
    /// The number of bytes of an answered request that are still to be discarded.
    discard: Option<u64>,
    output: WriteBuffer,
    /// Whether no request is read after the current one.
    is_last: bool,
    /// Whether nothing more can be read: the client has sent invalid bytes, or has closed its side.
    is_read_closed: bool,
    end_detection: EndDetection,
    /// Gets the connection after an upgrade.
    upgrade: Option<oneshot::Sender<Upgraded>>,
}

/// The way in which the end of the client's stream is detected during a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndDetection {
    /// The code that drives the connection detects it.
    External,
    /// The connection reads while it waits for a response.
    ByReading,
}

enum Exchange<B> {
    /// A head comes next.
    Head,
    /// The response is awaited.
    Waiting(Pin<Box<dyn Future<Output = Response<RecordedBody<B>>> + Send>>, RequestInfo),
    /// The response is being sent; the rest of its body, unless all of it is in the buffer. Boxed, so that an idle connection
    /// is small; most bodies are in the buffer at once.
    Sending(Option<Box<(RecordedBody<B>, Framing)>>, RequestInfo),
    /// The response has been sent, and the rest of the request is being received.
    Draining,
    /// The last bytes are being sent.
    Closing,
}

/// Whether a body has advanced, so that the code that uses it can be polled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advanced {
    Yes,
    No,
}

thread_local! {
    /// The memory in which responses are written, while no connection of this thread uses it.
    static WRITE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<H: Handler> ServerConnection<H> {
    pub(crate) fn new(handler: Arc<H>, io: ClientIo, connection: Arc<Connection>, end_detection: EndDetection) -> Self {
        Self {
            handler,
            io,
            connection,
            input: BytesMut::new(),
            head_reader: HeadReader::default(),
            state: Exchange::Head,
            upload: None,
            discard: None,
            output: WriteBuffer::default(),
            is_last: false,
            is_read_closed: false,
            end_detection,
            upgrade: None,
        }
    }

    /// Reads no more requests, and ends after the current one.
    pub(crate) fn graceful_shutdown(mut self: Pin<&mut Self>) {
        self.is_last = true;
        // A head that has begun to arrive is served.
        if matches!(self.state, Exchange::Head) && self.input.is_empty() {
            self.state = Exchange::Closing;
        }
    }

    /// Passes the connection on, if its last response was an upgrade.
    pub(crate) fn finish(self) {
        // A connection that was given up may have a request for an upgrade, but no response to it.
        if let Some(upgrade) = self.upgrade
            && matches!(self.state, Exchange::Closing)
            && self.output.is_empty()
        {
            let _ = upgrade.send(Rewind::new(self.input.freeze(), self.io));
        }
    }

    fn poll_requests(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Http1Error>> {
        for _ in 0..MAX_REQUESTS_PER_POLL {
            if matches!(self.state, Exchange::Head) {
                match ready!(self.poll_head(context)) {
                    Ok(Some(head)) => self.begin(head, context)?,
                    Ok(None) => self.state = Exchange::Closing,
                    Err(Http1Error::Head(error)) => self.reject(error),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            if matches!(self.state, Exchange::Waiting(..)) {
                ready!(self.poll_response(context))?;
            }
            if matches!(self.state, Exchange::Sending(..)) {
                ready!(self.poll_send(context))?;
            }
            if matches!(self.state, Exchange::Draining) {
                ready!(self.poll_drain(context));
            }
            if matches!(self.state, Exchange::Closing) {
                ready!(self.poll_write(context))?;
                if self.upgrade.is_none() {
                    ready!(Pin::new(&mut self.io).poll_shutdown(context))?;
                }
                return Poll::Ready(Ok(()));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads the head of a request. Returns `None` if the client closes the connection between two requests.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<RequestHead>, Http1Error>> {
        let Self { io, connection, input, head_reader, .. } = self;
        let bounds = &connection.worker.settings.bounds;
        // Bytes that follow the last request.
        let mut head = head_reader.take(input, bounds)?;
        while head.is_none() {
            let is_end = read_shared(|read| {
                ready!(Pin::new(&mut *io).poll_read(context, read))?;
                head = head_reader.add(input, read.filled(), bounds)?;
                Poll::Ready(Ok::<_, Http1Error>(read.filled().is_empty()))
            });
            if ready!(is_end)? {
                // Empty lines may follow a request.
                let is_between_requests = input.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
                return Poll::Ready(if is_between_requests { Ok(None) } else { Err(Http1Error::Disconnected) });
            }
        }
        self.free_input();
        Poll::Ready(Ok(head))
    }

    /// Frees the memory of the input if it is empty.
    fn free_input(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
    }

    /// Starts to serve a request.
    fn begin(&mut self, head: RequestHead, context: &mut Context<'_>) -> Result<(), Http1Error> {
        let RequestHead { mut parts, decoder, keep_alive, expects_continue, has_upgrade, accepts_trailers } = head;
        self.is_last |= !keep_alive;
        let info = RequestInfo::new(&parts, !self.is_last, accepts_trailers);
        let body = if decoder.is_over() {
            RequestBody::empty()
        } else {
            let (sender, body) = request_body::channel(decoder, expects_continue);
            (self.upload, self.discard) = (Some(sender), None);
            RequestBody::from(body)
        };
        self.upgrade = None;
        if has_upgrade {
            let (sender, receiver) = oneshot::channel();
            self.upgrade = Some(sender);
            parts.extensions.insert(OnUpgrade(Arc::new(parking_lot::Mutex::new(Some(receiver)))));
        }
        match handler::serve(&self.handler, &self.connection, parts, body, |_| {}) {
            Answer::Denied(denied) => self.deny(denied, info, context),
            Answer::Ready(response) => self.respond(response, info, context),
            Answer::Later(response) => {
                self.state = Exchange::Waiting(response, info);
                Ok(())
            }
        }
    }

    /// Answers a request whose head can't be parsed. Nothing after it is read.
    fn reject(&mut self, error: HeadError) {
        tracing::debug!("a request of {} was rejected: {error}", self.connection.info.peer);
        self.input = BytesMut::new();
        let connection = Arc::clone(&self.connection);
        response_head::write_rejection(self.text(), error.status(), &connection.worker.deadlines);
        self.state = Exchange::Closing;
    }

    /// Returns the buffer for text, with memory that the connections of this thread share.
    fn text(&mut self) -> &mut Vec<u8> {
        if self.output.text.capacity() == 0 {
            self.output.text = WRITE.take();
        }
        &mut self.output.text
    }

    /// Returns what is known of a request when its response begins: it may have become the last one meanwhile.
    fn current(&self, info: RequestInfo) -> RequestInfo {
        RequestInfo { keep_alive: info.keep_alive && !self.is_last && !self.is_read_closed, ..info }
    }

    /// Answers a denied request. Its response is usually cached as text.
    fn deny(
        &mut self,
        mut denied: DeniedRequest,
        info: RequestInfo,
        context: &mut Context<'_>,
    ) -> Result<(), Http1Error> {
        let info = self.current(info);
        let keep_alive = info.keep_alive && denied.reuse == ConnReuse::KeepAlive;
        let mut text = std::mem::take(self.text());
        let start = text.len();
        text.extend_from_slice(info.version());
        let clock = &self.connection.worker.deadlines;
        let is_written = denied.write_http1(&mut text, |text| {
            response_head::write_connection(text, &info, keep_alive);
            response_head::write_date(text, clock);
        });
        if !is_written {
            text.truncate(start);
        }
        self.output.text = text;
        if is_written {
            self.is_last |= !keep_alive;
            self.upgrade = None;
            self.state = Exchange::Sending(None, info);
            return Ok(());
        }
        self.respond(denied.into_response().map(|body| body.map(H::Body::from)), info, context)
    }

    /// Waits for the response, and forwards the body of the request meanwhile.
    fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Http1Error>> {
        loop {
            let Exchange::Waiting(response, info) = &mut self.state else { return Poll::Ready(Ok(())) };
            let info = *info;
            if let Poll::Ready(response) = response.as_mut().poll(context) {
                return Poll::Ready(self.respond(response, info, context));
            }
            if self.poll_upload(context) == Advanced::No {
                // `100 Continue`, if it was not sent at once.
                let _ = self.poll_write(context)?;
                return self.poll_end(context);
            }
        }
    }

    /// Is ready with an error if the client has closed the connection. Bytes of a next request are kept.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Http1Error>> {
        let is_read_needed = self.end_detection == EndDetection::ByReading
            && self.upload.is_none()
            && self.input.is_empty()
            && !self.is_read_closed;
        if !is_read_needed {
            return Poll::Pending;
        }
        let length = read_shared(|read| {
            ready!(Pin::new(&mut self.io).poll_read(context, read))?;
            self.input.extend_from_slice(read.filled());
            Poll::Ready(io::Result::Ok(read.filled().len()))
        });
        match ready!(length)? {
            0 => Poll::Ready(Err(Http1Error::Disconnected)),
            _ => Poll::Pending,
        }
    }

    /// Starts to send a response.
    fn respond(
        &mut self,
        response: Response<RecordedBody<H::Body>>,
        info: RequestInfo,
        context: &mut Context<'_>,
    ) -> Result<(), Http1Error> {
        // If the rest of the request is not read, the response has `Connection: close`.
        if self.upload.as_ref().is_some_and(|upload| upload.demand(context) == Demand::Stop) {
            self.poll_upload(context);
        }
        let (head, body) = response.into_parts();
        let info = self.current(info);
        let mut text = std::mem::take(self.text());
        let clock = &self.connection.worker.deadlines;
        let ResponseFraming { body: framing, keep_alive } = response_head::write(&mut text, &head, &body, &info, clock);
        self.output.text = text;
        self.is_last |= !keep_alive;
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            self.upgrade = None;
        }
        // A response without a body is finished: dropping its body completes the request.
        let mut sending = framing.map(|framing| (body, framing));
        if let Some((body, framing)) = &mut sending
            && fill(body, framing, &mut self.output, &info, context)? == Filled::Complete
        {
            sending = None;
        }
        self.state = Exchange::Sending(sending.map(Box::new), info);
        Ok(())
    }

    /// Sends the body of a response, and the rest of the request to its receiver.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Http1Error>> {
        loop {
            let Self { state: Exchange::Sending(sending, info), output, .. } = self else {
                return Poll::Ready(Ok(()));
            };
            let filled = match sending.as_deref_mut() {
                Some((body, framing)) => fill(body, framing, output, info, context)?,
                None => Filled::Complete,
            };
            if filled == Filled::Complete {
                *sending = None;
            }
            ready!(self.poll_write(context))?;
            if filled == Filled::Complete {
                self.state = Exchange::Draining;
                self.output.trim();
                WRITE.set(std::mem::take(&mut self.output.text));
                return Poll::Ready(Ok(()));
            }
            if filled == Filled::MoreLater && self.poll_upload(context) == Advanced::No {
                return self.poll_end(context);
            }
        }
    }

    /// Writes the buffered bytes.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.output.poll_write(&mut self.io, context, |_| ()))?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    /// Receives the rest of the request, and then waits for the next one, or closes the connection.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.upload.is_some() {
            while self.poll_upload(context) == Advanced::Yes {}
            if self.upload.is_some() {
                return Poll::Pending;
            }
            if self.input.is_empty() {
                self.connection.timeouts.drained();
            }
        }
        self.state = if self.is_last || self.is_read_closed { Exchange::Closing } else { Exchange::Head };
        Poll::Ready(())
    }

    /// Reads the body of the request as far as its receiver demands.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Advanced {
        loop {
            let Some(upload) = &mut self.upload else { return Advanced::No };
            match upload.demand(context) {
                Demand::Nothing => return Advanced::No,
                Demand::Frame => {
                    if std::mem::take(&mut upload.expects_continue) && matches!(self.state, Exchange::Waiting(..)) {
                        self.text().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                }
                Demand::Discard(max) => {
                    self.discard.get_or_insert(max);
                }
                // Only bytes that have already arrived are read.
                Demand::Stop => {
                    self.discard.get_or_insert(0);
                }
            }
            match self.poll_upload_frame(context) {
                Poll::Ready(advanced) => {
                    if advanced == Advanced::Yes {
                        return Advanced::Yes;
                    }
                }
                Poll::Pending => return Advanced::No,
            }
        }
    }

    /// Reads one frame of the request's body, and passes it on or discards it.
    fn poll_upload_frame(&mut self, context: &mut Context<'_>) -> Poll<Advanced> {
        let Some(upload) = &mut self.upload else { return Poll::Ready(Advanced::Yes) };
        match upload.decoder.take(&mut self.input) {
            Ok(Some(frame)) => {
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                match &mut self.discard {
                    None => upload.send(frame, context),
                    Some(remaining) => match remaining.checked_sub(length) {
                        Some(rest) => *remaining = rest,
                        None if upload.decoder.is_over() => {}
                        None => return Poll::Ready(self.stop_reading(context)),
                    },
                }
                if self.upload.as_ref().is_some_and(|upload| upload.decoder.is_over()) {
                    self.end_upload();
                }
                Poll::Ready(Advanced::Yes)
            }
            Ok(None) if upload.decoder.is_over() => {
                upload.end(context);
                self.end_upload();
                Poll::Ready(Advanced::Yes)
            }
            Ok(None) => {
                let max = upload.decoder.expects().clamp(MIN_READ, upload.read_size);
                // A long body is read into memory of its own, which its frames share.
                if max > MIN_READ && self.input.is_empty() && !self.input.try_reclaim(max) {
                    // `reserve` would add this to the size of the memory, if no frame uses that any more.
                    self.input = BytesMut::with_capacity(max);
                } else if self.input.capacity() - self.input.len() < max.min(MIN_READ / 2) || max > MIN_READ {
                    self.input.reserve(max);
                }
                match pin!(self.io.read_buf(&mut (&mut self.input).limit(max))).poll(context) {
                    Poll::Ready(Ok(read @ 1..)) => {
                        // A client that announces a long body, but does not send it, gets no more memory.
                        if read >= upload.read_size {
                            upload.read_size = (upload.read_size * 4).min(MAX_READ);
                        }
                        Poll::Ready(Advanced::No)
                    }
                    Poll::Pending if self.discard != Some(0) => Poll::Pending,
                    Poll::Ready(Ok(0) | Err(_)) | Poll::Pending => Poll::Ready(self.stop_reading(context)),
                }
            }
            Err(_) => Poll::Ready(self.stop_reading(context)),
        }
    }

    fn end_upload(&mut self) {
        self.upload = None;
        self.discard = None;
        self.free_input();
    }

    /// Reads nothing more: the rest of the body is invalid or unwanted, or the client has closed its side.
    fn stop_reading(&mut self, context: &Context<'_>) -> Advanced {
        if let Some(upload) = self.upload.take() {
            upload.abort(context);
        }
        self.discard = None;
        self.input = BytesMut::new();
        self.is_read_closed = true;
        Advanced::Yes
    }
}

/// How far the body of a response has been taken into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    Complete,
    /// The buffer is full.
    Full,
    MoreLater,
}

/// Takes the available frames of a response's body while the buffer is small.
fn fill<B: Body<Data = Bytes> + Unpin>(
    body: &mut B,
    framing: &mut Framing,
    output: &mut WriteBuffer,
    info: &RequestInfo,
    context: &mut Context<'_>,
) -> Result<Filled, Http1Error> {
    // The client sees that a response is incomplete by the end of the connection.
    let aborted = |_| Http1Error::ResponseBody;
    while output.has_room() {
        let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) else { return Ok(Filled::MoreLater) };
        match frame.transpose().map_err(|_| Http1Error::ResponseBody)?.map(http_body::Frame::into_data) {
            Some(Ok(data)) => {
                output.push(framing, data).map_err(aborted)?;
                // With a known length, the end needs no further poll.
                if *framing == Framing::Length(0) && body.is_end_stream() {
                    return Ok(Filled::Complete);
                }
            }
            Some(Err(frame)) => {
                // Without trailers, the end follows.
                if let Some(trailers) = frame.trailers_ref().filter(|_| info.accepts_trailers) {
                    framing.end_with(&mut output.text, trailers).map_err(aborted)?;
                    return Ok(Filled::Complete);
                }
            }
            None => {
                framing.end(&mut output.text).map_err(aborted)?;
                return Ok(Filled::Complete);
            }
        }
    }
    Ok(Filled::Full)
}

impl<H: Handler> Future for ServerConnection<H> {
    type Output = Result<(), Http1Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_requests(context)
    }
}
