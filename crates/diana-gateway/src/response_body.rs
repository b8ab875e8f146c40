//! The body of a response to a client.

use crate::upstream::{BodyError, InFlight, UpstreamBody};
use bytes::Bytes;
use diana_http::PermitBody;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The body of a response to a client.
pub(crate) struct ResponseBody {
    body: Kind,
    /// The request at the upstream that responded.
    upstream: Option<InFlight>,
    /// If set, the rest is read after the client disconnects, for at most this long.
    read_to_end: Option<Duration>,
}

enum Kind {
    /// A local response.
    Local(Full<Bytes>),
    /// A local response to an allowed request.
    LocalWithPermit(PermitBody<Full<Bytes>>),
    Upstream(PermitBody<UpstreamBody>),
}

impl ResponseBody {
    pub(crate) fn local_with_permit(body: PermitBody<Full<Bytes>>) -> Self {
        Self { body: Kind::LocalWithPermit(body), upstream: None, read_to_end: None }
    }

    /// Creates the body of an upstream's response. With `read_to_end`, the rest is read and dropped if the client
    /// disconnects, since the request's permits are held until the upstream is done; after that time, the connection to the
    /// upstream is closed.
    pub(crate) fn upstream(body: PermitBody<UpstreamBody>, upstream: InFlight, read_to_end: Option<Duration>) -> Self {
        Self { body: Kind::Upstream(body), upstream: Some(upstream), read_to_end }
    }

    /// Creates the body of the response to an upgrade, which has none.
    pub(crate) fn upgrade(upstream: InFlight) -> Self {
        Self { body: Kind::Local(Full::default()), upstream: Some(upstream), read_to_end: None }
    }
}

impl From<Full<Bytes>> for ResponseBody {
    fn from(body: Full<Bytes>) -> Self {
        Self { body: Kind::Local(body), upstream: None, read_to_end: None }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match &mut self.body {
            Kind::Local(body) => Pin::new(body).poll_frame(context).map(infallible),
            Kind::LocalWithPermit(body) => Pin::new(body).poll_frame(context).map(infallible),
            Kind::Upstream(body) => Pin::new(body).poll_frame(context),
        };
        if let (Poll::Ready(Some(Err(_))), Some(upstream)) = (&frame, &self.upstream) {
            upstream.endpoint.counts.aborted.increment();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Kind::Local(body) => body.is_end_stream(),
            Kind::LocalWithPermit(body) => body.is_end_stream(),
            Kind::Upstream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Kind::Local(body) => body.size_hint(),
            Kind::LocalWithPermit(body) => body.size_hint(),
            Kind::Upstream(body) => body.size_hint(),
        }
    }
}

/// Converts a frame of a body that can't fail.
fn infallible(frame: Option<Result<Frame<Bytes>, Infallible>>) -> Option<Result<Frame<Bytes>, BodyError>> {
    frame.map(|frame| frame.map_err(|never| match never {}))
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let Some(time) = self.read_to_end else { return };
        let Kind::Upstream(body) = &mut self.body else { return };
        if body.is_end_stream() {
            return;
        }
        let Kind::Upstream(mut body) = std::mem::replace(&mut self.body, Kind::Local(Full::default())) else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let read = async { while let Some(Ok(_)) = body.frame().await {} };
                let _ = tokio::time::timeout(time, read).await;
            });
        }
    }
}
