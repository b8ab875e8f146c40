//! One stream: waits for the response to its request, and sends it.

use crate::coarse_timer::Deadline;
use crate::connection::Connection;
use crate::date_header::with_date;
use crate::http2_codec::{Memory, Pipe, PipeError, ReadAhead, RequestMemory, SendChunk, StreamHandle};
use crate::recorded_body::LocalBody;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::Body;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    Served,
    /// The client cancelled its request.
    Reset,
}

/// The result of sending the head of a response.
pub(super) enum SentHead<B> {
    /// There is no body.
    Over(StreamEnd),
    /// The body is to be sent to this stream.
    Body(SendStream<SendChunk>, B),
}

/// The stream of one request.
pub(super) struct Stream {
    pub(super) connection: Arc<Connection>,
    pub(super) reply: SendResponse<SendChunk>,
    /// `None` until it is needed.
    pub(super) handle: Option<StreamHandle>,
    pub(super) ahead: ReadAhead,
    pub(super) method: Method,
    pub(super) memory: RequestMemory,
}

impl Stream {
    /// Waits for the response, and sends it.
    pub(super) async fn serve<B: Body<Data = Bytes> + Unpin>(
        mut self,
        mut response: impl Future<Output = Response<B>> + Unpin,
        memory: &Arc<Memory>,
    ) -> StreamEnd {
        let ready = poll_fn(|context| {
            let polled = Pin::new(&mut response).poll(context);
            let interim = self.handle.as_ref().map(|handle| handle.take_interim(context));
            for mut interim in interim.into_iter().flatten() {
                remove_hop_by_hop(interim.headers_mut());
                // This fails only if the client has disconnected, which is detected below.
                let _ = self.reply.send_informational(interim);
            }
            match polled {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending if !self.read_ahead(context) => {
                    self.reply.send_reset(Reason::ENHANCE_YOUR_CALM);
                    Poll::Ready(None)
                }
                Poll::Pending => self.reply.poll_reset(context).map(|_| None),
            }
        });
        let Some(ready) = ready.await else { return StreamEnd::Reset };
        drop(response);
        let (mut head, body) = ready.into_parts();
        remove_hop_by_hop(&mut head.headers);
        match self.send_head(Response::from_parts(head, body)) {
            SentHead::Over(end) => end,
            SentHead::Body(stream, body) => self.send_body(stream, body, memory).await,
        }
    }

    /// Reads the available part of the request's body. Returns `false` if there is no memory for its trailers.
    fn read_ahead(&mut self, context: &mut Context<'_>) -> bool {
        match self.ahead.poll(context) {
            Poll::Ready(trailers) => self.memory.admit_trailers(trailers),
            Poll::Pending => true,
        }
    }

    /// Sends the head of a response, which must have no hop-by-hop headers.
    pub(super) fn send_head<B: Body>(&mut self, response: Response<B>) -> SentHead<B> {
        let (mut head, body) = response.into_parts();
        let clock = &self.connection.worker.deadlines;
        head.headers.entry(DATE).or_insert_with(|| with_date(clock, HeaderValue::clone));
        let has_body = !body.is_end_stream();
        if has_body && let Some(length) = body.size_hint().exact() {
            head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
        }
        let is_over = !has_body || self.method == Method::HEAD;
        match self.reply.send_response(Response::from_parts(head, ()), is_over) {
            Ok(_) if is_over => SentHead::Over(StreamEnd::Served),
            Ok(stream) => SentHead::Body(stream, body),
            Err(_) => SentHead::Over(self.send_bad_gateway()),
        }
    }

    /// Sends a whole local body, if the client accepts all of it now and there is room in the queue. Otherwise nothing
    /// is sent, and it returns `None`.
    pub(super) fn try_send_body(
        &mut self,
        stream: &mut SendStream<SendChunk>,
        body: &mut LocalBody,
        memory: &Memory,
    ) -> Option<StreamEnd> {
        let length = usize::try_from(body.size_hint().exact()?).ok()?;
        stream.reserve_capacity(length);
        if stream.capacity() < length {
            return None;
        }
        let permit = memory.try_permit(length)?;
        let data = body.take()?;
        let chunk = memory.chunk(data).split_to(length, Some(permit));
        Some(stream.send_data(chunk, true).map_or(StreamEnd::Reset, |()| StreamEnd::Served))
    }

    /// Sends the body of a response, as fast as the client accepts it.
    pub(super) async fn send_body<B: Body<Data = Bytes> + Unpin>(
        &mut self,
        mut stream: SendStream<SendChunk>,
        mut body: B,
        memory: &Arc<Memory>,
    ) -> StreamEnd {
        let handle = self.handle.get_or_insert_with(StreamHandle::new).clone();
        let mut pipe = Pipe::to_client(Arc::clone(memory), handle);
        let mut stall = Stall::default();
        let sent = poll_fn(|context| {
            if !self.read_ahead(context) {
                stream.send_reset(Reason::ENHANCE_YOUR_CALM);
                return Poll::Ready(Err(PipeError::Reset));
            }
            match pipe.poll(&mut body, &mut stream, context) {
                Poll::Pending => stall.poll(pipe.stalled(), &self.connection, context).map(|()| {
                    stream.send_reset(Reason::CANCEL);
                    Ok(())
                }),
                sent @ Poll::Ready(_) => sent,
            }
        });
        match sent.await {
            Err(PipeError::Reset) => StreamEnd::Reset,
            // A body error is the upstream's fault.
            Ok(()) | Err(PipeError::Body(_)) => StreamEnd::Served,
        }
    }

    /// Sends a 502 if the response can't be sent. This fails if the client has reset the stream.
    fn send_bad_gateway(&mut self) -> StreamEnd {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        self.reply.send_response(response, true).map_or(StreamEnd::Reset, |_| StreamEnd::Served)
    }
}

/// Detects a client that grants no flow-control window for a response.
#[derive(Default)]
struct Stall {
    deadline: Option<Deadline>,
    sent: u64,
}

impl Stall {
    /// Is ready if no more than `sent` bytes have been sent for too long. `None` means that the client is not being
    /// waited for.
    fn poll(&mut self, sent: Option<u64>, connection: &Connection, context: &mut Context<'_>) -> Poll<()> {
        let Some(sent) = sent else {
            self.deadline = None;
            return Poll::Pending;
        };
        let has_progress = std::mem::replace(&mut self.sent, sent) != sent;
        if self.deadline.is_none() || has_progress {
            let deadline = self.deadline.get_or_insert_with(|| connection.worker.deadlines.add());
            deadline.set(connection.worker.settings.timeouts.body);
        }
        self.deadline.as_ref().map_or(Poll::Pending, |deadline| deadline.poll(context))
    }
}

/// Removes headers that HTTP/2 forbids (RFC 9113, section 8.2.2).
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
