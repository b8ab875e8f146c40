//! The response body of a granted request.

use crate::throttle::ThrottledBody;
use bytes::Bytes;
use diana::Permit;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The response body of a granted request, throttled by its rules. When it ends, fails or is dropped, the request's
    /// permits are released.
    pub struct PermitBody<B> {
        #[pin]
        body: ThrottledBody<B>,
        // The permits, without the rest of the request's permit: a response is moved several times.
        permit: Option<Permit>,
    }
}

impl<B> PermitBody<B> {
    pub(crate) fn new(body: ThrottledBody<B>, permit: Option<Permit>) -> Self {
        Self { body, permit }
    }
}

impl<B: Body> Body for PermitBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        // Before the last frame is sent: a client that has received the whole response may send its next request
        // immediately.
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            *this.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: fmt::Debug> fmt::Debug for PermitBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitBody").field("body", &self.body).field("permit", &self.permit).finish()
    }
}
