//! The errors of upstreams.

use std::{fmt, io};

/// An error of a connection.
#[derive(Debug)]
pub(crate) enum WireError {
    Io(io::Error),
    /// The upstream closed the connection too early.
    Closed,
    /// The upstream sent invalid HTTP; contains the reason.
    InvalidHttp(&'static str),
    /// The request's body was aborted.
    Body,
    Http2(h2::Error),
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum UpstreamError {
    /// The connection could not be opened.
    Unreachable(String),
    /// The connection broke, or the upstream sent invalid HTTP.
    Broken(WireError),
    /// The response, or opening a connection, took too long.
    TimedOut,
    /// All allowed connections are in use, and none became free in time.
    Busy,
    /// No upstream is configured for the request.
    NoUpstream,
    /// The client's body was invalid or incomplete.
    ByClient,
}

impl UpstreamError {
    /// Returns `true` if the error concerns one stream of an HTTP/2 connection, which itself stays open.
    pub(super) fn is_stream_reset(&self) -> bool {
        matches!(self, Self::Broken(WireError::Http2(error)) if error.is_reset())
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(reason) => write!(f, "cannot connect: {reason}"),
            Self::Broken(error) => write!(f, "connection failed: {error}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Busy => f.write_str("all connections are in use"),
            Self::NoUpstream => f.write_str("no upstream is configured"),
            Self::ByClient => f.write_str("the request body is invalid"),
        }
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("closed before the response was complete"),
            Self::InvalidHttp(reason) => write!(f, "invalid HTTP: {reason}"),
            Self::Body => f.write_str("the request body was aborted"),
            Self::Http2(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WireError {}
