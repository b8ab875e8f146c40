//! Errors of rate-limited client calls.

use diana::Retry;
use std::sync::Arc;
use std::time::Duration;

/// The reason why a call failed: it was not granted, or the client itself failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientRateLimitError<E> {
    /// The call was not granted. Nothing was sent, and nothing was charged.
    #[error(transparent)]
    Overloaded(Overloaded),
    /// The client failed.
    #[error(transparent)]
    Client(E),
}

/// A limit that does not grant a call within its maximum wait.
#[derive(Clone, Debug, thiserror::Error)]
#[error("call not sent: limit `{limit}` does not grant it within {max_wait:?}, {}", describe_retry(*retry))]
#[non_exhaustive]
pub struct Overloaded {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The call's maximum wait.
    pub max_wait: Duration,
    /// The time at which it would be granted.
    pub retry: Retry,
}

fn describe_retry(retry: Retry) -> String {
    match retry {
        Retry::After(wait) => format!("retry after {wait:?}"),
        Retry::WhenReleased => "retry when a permit is released".to_owned(),
        Retry::Never => "retrying does not help".to_owned(),
    }
}
