//! The body of an upstream's response. It owns and drives the connection until its end; then the connection returns to
//! the pool.

use super::endpoint::Endpoint;
use super::http1::Http1;
use super::{WireError, http2};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The body of an upstream's response.
pub(crate) struct UpstreamBody {
    flows: Flows,
}

/// The source of the body.
enum Flows {
    Http1(Box<Http1>, Arc<Endpoint>),
    /// The connection has been returned to the pool.
    Done,
    /// A separate task drives the connection.
    Http2(Box<http2::Answer>),
}

/// Why a body ends early.
#[derive(Debug)]
pub(crate) enum BodyError {
    Broken(WireError),
    TimedOut,
}

impl UpstreamBody {
    /// Creates a body over a connection, which returns to its endpoint at the end.
    pub(super) fn http1(connection: Box<Http1>, endpoint: &Arc<Endpoint>) -> Self {
        Self { flows: Flows::Http1(connection, Arc::clone(endpoint)) }
    }

    pub(super) fn http2(answer: Box<http2::Answer>) -> Self {
        Self { flows: Flows::Http2(answer) }
    }

    /// Returns the connection to the pool if the body has ended.
    pub(super) fn give_back_at_end(&mut self) {
        if matches!(&self.flows, Flows::Http1(connection, _) if connection.is_over())
            && let Flows::Http1(connection, endpoint) = std::mem::replace(&mut self.flows, Flows::Done)
        {
            endpoint.give_back(connection);
        }
    }

    /// Returns the connection, after an upgrade.
    pub(crate) fn into_connection(self) -> Option<Box<Http1>> {
        match self.flows {
            Flows::Http1(connection, _) => Some(connection),
            Flows::Done | Flows::Http2(_) => None,
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
        let polled = match &mut self.flows {
            Flows::Done => return Poll::Ready(None),
            Flows::Http1(connection, _) => connection.poll_frame(context),
            Flows::Http2(answer) => answer.poll_frame(context),
        };
        if let Poll::Ready(frame) = polled {
            match &self.flows {
                Flows::Http1(connection, _) => connection.deadline().clear(),
                Flows::Http2(answer) => answer.deadline().clear(),
                Flows::Done => {}
            }
            // The next request may need the connection before `is_end_stream` is called.
            self.give_back_at_end();
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)));
        }
        let is_late = match &mut self.flows {
            Flows::Done => return Poll::Ready(None),
            Flows::Http1(connection, _) => connection.poll_stillness(context),
            Flows::Http2(answer) => answer.poll_stillness(context),
        };
        is_late.map(|()| Some(Err(BodyError::TimedOut)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.flows {
            Flows::Http1(connection, _) => connection.is_over(),
            Flows::Done => true,
            Flows::Http2(answer) => answer.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.flows {
            Flows::Http1(connection, _) => connection.size_hint(),
            Flows::Done => SizeHint::with_exact(0),
            Flows::Http2(answer) => answer.size_hint(),
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => write!(f, "the upstream broke off: {error}"),
            Self::TimedOut => f.write_str("the upstream stopped in the middle"),
        }
    }
}

impl std::error::Error for BodyError {}
