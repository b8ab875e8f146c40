//! Why a call failed, and what that implies for the link.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::time::Duration;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Redis was not called: the breaker is open.
    #[error("Redis is unreachable")]
    Open,
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection broke, or Redis is in the wrong state: a replica, out of memory, loading.
    #[error("{0}")]
    Away(String),
    /// Redis denied access, or the permission for this command.
    #[error("{0}")]
    Refused(String),
    /// Redis does not have a feature that the scripts need.
    #[error("{0}")]
    TooOld(String),
    #[error("the script is not loaded")]
    NoScript,
    /// The script ran after its deadline, and charged nothing.
    #[error("Redis came to the request after its deadline, and charged nothing")]
    Late,
    /// The script aborted, because a key that it read does not hold a Diana state. Its previous writes are kept.
    #[error("{0}")]
    Failed(String),
    /// Redis works, but this request can't be answered.
    #[error("{0}")]
    Unanswerable(String),
    /// The same, but a retry may succeed. Nothing was taken.
    #[error("{0}")]
    NotNow(String),
}

impl CallError {
    /// Returns `true` if other requests would fail too.
    pub(crate) fn is_trouble(&self) -> bool {
        matches!(self, Self::Away(_) | Self::TimedOut(_) | Self::Refused(_) | Self::TooOld(_))
    }

    /// Returns `true` if a retry may succeed.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Self::Failed(_) | Self::Unanswerable(_))
    }

    /// Returns `true` if one of the call's keys caused it: then the same call for fewer keys may succeed.
    pub(crate) fn is_of_keys(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Unanswerable(_) | Self::NotNow(_))
    }

    /// Returns `true` if Redis may have executed the call although no reply arrived.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Away(_))
    }

    pub(crate) fn nonsense() -> Self {
        Self::Unanswerable("Redis gave a reply that no script of Diana's gives".to_owned())
    }

    pub(crate) fn disagreement() -> Self {
        Self::Unanswerable("the script and the algorithm disagree; please report this".to_owned())
    }

    pub(crate) fn busy() -> Self {
        Self::NotNow("the key changes its parameters all the time; do two configurations compete?".to_owned())
    }
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        // For a cluster or a sentinel's master, the relevant code may be in the text alone.
        let text = error.to_string();
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::NoScript,
            ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => Self::Refused(text),
            _ if says(&["NOAUTH", "WRONGPASS", "AuthenticationFailed"]) => Self::Refused(text),
            // A script that failed; unless it did so because Redis can't write. (Before Redis 7 that is in the text.)
            ErrorKind::Server(ServerErrorKind::ResponseError)
                if !says(&["OOM ", "READONLY ", "MISCONF ", "NOREPLICAS "]) =>
            {
                Self::Failed(text)
            }
            // The slot of the request's keys is being moved, and the keys are on two nodes.
            ErrorKind::Server(ServerErrorKind::TryAgain) => Self::NotNow(text),
            _ if error.code() == Some("WRONGTYPE") => Self::Failed(text),
            _ => Self::Away(text),
        }
    }
}
