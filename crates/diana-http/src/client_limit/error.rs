//! Errors of rate-limited client calls.

use diana::Retry;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a call failed: it was not granted, or the client itself failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientRateLimitError<E> {
    /// It was not granted. Nothing was sent, and nothing was charged.
    Overloaded(Overloaded),
    /// The client failed.
    Client(E),
}

/// A limit that does not grant a call within its maximum wait.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Overloaded {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The call's maximum wait.
    pub max_wait: Duration,
    /// When it would be granted.
    pub retry: Retry,
}

impl fmt::Display for Overloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, max_wait, retry } = self;
        write!(f, "call not sent: limit `{limit}` does not grant it within {max_wait:?}, ")?;
        match retry {
            Retry::After(wait) => write!(f, "retry after {wait:?}"),
            Retry::WhenReleased => f.write_str("retry when a permit is released"),
            Retry::Never => f.write_str("retrying does not help"),
        }
    }
}

impl Error for Overloaded {}

impl<E: fmt::Display> fmt::Display for ClientRateLimitError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overloaded(error) => error.fmt(f),
            Self::Client(error) => error.fmt(f),
        }
    }
}

impl<E: Error + 'static> Error for ClientRateLimitError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Overloaded(_) => None,
            Self::Client(error) => error.source(),
        }
    }
}
