//! The body of a client's request, as a stream to the upstream.
//!
//! A client must send its body fast enough: the total time spent waiting for it must not exceed `timeouts.body`, plus
//! one second for each [`MIN_BYTES_PER_SECOND`] bytes. So a client that sends single bytes can't hold a connection
//! forever, while one on a slow network has the time it needs. `bounds.body` limits the length of a body.

use crate::head::{Padded, TrailerFilter};
use bytes::Bytes;
use diana::{Clock, SystemClock, Timestamp};
use diana_http::ThrottledBody;
use diana_net::coarse_timer::Deadline;
use diana_net::{BodyFault, BodyProgress, RequestBody};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The minimum bytes per second, once `timeouts.body` is used up.
const MIN_BYTES_PER_SECOND: u64 = 512;

/// The body of a client's request, with its timeout and length limit.
pub(crate) struct PacedUpload(Option<Box<Streaming>>);

struct Streaming {
    body: ThrottledBody<RequestBody>,
    trailers: TrailerFilter,
    deadline: Deadline,
    timeout: Duration,
    /// The number of bytes received, and of those allowed.
    received: u64,
    max: u64,
    /// The start of the current wait, and the total of the earlier waits, in milliseconds.
    waiting_since: Option<u64>,
    waited: u64,
    /// The start of the current wait, by a clock with a finer resolution than [`Deadline`]'s 100 ms.
    pending_since: Option<Timestamp>,
    progress: Arc<BodyProgress>,
}

impl PacedUpload {
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
        let now = self.deadline.deadlines().now();
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
                self.progress.add_wait(SystemClock.now().since(since));
            }
            _ => {}
        }
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        // The body is no longer read.
        self.progress.stop();
    }
}

impl Body for PacedUpload {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let Some(streaming) = &mut self.0 else { return Poll::Ready(None) };
        let polled = streaming.poll(context);
        streaming.record_wait(polled.is_pending());
        streaming.progress.read(&polled, streaming.received);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|streaming| streaming.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |streaming| streaming.body.size_hint())
    }
}
