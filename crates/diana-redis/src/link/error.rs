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
    /// Redis does not let us in, or does not let us do this.
    #[error("{0}")]
    Refused(String),
    /// Redis lacks what the scripts need.
    #[error("{0}")]
    TooOld(String),
    #[error("the script is not loaded")]
    NoScript,
    /// The script ran after its deadline, and charged nothing.
    #[error("Redis came to the request after its deadline, and charged nothing")]
    Late,
    /// The script broke off, so a key that it read is none of Diana's. What it wrote before is written.
    #[error("{0}")]
    Failed(String),
    /// Redis works, but this request can't be answered.
    #[error("{0}")]
    Unanswerable(String),
    /// The same, but it may be answered later. Nothing was taken.
    #[error("{0}")]
    NotNow(String),
}

impl CallError {
    /// Whether others who ask would fare no better.
    pub(crate) fn is_trouble(&self) -> bool {
        matches!(self, Self::Away(_) | Self::TimedOut(_) | Self::Refused(_) | Self::TooOld(_))
    }

    /// Whether the same call may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Self::Failed(_) | Self::Unanswerable(_))
    }

    /// Whether it is the fault of the call's keys, or of one of them: then the same call for fewer keys may succeed.
    pub(crate) fn is_of_keys(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Unanswerable(_) | Self::NotNow(_))
    }

    /// Whether Redis may have done what it was asked to, and nobody heard of it.
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
        // What matters of a cluster or a sentinel's master may be in the text alone.
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
            // The slot of the request's keys is being moved, and some of them are here and some there.
            ErrorKind::Server(ServerErrorKind::TryAgain) => Self::NotNow(text),
            _ if error.code() == Some("WRONGTYPE") => Self::Failed(text),
            _ => Self::Away(text),
        }
    }
}
