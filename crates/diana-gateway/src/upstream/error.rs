//! The errors of upstreams.

use diana_net::http1_codec::InvalidHttp;
use std::io;

/// An error of a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The upstream closed the connection too early.
    #[error("closed before the response was complete")]
    Closed,
    /// The upstream sent invalid HTTP; contains the reason.
    #[error("invalid HTTP: {0}")]
    InvalidHttp(&'static str),
    /// The request's body was aborted.
    #[error("the request body was aborted")]
    Body,
    #[error(transparent)]
    Http2(h2::Error),
}

impl From<InvalidHttp> for WireError {
    fn from(InvalidHttp(reason): InvalidHttp) -> Self {
        Self::InvalidHttp(reason)
    }
}

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// The connection could not be opened.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// The connection broke, or the upstream sent invalid HTTP.
    #[error("connection failed: {0}")]
    Broken(WireError),
    /// The response, or opening a connection, took too long.
    #[error("timed out")]
    TimedOut,
    /// All allowed connections are in use, and none became free in time.
    #[error("all connections are in use")]
    Busy,
    /// No upstream is configured for the request.
    #[error("no upstream is configured")]
    NoUpstream,
    /// The client's body was invalid or incomplete.
    #[error("the request body is invalid")]
    ByClient,
}

impl UpstreamError {
    /// Returns `true` if the error concerns one stream of an HTTP/2 connection, which itself stays open.
    pub(super) fn is_stream_reset(&self) -> bool {
        matches!(self, Self::Broken(WireError::Http2(error)) if error.is_reset())
    }
}
