//! The timeout for an upstream's response.

use super::{UpstreamError, WireError};
use crate::paced_upload::PacedUpload;
use diana_net::BodyProgress;
use diana_net::coarse_timer::Deadline;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The timeout for an upstream's response: it starts when the upstream has the whole request.
pub(super) struct ResponseTimeout {
    body: Option<Arc<BodyProgress>>,
    last_frames: u64,
    timeout: Duration,
}

impl ResponseTimeout {
    pub(super) fn new(body: &PacedUpload, timeout: Duration) -> Self {
        Self { body: body.progress(), last_frames: 0, timeout }
    }

    /// Attributes a failure to the client or the upstream: to the client if the upstream got an incomplete request.
    pub(super) fn attribute(&self, error: UpstreamError) -> UpstreamError {
        let has_fault = self.body.as_ref().is_some_and(|body| body.fault().is_some());
        let is_by_client = match &error {
            UpstreamError::Broken(WireError::Body) => true,
            // The gateway reset the stream itself, since it could not send the whole request.
            UpstreamError::Broken(WireError::Http2(http2)) if http2.is_reset() => {
                !http2.is_remote() && !http2.is_library()
            }
            _ => false,
        };
        if has_fault || is_by_client { UpstreamError::ByClient } else { error }
    }

    /// Is ready when the timeout has expired. Starts it if it is not running.
    pub(super) fn poll(&mut self, deadline: &Deadline, context: &mut Context<'_>) -> Poll<()> {
        if !deadline.is_set() {
            deadline.set(self.timeout);
        }
        if deadline.poll(context).is_pending() {
            return Poll::Pending;
        }
        if self.body.as_ref().is_some_and(|body| body.is_advancing(&mut self.last_frames)) {
            deadline.set(self.timeout);
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}
