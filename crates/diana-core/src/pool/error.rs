//! Errors of a pool.

use std::time::Duration;

/// Why a pool returned no resource. `E` is the error of the function that creates one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError<E> {
    /// All resources stayed in use until the timeout, or the queue was full. Retry later, or wait longer.
    #[error(
        "pool `{pool}`: no {resource} free{} ({in_use} in use, {waiting} waiting, at most {max_waiting} may wait)",
        within.map(|time| format!(" within {}", spaced(time))).unwrap_or_default()
    )]
    NoneFree {
        /// The pool.
        pool: String,
        /// The name of its resources.
        resource: String,
        /// The timeout, if it has passed; `None` if the queue was full, or the request did not wait.
        within: Option<Duration>,
        /// The resources in use.
        in_use: u64,
        /// The number of queued requests, without this one.
        waiting: usize,
        /// The maximum number of queued requests.
        max_waiting: usize,
    },
    /// The source granted no permit for another resource, and none was returned meanwhile.
    #[cfg(feature = "async")]
    #[error(
        "pool `{pool}`: no {resource} free{}: {error}",
        within.map(|time| format!(" within {}", spaced(time))).unwrap_or_default()
    )]
    NoPermit {
        /// The pool.
        pool: String,
        /// The name of its resources.
        resource: String,
        /// The timeout, unless the request did not wait.
        within: Option<Duration>,
        /// Why the source granted none.
        #[source]
        error: crate::SourceError,
    },
    /// A resource could not be created. It may be tried again.
    #[error("pool `{pool}`: can't create a {resource}: {error}")]
    Create {
        /// The pool.
        pool: String,
        /// The name of its resources.
        resource: String,
        /// The reason.
        #[source]
        error: E,
    },
}

/// Formats a time as in `200 ms` and `1.5 s`.
fn spaced(time: Duration) -> String {
    let text = format!("{time:?}");
    let unit = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    format!("{number} {unit}")
}
