//! HTTP/2 with clients: h2 reads and writes the frames, and each stream has its own task.
//!
//! A request that is denied at once has no task. It is answered after all other requests that arrived with it have been
//! accepted, since h2 writes what is queued whenever it is asked for the next request: so the responses to a batch of
//! denied requests are one write.
//!
//! # Why not hyper's server
//! It can't send interim responses (103 Early Hints), refuse a stream before any work is done for it, or report how
//! much memory a connection uses. All three need access to the stream.
//!
//! # What always holds
//! - A connection uses no more memory than [`Memory`] allows; a stream that would exceed it is refused before the rules
//!   see it.
//! - A stream whose client accepts no data for `timeouts.body` is reset; the other streams continue.
//! - A connection is closed (`GOAWAY`) if it resets more than [`MAX_RESETS`] requests in addition to the number that
//!   it let finish: each reset request was wasted work.

mod stream;

use crate::client_io::ClientIo;
use crate::connection::Connection;
use crate::handler::{self, Answer, DeniedRequest, Handler};
use crate::http2_codec::{
    HasBody, Http2RequestBody, Memory, RECEIVE_WINDOW, ReadAhead, SEND_QUEUE, SendChunk, StreamHandle, compact,
    head_size,
};
use crate::request_body::RequestBody;
use diana_metrics::Outcome;
use h2::server::{Builder, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use stream::{SentHead, Stream, StreamEnd, remove_hop_by_hop};

/// The number of requests that a connection may reset beyond those that finish. A browser that leaves a page resets all its
/// requests.
const MAX_RESETS: u32 = 100;

/// An HTTP/2 connection of a client.
pub(crate) struct Http2<H> {
    handler: Arc<H>,
    state: ConnectionState,
    connection: Arc<Connection>,
    streams: Arc<Streams>,
    shutdown: ShutdownMode,
}

enum ConnectionState {
    Handshake(Handshake<ClientIo, SendChunk>),
    Serving(h2::server::Connection<ClientIo, SendChunk>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownMode {
    No,
    /// The connection ends after the requests in flight.
    Graceful,
    /// The client has reset too many requests.
    Abrupt,
}

/// The state that the streams of a connection share.
struct Streams {
    memory: Arc<Memory>,
    reset: AtomicU32,
    served: AtomicU32,
    /// The connection's task.
    waker: Mutex<Option<Waker>>,
}

impl<H: Handler> Http2<H> {
    pub(crate) fn new(handler: Arc<H>, io: ClientIo, connection: Arc<Connection>) -> Self {
        let bounds = &connection.worker.settings.bounds;
        let mut builder = Builder::new();
        builder
            .initial_window_size(RECEIVE_WINDOW)
            .initial_connection_window_size(RECEIVE_WINDOW)
            .max_concurrent_streams(bounds.streams)
            .max_header_list_size(u32::try_from(bounds.header).unwrap_or(u32::MAX))
            .max_send_buffer_size(SEND_QUEUE as usize);
        let streams = Streams {
            memory: Arc::new(Memory::new(Arc::clone(&connection.worker.memory))),
            reset: AtomicU32::new(0),
            served: AtomicU32::new(0),
            waker: Mutex::default(),
        };
        let state = ConnectionState::Handshake(builder.handshake(io));
        Self { handler, state, connection, streams: Arc::new(streams), shutdown: ShutdownMode::No }
    }

    /// Accepts no more requests, and ends after those in flight.
    pub(crate) fn graceful_shutdown(mut self: Pin<&mut Self>) {
        if self.shutdown == ShutdownMode::No {
            self.shutdown = ShutdownMode::Graceful;
            if let ConnectionState::Serving(serving) = &mut self.state {
                serving.graceful_shutdown();
            }
        }
    }
}

impl<H: Handler> Future for Http2<H> {
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { handler, state, connection, streams, shutdown } = &mut *self;
        // h2 bounds their number: `bounds.streams`.
        let mut denied = Vec::new();
        loop {
            match state {
                ConnectionState::Handshake(handshake) => {
                    let mut serving = ready!(Pin::new(handshake).poll(context))?;
                    if *shutdown == ShutdownMode::Graceful {
                        serving.graceful_shutdown();
                    }
                    *state = ConnectionState::Serving(serving);
                }
                ConnectionState::Serving(serving) => {
                    if *shutdown != ShutdownMode::Abrupt && streams.poll_resets(context) {
                        tracing::debug!(
                            "closing an HTTP/2 connection of {}: it resets too many requests",
                            connection.info.peer
                        );
                        *shutdown = ShutdownMode::Abrupt;
                        serving.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    }
                    match serving.poll_accept(context) {
                        Poll::Ready(Some(Ok((request, reply)))) => {
                            denied.extend(streams.begin(handler, connection, request, reply));
                        }
                        Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                        Poll::Ready(None) => return Poll::Ready(Ok(())),
                        Poll::Pending => {
                            // h2 wakes this task to write them.
                            denied.drain(..).for_each(|(stream, request)| streams.deny(stream, request));
                            return Poll::Pending;
                        }
                    }
                }
            }
        }
    }
}

impl Streams {
    /// Starts to serve a request, if there is memory for it. Returns it if it was denied at once.
    fn begin<H: Handler>(
        self: &Arc<Self>,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
        request: Request<RecvStream>,
        mut reply: SendResponse<SendChunk>,
    ) -> Option<(Stream, DeniedRequest)> {
        let has_body = if request.body().is_end_stream() { HasBody::No } else { HasBody::Yes };
        let Some(memory) = self.memory.admit(head_size(&request), has_body) else {
            connection.worker.metrics.request(Outcome::Rejected, Duration::ZERO);
            reply.send_reset(Reason::REFUSED_STREAM);
            return None;
        };
        let (mut head, body) = request.into_parts();
        // The log keeps parts of every head.
        let is_logged = connection.worker.log.is_some();
        if is_logged {
            compact(&mut head);
        }
        let mut handle = None;
        let (body, ahead) = match has_body {
            HasBody::No => (RequestBody::empty(), ReadAhead::none()),
            HasBody::Yes => {
                let handle = handle.insert(StreamHandle::new());
                let (body, ahead) = Http2RequestBody::new(body, &head.headers, handle);
                (RequestBody::from(body), ahead)
            }
        };
        let method = head.method.clone();
        let answer = handler::serve(handler, connection, head, body, |head| {
            if !is_logged {
                compact(head);
            }
            head.extensions.insert(handle.get_or_insert_with(StreamHandle::new).clone());
        });
        let stream = Stream { connection: Arc::clone(connection), reply, handle, ahead, method, memory };
        let streams = Arc::clone(self);
        match answer {
            Answer::Denied(denied) => return Some((stream, denied)),
            Answer::Ready(response) => tokio::spawn(async move {
                let end = stream.serve(std::future::ready(response), &streams.memory).await;
                streams.ended(end);
            }),
            Answer::Later(response) => tokio::spawn(async move {
                let end = stream.serve(response, &streams.memory).await;
                streams.ended(end);
            }),
        };
        None
    }

    /// Answers a denied request. Only if the client does not accept the whole response now, a task sends the rest.
    fn deny(self: &Arc<Self>, mut stream: Stream, request: DeniedRequest) {
        let mut response = request.into_response();
        remove_hop_by_hop(response.headers_mut());
        let (mut send, mut body) = match stream.send_head(response) {
            SentHead::Over(end) => return self.ended(end),
            SentHead::Body(send, body) => (send, body),
        };
        if let Some(end) = stream.try_send_body(&mut send, &mut body, &self.memory) {
            return self.ended(end);
        }
        let streams = Arc::clone(self);
        tokio::spawn(async move {
            let end = stream.send_body(send, body, &streams.memory).await;
            streams.ended(end);
        });
    }

    /// Records how a stream ended.
    fn ended(&self, end: StreamEnd) {
        match end {
            StreamEnd::Served => self.served.fetch_add(1, Ordering::Relaxed),
            StreamEnd::Reset => self.reset.fetch_add(1, Ordering::Relaxed),
        };
        if self.has_too_many_resets() {
            let waker = self.waker.lock().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn has_too_many_resets(&self) -> bool {
        let max = self.served.load(Ordering::Relaxed).saturating_add(MAX_RESETS);
        self.reset.load(Ordering::Relaxed) > max
    }

    /// Returns `true` if the client has reset too many requests. The connection's task is woken when it has.
    fn poll_resets(&self, context: &mut Context<'_>) -> bool {
        let mut waker = self.waker.lock();
        if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        drop(waker);
        self.has_too_many_resets()
    }
}
