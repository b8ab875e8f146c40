//! The body of a client's request, as a stream to the upstream.
//!
//! A client must send its body fast enough: the total time spent waiting for it must not exceed `timeouts.body`, plus
//! one second for each [`MIN_BYTES_PER_SECOND`] bytes. So a client that sends single bytes can't hold a connection
//! forever, while one on a slow network has the time it needs. `bounds.body` limits the length of a body.

use super::head::{Padded, TrailerFilter};
use crate::connection::Deadline;
use crate::http1::Http1RequestBody;
use crate::http2::Http2RequestBody;
use bytes::Bytes;
use diana::{Clock, SystemClock, Timestamp};
use diana_http::ThrottledBody;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// The minimum bytes per second, once `timeouts.body` is used up.
const MIN_BYTES_PER_SECOND: u64 = 512;

/// The body of a request, as read from its connection.
pub(crate) enum RequestBody {
    Http1(Http1RequestBody),
    Http2(Http2RequestBody),
    Empty,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body).poll_frame(context),
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
    received: u64,
    max: u64,
    /// When the current wait started, and the total of the earlier waits, in milliseconds.
    waiting_since: Option<u64>,
    waited: u64,
    /// When the current wait started, by a clock with a finer resolution than [`Deadline`]'s 100 ms.
    pending_since: Option<Timestamp>,
    progress: Arc<BodyProgress>,
}

/// The progress of a body, and why it was aborted, if it was: the code that waits for the response only sees that the
/// connection broke.
#[derive(Debug, Default)]
pub(crate) struct BodyProgress {
    fault: AtomicU8,
    /// Whether the gateway is waiting for the client.
    is_waiting: AtomicBool,
    /// How many frames were forwarded, including the end.
    frames: AtomicU64,
    /// How many bytes have been received.
    received: AtomicU64,
    /// How long the gateway has waited for the client, in nanoseconds.
    waited: AtomicU64,
}

/// Why a body was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    #[error("the request body is too long")]
    TooLong = 1,
    #[error("the request body is too slow")]
    TooSlow = 2,
    #[error("the request body was aborted")]
    Broken = 3,
}

impl BodyProgress {
    fn set(&self, fault: BodyFault) {
        self.fault.store(fault as u8, Ordering::Relaxed);
    }

    /// Returns the number of bytes received.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
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
    pub(crate) fn is_advancing(&self, seen: &mut u64) -> bool {
        let frames = self.frames.load(Ordering::Relaxed);
        let has_advanced = std::mem::replace(seen, frames) != frames;
        has_advanced || self.is_waiting.load(Ordering::Relaxed)
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
    pub(crate) fn progress(&self) -> Option<Arc<BodyProgress>> {
        self.0.as_ref().map(|streaming| Arc::clone(&streaming.progress))
    }

    pub(crate) fn new(
        body: ThrottledBody<RequestBody>,
        trailers: TrailerFilter,
        deadline: Deadline,
        timeout: Duration,
        max: Option<u64>,
    ) -> (Self, Arc<BodyProgress>) {
        let progress = Arc::new(BodyProgress::default());
        let streaming = Streaming {
            body,
            trailers,
            deadline,
            timeout,
            received: 0,
            max: max.unwrap_or(u64::MAX),
            waiting_since: None,
            waited: 0,
            pending_since: None,
            progress: Arc::clone(&progress),
        };
        (Self(Some(Box::new(streaming))), progress)
    }
}

impl Streaming {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let now = self.deadline.all().now();
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                if let Some(since) = self.waiting_since.take() {
                    self.waited += now.saturating_sub(since);
                    self.deadline.clear();
                }
                let Some(frame) = frame.transpose()? else { return Poll::Ready(None) };
                self.received += frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.received > self.max {
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
                if self.waiting_since.is_none() {
                    self.waiting_since = Some(now);
                    let total = self.timeout + Duration::from_secs(self.received / MIN_BYTES_PER_SECOND);
                    self.deadline.set(total.saturating_sub(Duration::from_millis(self.waited)));
                }
                self.deadline.poll(context).map(|()| Some(Err(BodyFault::TooSlow)))
            }
        }
    }
}

impl Streaming {
    /// Adds to the time spent waiting for the client.
    fn record_wait(&mut self, is_pending: bool) {
        match (is_pending, self.pending_since) {
            (true, None) => self.pending_since = Some(SystemClock.now()),
            (false, Some(since)) => {
                self.pending_since = None;
                let time = u64::try_from(SystemClock.now().since(since).as_nanos()).unwrap_or(u64::MAX);
                self.progress.waited.fetch_add(time, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        // The body is no longer read.
        self.progress.is_waiting.store(false, Ordering::Relaxed);
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
        streaming.record_wait(polled.is_pending());
        streaming.progress.is_waiting.store(polled.is_pending(), Ordering::Relaxed);
        if polled.is_ready() {
            streaming.progress.frames.fetch_add(1, Ordering::Relaxed);
            streaming.progress.received.store(streaming.received, Ordering::Relaxed);
        }
        if let Poll::Ready(Some(Err(fault))) = polled {
            streaming.progress.set(fault);
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
