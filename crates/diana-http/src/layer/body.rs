//! The response body of the layer.

use crate::body::PermitBody;
use bytes::Bytes;
use diana::store::{MemoryStore, Store};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The body of a response: the inner service's, or that of a denial.
    pub struct RateLimitBody<B, S = MemoryStore>
    where
        S: Store,
        S: 'static,
    {
        #[pin]
        kind: Kind<B, S>,
    }
}

pin_project! {
    #[project = KindNow]
    enum Kind<B, S>
    where
        S: Store,
        S: 'static,
    {
        Passed { #[pin] body: PermitBody<B, S> },
        Denied { #[pin] body: Full<Bytes> },
    }
}

impl<B, S: Store + 'static> RateLimitBody<B, S> {
    pub(super) fn passed(body: PermitBody<B, S>) -> Self {
        Self { kind: Kind::Passed { body } }
    }

    pub(super) fn refused(body: Full<Bytes>) -> Self {
        Self { kind: Kind::Denied { body } }
    }
}

impl<B: Body, S: Store + 'static> Body for RateLimitBody<B, S> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindNow::Passed { body } => body.poll_frame(context),
            KindNow::Denied { body } => Poll::Ready(match ready!(body.poll_frame(context)) {
                None => None,
                Some(Ok(frame)) => Some(Ok(frame)),
                Some(Err(never)) => match never {},
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Passed { body } => body.is_end_stream(),
            Kind::Denied { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Passed { body } => body.size_hint(),
            Kind::Denied { body } => body.size_hint(),
        }
    }
}

impl<B, S: Store + 'static> fmt::Debug for RateLimitBody<B, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBody").field("is_refusal", &matches!(self.kind, Kind::Denied { .. })).finish()
    }
}
