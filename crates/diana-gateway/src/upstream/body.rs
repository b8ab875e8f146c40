//! The body of an upstream's response. It owns and drives the connection until its end; then the connection returns to
//! the pool.

use super::endpoint::Endpoint;
use super::http1::UpstreamConnection;
use super::{WireError, http2};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The body of an upstream's response.
pub(crate) struct UpstreamBody {
    source: BodySource,
}

/// The source of the body.
enum BodySource {
    Http1(Box<UpstreamConnection>, Arc<Endpoint>),
    /// The connection has been returned to the pool.
    Done,
    /// A separate task drives the connection.
    Http2(Box<http2::ResponseStream>),
}

/// The reason why a body ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the upstream aborted the response: {0}")]
    Broken(WireError),
    #[error("the upstream stopped sending the response")]
    TimedOut,
}

impl UpstreamBody {
    /// Creates a body over a connection, which returns to its endpoint at the end.
    pub(super) fn http1(connection: Box<UpstreamConnection>, endpoint: &Arc<Endpoint>) -> Self {
        Self { source: BodySource::Http1(connection, Arc::clone(endpoint)) }
    }

    pub(super) fn http2(stream: Box<http2::ResponseStream>) -> Self {
        Self { source: BodySource::Http2(stream) }
    }

    /// Returns the connection to the pool if the body has ended.
    pub(super) fn release_at_end(&mut self) {
        if matches!(&self.source, BodySource::Http1(connection, _) if connection.is_over())
            && let BodySource::Http1(connection, endpoint) = std::mem::replace(&mut self.source, BodySource::Done)
        {
            endpoint.release(connection);
        }
    }

    /// Returns the connection, after an upgrade.
    pub(crate) fn into_connection(self) -> Option<Box<UpstreamConnection>> {
        match self.source {
            BodySource::Http1(connection, _) => Some(connection),
            BodySource::Done | BodySource::Http2(_) => None,
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = match &mut self.source {
            BodySource::Done => return Poll::Ready(None),
            BodySource::Http1(connection, _) => connection.poll_frame(context),
            BodySource::Http2(stream) => stream.poll_frame(context),
        };
        if let Poll::Ready(frame) = polled {
            match &self.source {
                BodySource::Http1(connection, _) => connection.deadline().clear(),
                BodySource::Http2(stream) => stream.deadline().clear(),
                BodySource::Done => {}
            }
            // The next request may need the connection before `is_end_stream` is called.
            self.release_at_end();
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)));
        }
        let timed_out = match &mut self.source {
            BodySource::Done => return Poll::Ready(None),
            BodySource::Http1(connection, _) => connection.poll_idle_timeout(context),
            BodySource::Http2(stream) => stream.poll_idle_timeout(context),
        };
        timed_out.map(|()| Some(Err(BodyError::TimedOut)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Http1(connection, _) => connection.is_over(),
            BodySource::Done => true,
            BodySource::Http2(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Http1(connection, _) => connection.size_hint(),
            BodySource::Done => SizeHint::with_exact(0),
            BodySource::Http2(stream) => stream.size_hint(),
        }
    }
}
