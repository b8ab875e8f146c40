//! The body of a response to a client, and the records when it has been sent.

use crate::request::RequestTracker;
use crate::upstream::{BodyError, UpstreamBody};
use bytes::Bytes;
use diana_http::PermitBody;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The body of a response to a client. Dropping it, sent or not, finishes the request ([`RequestTracker`]).
pub(crate) struct ResponseBody {
    body: Kind,
    tracker: RequestTracker,
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
    /// Reads and drops the rest if the client disconnects: the request's permits are held until the upstream is done.
    /// After `time`, the connection to the upstream is closed.
    pub(crate) fn read_to_end_within(&mut self, time: Duration) {
        self.read_to_end = Some(time);
    }

    /// Records that the client disconnected before it got any of the response.
    pub(crate) fn client_disconnected(&mut self) {
        self.tracker.client_disconnected();
    }

    /// Takes the whole body of a local response, to be sent at once. `None` for other bodies.
    pub(crate) fn take_local(&mut self) -> Option<Bytes> {
        let Kind::Local(body) = &mut self.body else { return None };
        let frame = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Some(Ok(frame))) = frame else { return None };
        let data = frame.into_data().ok()?;
        self.tracker.sent(data.len());
        Some(data)
    }

    pub(crate) fn local(body: Full<Bytes>, tracker: RequestTracker) -> Self {
        Self { body: Kind::Local(body), tracker, read_to_end: None }
    }

    pub(crate) fn local_with_permit(body: PermitBody<Full<Bytes>>, tracker: RequestTracker) -> Self {
        Self { body: Kind::LocalWithPermit(body), tracker, read_to_end: None }
    }

    pub(crate) fn upstream(body: PermitBody<UpstreamBody>, tracker: RequestTracker) -> Self {
        Self { body: Kind::Upstream(body), tracker, read_to_end: None }
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
        match &frame {
            Poll::Ready(Some(Ok(frame))) => self.tracker.sent(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(Some(Err(_))) => self.tracker.upstream_aborted(),
            _ => {}
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
