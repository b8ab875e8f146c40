//! The response body of the layer.

use crate::permit_body::PermitBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The body of a response: the inner service's, or that of a denial.
    pub struct RateLimitBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        Granted { #[pin] body: PermitBody<B> },
        Denied { #[pin] body: Full<Bytes> },
    }
}

impl<B> RateLimitBody<B> {
    pub(super) fn granted(body: PermitBody<B>) -> Self {
        Self { kind: Kind::Granted { body } }
    }

    pub(super) fn denied(body: Full<Bytes>) -> Self {
        Self { kind: Kind::Denied { body } }
    }
}

impl<B: Body> Body for RateLimitBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Granted { body } => body.poll_frame(context),
            KindProj::Denied { body } => Poll::Ready(match ready!(body.poll_frame(context)) {
                None => None,
                Some(Ok(frame)) => Some(Ok(frame)),
                Some(Err(never)) => match never {},
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Granted { body } => body.is_end_stream(),
            Kind::Denied { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Granted { body } => body.size_hint(),
            Kind::Denied { body } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for RateLimitBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBody").field("is_denied", &matches!(self.kind, Kind::Denied { .. })).finish()
    }
}
