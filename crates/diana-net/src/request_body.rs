//! The body of a client's request, as its connection reads it, and what happens to the rest of one that was answered early.
//!
//! # Why the rest is discarded
//! Many clients read the response only after they have sent the whole body. If the connection were closed before that, they
//! would see its end instead of the response, and a client that reuses the connection would find it closed. So the connection
//! reads and discards the rest of the body, up to [`MAX_DISCARDED`], within the timeouts of an idle connection. For a longer
//! body the same amount is read, and the response has `Connection: close`.

mod http1;

pub(crate) use http1::{BodySender, Demand, Http1RequestBody, channel};

use crate::http2_codec::Http2RequestBody;
use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HeaderMap, HeaderValue};
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// The maximum number of bytes of a body that are discarded.
const MAX_DISCARDED: u64 = 256 << 10;

/// The body of a request, as read from its connection.
pub struct RequestBody(Source);

enum Source {
    Http1(Http1RequestBody),
    Http2(Http2RequestBody),
    Empty,
}

/// Whether the connection can be reused after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnReuse {
    /// Another request may follow.
    KeepAlive,
    /// The connection is closed.
    Close,
}

/// The reason why a body was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// The body exceeds `bounds.body`.
    #[error("the request body is too long")]
    TooLong = 1,
    /// The body exceeds `timeouts.body`.
    #[error("the request body is too slow")]
    TooSlow = 2,
    /// The body is invalid, or the client has disconnected.
    #[error("the request body was aborted")]
    Broken = 3,
}

/// The progress of a body, and why it was aborted, if it was: the code that waits for the response only sees that the
/// connection broke.
#[derive(Debug, Default)]
pub struct BodyProgress {
    fault: AtomicU8,
    /// Whether the code waits for the client.
    is_waiting: AtomicBool,
    /// The number of frames that were forwarded, including the end.
    frames: AtomicU64,
    /// The number of bytes received.
    received: AtomicU64,
    /// The time of the waits for the client, in nanoseconds.
    waited: AtomicU64,
}

impl RequestBody {
    /// Creates the body of a request without one.
    pub(crate) fn empty() -> Self {
        Self(Source::Empty)
    }

    /// Discards the rest, and returns whether the connection can be reused.
    pub fn drain(self, head: &Parts) -> ConnReuse {
        let body = match self.0 {
            Source::Http1(body) if !body.is_end_stream() => body,
            // HTTP/2 can stop a body with a frame.
            Source::Http1(_) | Source::Http2(_) | Source::Empty => return ConnReuse::KeepAlive,
        };
        // A client that waits for `100 Continue` has sent nothing, and may never do so.
        if head.headers.contains_key(EXPECT) {
            return ConnReuse::Close;
        }
        let is_long = body.size_hint().upper().is_some_and(|length| length > MAX_DISCARDED);
        body.discard(MAX_DISCARDED);
        if is_long { ConnReuse::Close } else { ConnReuse::KeepAlive }
    }
}

impl ConnReuse {
    /// Adds to the head of a response that the connection will be closed, if so.
    pub fn announce(self, response: &mut HeaderMap) {
        if self == Self::Close {
            response.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

impl From<Http1RequestBody> for RequestBody {
    fn from(body: Http1RequestBody) -> Self {
        Self(Source::Http1(body))
    }
}

impl From<Http2RequestBody> for RequestBody {
    fn from(body: Http2RequestBody) -> Self {
        Self(Source::Http2(body))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match &mut self.get_mut().0 {
            Source::Http1(body) => Pin::new(body).poll_frame(context),
            Source::Http2(body) => Pin::new(body).poll_frame(context).map_err(|_| BodyFault::Broken),
            Source::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http1(body) => body.is_end_stream(),
            Source::Http2(body) => body.is_end_stream(),
            Source::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http1(body) => body.size_hint(),
            Source::Http2(body) => body.size_hint(),
            Source::Empty => SizeHint::with_exact(0),
        }
    }
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBody").field("size_hint", &self.size_hint()).finish_non_exhaustive()
    }
}

impl BodyProgress {
    /// Records the result of reading a frame, of `received` bytes so far.
    pub fn read<T>(&self, polled: &Poll<Option<Result<T, BodyFault>>>, received: u64) {
        self.is_waiting.store(polled.is_pending(), Ordering::Relaxed);
        if polled.is_ready() {
            self.frames.fetch_add(1, Ordering::Relaxed);
            self.received.store(received, Ordering::Relaxed);
        }
        if let Poll::Ready(Some(Err(fault))) = polled {
            self.fault.store(*fault as u8, Ordering::Relaxed);
        }
    }

    /// Records that the body is no longer read.
    pub fn stop(&self) {
        self.is_waiting.store(false, Ordering::Relaxed);
    }

    /// Adds to the time for which the client was waited for.
    pub fn add_wait(&self, time: Duration) {
        self.waited.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the number of bytes received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns how long the client was waited for.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// Returns why the body was aborted.
    pub fn fault(&self) -> Option<BodyFault> {
        match self.fault.load(Ordering::Relaxed) {
            1 => Some(BodyFault::TooLong),
            2 => Some(BodyFault::TooSlow),
            3 => Some(BodyFault::Broken),
            _ => None,
        }
    }

    /// Returns `true` if the upstream can't be expected to respond yet: it got a frame since the last call, or the
    /// client is waited for, which has its own timeout.
    pub fn is_advancing(&self, previous: &mut u64) -> bool {
        let frames = self.frames.load(Ordering::Relaxed);
        let has_advanced = std::mem::replace(previous, frames) != frames;
        has_advanced || self.is_waiting.load(Ordering::Relaxed)
    }
}
