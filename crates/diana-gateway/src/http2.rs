//! HTTP/2 with clients: h2 reads and writes the frames, and each stream has its own task.
//!
//! # Why not hyper's server
//! It can't send interim responses (103 Early Hints), refuse a stream before any work is done for it, or report how
//! much memory a connection uses. All three need access to the stream.
//!
//! # What always holds
//! - A connection uses no more memory than [`memory`] allows; a stream that would exceed it is refused before the rules
//!   see it.
//! - A stream whose client accepts no data for `timeouts.body` is reset; the other streams continue.
//! - A connection is closed (`GOAWAY`) if it resets more than [`MOST_RESETS`] requests in addition to the number that
//!   it let finish: each reset request was wasted work.

mod body;
mod handle;
pub(crate) mod memory;
mod pipe;

pub(crate) use body::{Http2Body, Http2RequestBody};
pub(crate) use handle::StreamHandle;
pub(crate) use memory::{Memory, Piece, SHARE, Total};
pub(crate) use pipe::{Pipe, PipeError};

use crate::connection::Deadline;
use crate::listener::ClientIo;
use crate::request::RequestBody;
use crate::response::ResponseBody;
use crate::service::{Connection, ResponseFuture};
use body::ReadAhead;
use bytes::BytesMut;
use diana_metrics::Outcome;
use h2::server::{Builder, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use memory::{HasBody, QUEUE, RECEIVE_WINDOW, RequestMemory};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// How many more requests a connection may reset than it lets finish. A browser that leaves a page resets all its
/// requests.
const MOST_RESETS: u32 = 100;

/// An HTTP/2 connection of a client.
pub(crate) struct Http2 {
    state: State,
    connection: Arc<Connection>,
    streams: Arc<Streams>,
    ending: Ending,
}

enum State {
    Handshake(Handshake<ClientIo, Piece>),
    Serving(h2::server::Connection<ClientIo, Piece>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    /// After the requests in flight.
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

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Served,
    /// The client cancelled its request.
    Reset,
}

impl Http2 {
    pub(crate) fn new(io: ClientIo, connection: Arc<Connection>) -> Self {
        let bounds = &connection.worker.gateway.bounds;
        let mut builder = Builder::new();
        builder
            .initial_window_size(RECEIVE_WINDOW)
            .initial_connection_window_size(RECEIVE_WINDOW)
            .max_concurrent_streams(bounds.streams)
            .max_header_list_size(u32::try_from(bounds.header).unwrap_or(u32::MAX))
            .max_send_buffer_size(QUEUE as usize);
        let streams = Streams {
            memory: Arc::new(Memory::new(Arc::clone(&connection.worker.http2_memory))),
            reset: AtomicU32::new(0),
            served: AtomicU32::new(0),
            waker: Mutex::default(),
        };
        let state = State::Handshake(builder.handshake(io));
        Self { state, connection, streams: Arc::new(streams), ending: Ending::No }
    }

    /// Accepts no more requests, and ends after those in flight.
    pub(crate) fn graceful_shutdown(mut self: Pin<&mut Self>) {
        if self.ending == Ending::No {
            self.ending = Ending::Graceful;
            if let State::Serving(serving) = &mut self.state {
                serving.graceful_shutdown();
            }
        }
    }
}

impl Future for Http2 {
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { state, connection, streams, ending } = &mut *self;
        loop {
            match state {
                State::Handshake(handshake) => {
                    let mut serving = ready!(Pin::new(handshake).poll(context))?;
                    if *ending == Ending::Graceful {
                        serving.graceful_shutdown();
                    }
                    *state = State::Serving(serving);
                }
                State::Serving(serving) => {
                    if *ending != Ending::Abrupt && streams.reset_too_much(context) {
                        tracing::debug!(
                            "an HTTP/2 connection of {} is ended: it resets too much",
                            connection.conn_info.peer
                        );
                        *ending = Ending::Abrupt;
                        serving.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    }
                    match ready!(serving.poll_accept(context)) {
                        Some(Ok((request, reply))) => streams.begin(connection, request, reply),
                        Some(Err(error)) => return Poll::Ready(Err(error)),
                        None => return Poll::Ready(Ok(())),
                    }
                }
            }
        }
    }
}

impl Streams {
    /// Starts to serve a request, if there is memory for it.
    fn begin(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        request: Request<RecvStream>,
        mut reply: SendResponse<Piece>,
    ) {
        let has_body = if request.body().is_end_stream() { HasBody::No } else { HasBody::Yes };
        let Some(memory) = self.memory.admit(head_size(&request), has_body) else {
            connection.worker.metrics.request(Outcome::Rejected, Duration::ZERO);
            reply.send_reset(Reason::REFUSED_STREAM);
            return;
        };
        let (mut head, body) = request.into_parts();
        compact(&mut head);
        let handle = StreamHandle::new();
        let (body, ahead) = match has_body {
            HasBody::No => (RequestBody::Empty, ReadAhead::nothing()),
            HasBody::Yes => {
                let (body, ahead) = Http2RequestBody::new(body, &head.headers, &handle);
                (RequestBody::Http2(body), ahead)
            }
        };
        head.extensions.insert(handle.clone());
        let method = head.method.clone();
        let serving = connection.begin(Request::from_parts(head, body));
        let stream = Stream { connection: Arc::clone(connection), reply, handle, ahead, method, memory };
        let streams = Arc::clone(self);
        tokio::spawn(async move {
            let ended = stream.serve(serving, &streams).await;
            streams.ended(ended);
        });
    }

    /// Records how a stream ended.
    fn ended(&self, ended: Ended) {
        match ended {
            Ended::Served => self.served.fetch_add(1, Ordering::Relaxed),
            Ended::Reset => self.reset.fetch_add(1, Ordering::Relaxed),
        };
        if self.is_beyond() {
            let waker = self.waker.lock().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn is_beyond(&self) -> bool {
        let may = self.served.load(Ordering::Relaxed).saturating_add(MOST_RESETS);
        self.reset.load(Ordering::Relaxed) > may
    }

    /// Returns `true` if the client has reset too many requests. The connection's task is woken when it has.
    fn reset_too_much(&self, context: &mut Context<'_>) -> bool {
        let mut waker = self.waker.lock();
        if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        drop(waker);
        self.is_beyond()
    }
}

/// The stream of one request.
struct Stream {
    connection: Arc<Connection>,
    reply: SendResponse<Piece>,
    handle: StreamHandle,
    ahead: ReadAhead,
    method: Method,
    memory: RequestMemory,
}

impl Stream {
    /// Waits for the response, and sends it.
    async fn serve(mut self, mut serving: ResponseFuture, streams: &Streams) -> Ended {
        let answered = poll_fn(|context| {
            let answer = Pin::new(&mut serving).poll(context);
            for mut interim in self.handle.take_interim(context) {
                remove_hop_by_hop(interim.headers_mut());
                // This fails only if the client has disconnected, which is detected below.
                let _ = self.reply.send_informational(interim);
            }
            match answer {
                Poll::Ready(Ok(response)) => Poll::Ready(Some(response)),
                Poll::Pending if !self.read_ahead(context) => {
                    self.reply.send_reset(Reason::ENHANCE_YOUR_CALM);
                    Poll::Ready(None)
                }
                Poll::Pending => self.reply.poll_reset(context).map(|_| None),
            }
        });
        let Some(response) = answered.await else { return Ended::Reset };
        drop(serving);
        self.send(response, streams).await
    }

    /// Reads the available part of the request's body. Returns `false` if there is no memory for its trailers.
    fn read_ahead(&mut self, context: &mut Context<'_>) -> bool {
        match self.ahead.poll(context) {
            Poll::Ready(trailers) => self.memory.admit_trailers(trailers),
            Poll::Pending => true,
        }
    }

    async fn send(&mut self, response: Response<ResponseBody>, streams: &Streams) -> Ended {
        let (mut head, mut body) = response.into_parts();
        remove_hop_by_hop(&mut head.headers);
        head.headers.entry(DATE).or_insert_with(crate::access_log::now);
        let has_body = !body.is_end_stream();
        if has_body && let Some(length) = body.size_hint().exact() {
            head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
        }
        let is_over = !has_body || self.method == Method::HEAD;
        let mut stream = match self.reply.send_response(Response::from_parts(head, ()), is_over) {
            Ok(stream) => stream,
            Err(_) => return self.send_bad_gateway(),
        };
        if is_over {
            return Ended::Served;
        }
        let mut pipe = Pipe::to_client(Arc::clone(&streams.memory), self.handle.clone());
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
            Err(PipeError::Reset) => Ended::Reset,
            // A body error is the upstream's fault.
            Ok(()) | Err(PipeError::Body(_)) => Ended::Served,
        }
    }

    /// Sends a 502 if the response can't be sent. This fails if the client has reset the stream.
    fn send_bad_gateway(&mut self) -> Ended {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        self.reply.send_response(response, true).map_or(Ended::Reset, |_| Ended::Served)
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
        let has_moved = std::mem::replace(&mut self.sent, sent) != sent;
        if self.deadline.is_none() || has_moved {
            let deadline = self.deadline.get_or_insert_with(|| connection.worker.deadlines.add());
            deadline.set(connection.worker.gateway.timeouts.body);
        }
        self.deadline.as_ref().map_or(Poll::Pending, |deadline| deadline.poll(context))
    }
}

/// Removes headers that HTTP/2 forbids (RFC 9113, section 8.2.2).
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Copies a head into memory of exactly its size. h2 returns slices of a buffer that may be far larger: a head of a few
/// bytes that arrives in two frames keeps 64 KiB alive.
fn compact(head: &mut Parts) {
    compact_fields(&mut head.headers);
    let mut uri = head.uri.clone().into_parts();
    uri.authority = uri.authority.map(|host| Authority::try_from(host.as_str()).unwrap_or(host));
    uri.path_and_query = uri.path_and_query.map(|path| PathAndQuery::try_from(path.as_str()).unwrap_or(path));
    if let Ok(uri) = Uri::from_parts(uri) {
        head.uri = uri;
    }
}

fn compact_fields(headers: &mut HeaderMap) {
    let mut copy = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    headers.values().for_each(|value| copy.extend_from_slice(value.as_bytes()));
    let mut copy = copy.freeze();
    for value in headers.values_mut() {
        if let Ok(mut own) = HeaderValue::from_maybe_shared(copy.split_to(value.len())) {
            own.set_sensitive(value.is_sensitive());
            *value = own;
        }
    }
}

/// The overhead that RFC 9113 (section 6.5.2) adds to each field.
const FIELD: usize = 32;

/// Returns the size of the fields, as RFC 9113 defines it for `SETTINGS_MAX_HEADER_LIST_SIZE`.
fn fields_size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| FIELD + name.as_str().len() + value.len()).sum()
}

/// Returns the size of a head by the same definition.
fn head_size(request: &Request<RecvStream>) -> usize {
    let uri = request.uri();
    let address =
        uri.path().len() + uri.query().map_or(0, str::len) + uri.authority().map_or(0, |host| host.as_str().len());
    4 * FIELD + request.method().as_str().len() + address + fields_size(request.headers())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compact_head_is_the_same_head() {
        for uri in ["http://a.example:80/b/c?d=e", "https://a/", "http://[::1]/?x", "*"] {
            let odd = HeaderValue::from_bytes(b"\xe9").unwrap();
            let request = Request::options(uri).header("a", "1").header("b", "").header("a", "2").header("c", odd);
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            head.headers.get_mut("c").unwrap().set_sensitive(true);
            let before = (head.uri.clone(), head.headers.clone());
            compact(&mut head);
            assert_eq!((&head.uri, &head.headers), (&before.0, &before.1));
            assert!(head.headers["c"].is_sensitive());
        }
    }
}
