//! Why a call gave no answer, and what that says about the link.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::time::Duration;

/// Why a call gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Redis was not asked: it is known to be away.
    #[error("Redis is away")]
    Open,
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection broke, or Redis is not what it should be: a replica, out of memory, loading.
    #[error("{0}")]
    Away(String),
    #[error("the script is not loaded")]
    NoScript,
    /// The script ran after its deadline, and charged nothing.
    #[error("Redis came to the request after its deadline, and charged nothing")]
    Late,
    /// Redis works, but this request can't be answered.
    #[error("{0}")]
    Unanswerable(String),
}

impl CallError {
    pub(crate) fn nonsense() -> Self {
        Self::Unanswerable("Redis gave a reply that no script of Diana's gives".to_owned())
    }

    pub(crate) fn disagreement() -> Self {
        Self::Unanswerable("the script and the algorithm disagree; please report this".to_owned())
    }

    pub(crate) fn busy() -> Self {
        Self::Unanswerable("the key changes its parameters all the time; do two configurations compete?".to_owned())
    }
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::NoScript,
            // A script that failed; unless it did so because Redis can't write. (Before Redis 7 that is in the text.)
            ErrorKind::Server(ServerErrorKind::ResponseError)
                if !["OOM ", "READONLY ", "MISCONF ", "NOREPLICAS "]
                    .iter()
                    .any(|code| error.to_string().contains(code)) =>
            {
                Self::Unanswerable(error.to_string())
            }
            _ => Self::Away(error.to_string()),
        }
    }
}
