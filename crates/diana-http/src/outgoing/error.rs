//! Why a call that waits for its turn came to nothing.

use diana::core::Retry;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a call came to nothing: its turn did not come, or the client itself failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum OutgoingError<E> {
    /// Its turn did not come. Nothing was sent, and nothing was charged.
    TooBusy(TooBusy),
    /// The client failed.
    Client(E),
}

/// A limit that has no room within the patience.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TooBusy {
    /// The limit's name.
    pub limit: Arc<str>,
    /// How long the call would have waited.
    pub patience: Duration,
    /// When it would be granted.
    pub retry: Retry,
}

impl fmt::Display for TooBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, patience, retry } = self;
        write!(f, "limit `{limit}` has no room within {patience:?}, and nothing was sent: ")?;
        match retry {
            Retry::After(wait) => write!(f, "try again in {wait:?}"),
            Retry::WhenReturned => f.write_str("try again when other calls are done"),
            Retry::Never => f.write_str("waiting will not help"),
        }
    }
}

impl Error for TooBusy {}

impl<E: fmt::Display> fmt::Display for OutgoingError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooBusy(busy) => busy.fmt(f),
            Self::Client(error) => error.fmt(f),
        }
    }
}

impl<E: Error + 'static> Error for OutgoingError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::TooBusy(_) => None,
            Self::Client(error) => error.source(),
        }
    }
}
