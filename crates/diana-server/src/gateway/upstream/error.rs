//! What can go wrong with an upstream.

use std::{fmt, io};

/// What went wrong with a connection.
#[derive(Debug)]
pub(in crate::gateway) enum WireError {
    Io(io::Error),
    /// The upstream ended it too early.
    Closed,
    /// What came was no HTTP, and why.
    NoHttp(&'static str),
    /// The request's body broke off.
    Body,
    Http2(h2::Error),
}

/// Why no answer came.
#[derive(Debug)]
pub(in crate::gateway) enum UpstreamError {
    /// No connection came about.
    Unreachable(String),
    /// The connection broke, or what came was no HTTP.
    Broken(WireError),
    /// The answer, or a connection, took too long.
    TimedOut,
    /// All connections that there may be are in use, and none became free in time.
    Busy,
    /// There is no such upstream.
    Nowhere,
    /// The client's body was no good, or did not come.
    ByClient,
}

impl UpstreamError {
    /// Whether it is about one stream of an HTTP/2 connection, which itself goes on.
    pub(super) fn is_stream_reset(&self) -> bool {
        matches!(self, Self::Broken(WireError::Http2(error)) if error.is_reset())
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "it can't be reached: {why}"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::TimedOut => f.write_str("it took too long"),
            Self::Busy => f.write_str("all connections to it are in use"),
            Self::Nowhere => f.write_str("there is none"),
            Self::ByClient => f.write_str("the request's body was no good"),
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
            Self::Closed => f.write_str("it was closed before the answer was whole"),
            Self::NoHttp(why) => f.write_str(why),
            Self::Body => f.write_str("the request's body broke off"),
            Self::Http2(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WireError {}
