//! The body of an upstream's answer. While it flows it has the connection, and drives it; then the connection is free again.

use super::connection::Http1;
use super::member::Member;
use crate::gateway::deadlines::Deadline;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The body of an upstream's answer.
pub(in crate::gateway) struct UpstreamBody {
    body: Incoming,
    drives: Drives,
    /// The longest time between two pieces.
    timeout: Duration,
}

/// What lets the body move.
pub(super) enum Drives {
    Http1(Option<(Http1, Arc<Member>)>),
    /// A task of its own.
    Http2(Deadline),
}

/// Why a body ends early.
#[derive(Debug)]
pub(in crate::gateway) enum BodyError {
    Broken(hyper::Error),
    TimedOut,
}

impl UpstreamBody {
    pub(super) fn new(body: Incoming, drives: Drives, timeout: Duration) -> Self {
        Self { body, drives, timeout }
    }

    /// The connection is free when the body has ended.
    pub(super) fn give_back_at_end(&mut self) {
        if let Drives::Http1(connection) = &mut self.drives
            && self.body.is_end_stream()
            && let Some((connection, member)) = connection.take()
        {
            let now = connection.deadline().all().now();
            member.give_back(connection, now);
        }
    }

    /// The connection, which has become something else.
    pub(in crate::gateway) fn into_connection(mut self) -> Option<Http1> {
        match &mut self.drives {
            Drives::Http1(connection) => connection.take().map(|(connection, _)| connection),
            Drives::Http2(_) => None,
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
        let this = &mut *self;
        if let Drives::Http1(Some((connection, _))) = &mut this.drives {
            connection.drive(context);
        }
        let deadline = match &this.drives {
            Drives::Http1(Some((connection, _))) => Some(connection.deadline()),
            Drives::Http1(None) => None,
            Drives::Http2(deadline) => Some(deadline),
        };
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(deadline) = deadline {
                    deadline.clear();
                }
                // The next request may need the connection before anybody asks whether this was the last piece.
                this.give_back_at_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                if let Drives::Http1(connection) = &mut this.drives
                    && let Some((connection, member)) = connection.take()
                {
                    let now = connection.deadline().all().now();
                    member.give_back(connection, now);
                }
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(BodyError::Broken(error)))),
            Poll::Pending => {
                let Some(deadline) = deadline else { return Poll::Pending };
                if !deadline.is_set() {
                    deadline.set(this.timeout);
                }
                deadline.poll(context).map(|()| Some(Err(BodyError::TimedOut)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
