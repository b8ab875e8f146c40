//! The body of a client's request, as a stream to the upstream.
//!
//! A client must send its body fast enough: the total time spent waiting for it must not exceed `timeouts.body`, plus
//! one second for each [`SLOWEST`] bytes. So a client that sends single bytes can't hold a connection forever, while
//! one on a slow network has the time it needs. `bounds.body` limits the length of a body.

use super::head::{Padded, TrailerFilter};
use crate::connection::Deadline;
use crate::http2::Http2RequestBody;
use bytes::Bytes;
use diana::{Clock, SystemClock, Timestamp};
use diana_http::ThrottledBody;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// The minimum bytes per second, once `timeouts.body` is used up.
const SLOWEST: u64 = 512;

/// The body of a request, as read from its connection.
pub(crate) enum RequestBody {
    Http1(Incoming),
    Http2(Http2RequestBody),
    /// No body, over HTTP/2.
    Empty,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body).poll_frame(context).map_err(|_| BodyFault::Broken),
            Self::Http2(body) => Pin::new(body).poll_frame(context).map_err(|_| BodyFault::Broken),
            Self::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
            Self::Empty => SizeHint::with_exact(0),
        }
    }
}

/// The body of a client's request, with its timeout and length limit.
pub(crate) struct RequestBodyStream(Option<Box<Streaming>>);

struct Streaming {
    body: ThrottledBody<RequestBody>,
    trailers: TrailerFilter,
    deadline: Deadline,
    timeout: Duration,
    /// How many bytes have been received, and how many are allowed.
    come: u64,
    most: u64,
    /// When the current wait started, and the total of the earlier waits, in milliseconds.
    waits_since: Option<u64>,
    waited: u64,
    /// When the current wait started, by a clock with a finer resolution than [`Deadline`]'s 100 ms.
    pending_since: Option<Timestamp>,
    ending: Arc<BodyProgress>,
}

/// The progress of a body, and why it was aborted, if it was: the code that waits for the response only sees that the
/// connection broke.
#[derive(Debug, Default)]
pub(crate) struct BodyProgress {
    fault: AtomicU8,
    /// Whether the gateway is waiting for the client.
    waits: AtomicBool,
    /// How many frames were forwarded, including the end.
    moved: AtomicU64,
    /// How many bytes have been received.
    come: AtomicU64,
    /// How long the gateway has waited for the client, in nanoseconds.
    waited: AtomicU64,
}

/// Why a body was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    TooLong = 1,
    TooSlow = 2,
    Broken = 3,
}

impl BodyProgress {
    fn set(&self, fault: BodyFault) {
        self.fault.store(fault as u8, Ordering::Relaxed);
    }

    /// Returns the number of bytes received.
    pub(crate) fn come(&self) -> u64 {
        self.come.load(Ordering::Relaxed)
    }

    /// Returns how long the gateway has waited for the client.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// Returns why the body was aborted.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        match self.fault.load(Ordering::Relaxed) {
            1 => Some(BodyFault::TooLong),
            2 => Some(BodyFault::TooSlow),
            3 => Some(BodyFault::Broken),
            _ => None,
        }
    }

    /// Returns `true` if the upstream can't be expected to respond yet: it got a frame since the last call, or the
    /// gateway is waiting for the client, which has its own timeout.
    pub(crate) fn is_under_way(&self, seen: &mut u64) -> bool {
        let moved = self.moved.load(Ordering::Relaxed);
        let has_moved = std::mem::replace(seen, moved) != moved;
        has_moved || self.waits.load(Ordering::Relaxed)
    }
}

impl RequestBodyStream {
    pub(crate) fn empty() -> Self {
        Self(None)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the progress of the body.
    pub(crate) fn ending(&self) -> Option<Arc<BodyProgress>> {
        self.0.as_ref().map(|streaming| Arc::clone(&streaming.ending))
    }

    pub(crate) fn new(
        body: ThrottledBody<RequestBody>,
        trailers: TrailerFilter,
        deadline: Deadline,
        timeout: Duration,
        most: Option<u64>,
    ) -> (Self, Arc<BodyProgress>) {
        let ending = Arc::new(BodyProgress::default());
        let streaming = Streaming {
            body,
            trailers,
            deadline,
            timeout,
            come: 0,
            most: most.unwrap_or(u64::MAX),
            waits_since: None,
            waited: 0,
            pending_since: None,
            ending: Arc::clone(&ending),
        };
        (Self(Some(Box::new(streaming))), ending)
    }
}

impl Streaming {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let now = self.deadline.all().now();
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                if let Some(since) = self.waits_since.take() {
                    self.waited += now.saturating_sub(since);
                    self.deadline.clear();
                }
                let Some(frame) = frame.transpose()? else { return Poll::Ready(None) };
                self.come += frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.come > self.most {
                    return Poll::Ready(Some(Err(BodyFault::TooLong)));
                }
                Poll::Ready(match frame.into_trailers() {
                    Ok(trailers) => {
                        let trailers = self.trailers.apply(trailers).map_err(|Padded| BodyFault::Broken)?;
                        (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)))
                    }
                    Err(frame) => Some(Ok(frame)),
                })
            }
            Poll::Pending => {
                if self.waits_since.is_none() {
                    self.waits_since = Some(now);
                    let all = self.timeout + Duration::from_secs(self.come / SLOWEST);
                    self.deadline.set(all.saturating_sub(Duration::from_millis(self.waited)));
                }
                self.deadline.poll(context).map(|()| Some(Err(BodyFault::TooSlow)))
            }
        }
    }
}

impl Streaming {
    /// Adds to the time spent waiting for the client.
    fn note_wait(&mut self, is_pending: bool) {
        match (is_pending, self.pending_since) {
            (true, None) => self.pending_since = Some(SystemClock.now()),
            (false, Some(since)) => {
                self.pending_since = None;
                let time = u64::try_from(SystemClock.now().since(since).as_nanos()).unwrap_or(u64::MAX);
                self.ending.waited.fetch_add(time, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        // The body is no longer read.
        self.ending.waits.store(false, Ordering::Relaxed);
    }
}

impl Body for RequestBodyStream {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let Some(streaming) = &mut self.0 else { return Poll::Ready(None) };
        let polled = streaming.poll(context);
        streaming.note_wait(polled.is_pending());
        streaming.ending.waits.store(polled.is_pending(), Ordering::Relaxed);
        if polled.is_ready() {
            streaming.ending.moved.fetch_add(1, Ordering::Relaxed);
            streaming.ending.come.store(streaming.come, Ordering::Relaxed);
        }
        if let Poll::Ready(Some(Err(fault))) = polled {
            streaming.ending.set(fault);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|streaming| streaming.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |streaming| streaming.body.size_hint())
    }
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the body of the request is too long",
            Self::TooSlow => "the body of the request comes too slowly",
            Self::Broken => "the body of the request broke off",
        })
    }
}

impl std::error::Error for BodyFault {}
