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
    Unavailable(String),
    /// Redis denied access, or the permission for this command.
    #[error("{0}")]
    AccessDenied(String),
    /// Redis does not have a feature that the scripts need.
    #[error("{0}")]
    UnsupportedVersion(String),
    #[error("the script is not loaded")]
    NoScript,
    /// The script ran after its deadline, and charged nothing.
    #[error("the script ran after its deadline and charged nothing")]
    Late,
    /// The script aborted, because a key that it read does not hold a Diana state. Its previous writes are kept.
    #[error("{0}")]
    ScriptFailed(String),
    /// Redis works, but this request can't be answered.
    #[error("{0}")]
    Unanswerable(String),
    /// Redis works, and this request can't be answered now, but a retry may succeed. Nothing was taken.
    #[error("{0}")]
    Transient(String),
}

impl CallError {
    /// Returns `true` if other requests would fail too.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::TimedOut(_) | Self::AccessDenied(_) | Self::UnsupportedVersion(_))
    }

    /// Returns `true` if Redis will never work with this configuration.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self, Self::AccessDenied(_) | Self::UnsupportedVersion(_))
    }

    /// Returns `true` if a retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        !matches!(self, Self::ScriptFailed(_) | Self::Unanswerable(_))
    }

    /// Returns `true` if one of the call's keys caused it: then the same call for fewer keys may succeed.
    pub(crate) fn is_caused_by_keys(&self) -> bool {
        matches!(self, Self::ScriptFailed(_) | Self::Unanswerable(_) | Self::Transient(_))
    }

    /// Returns `true` if Redis may have executed the call although no reply arrived.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Unavailable(_))
    }

    pub(crate) fn invalid_reply() -> Self {
        Self::Unanswerable("unexpected reply from Redis".to_owned())
    }

    pub(crate) fn disagreement() -> Self {
        Self::Unanswerable("the script and the algorithm disagree; please report this".to_owned())
    }

    pub(crate) fn busy() -> Self {
        Self::Transient("the parameters of the key keep changing; check whether two configurations compete".to_owned())
    }
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        // For a cluster or a sentinel's master, the relevant code may be in the text alone.
        let text = error.to_string();
        let contains = |codes: &[&str]| codes.iter().any(|code| text.contains(code));
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::NoScript,
            ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => Self::AccessDenied(text),
            _ if contains(&["NOAUTH", "WRONGPASS", "AuthenticationFailed"]) => Self::AccessDenied(text),
            // A script that failed; unless it did so because Redis can't write. (Before Redis 7 that is in the text.)
            ErrorKind::Server(ServerErrorKind::ResponseError)
                if !contains(&["OOM ", "READONLY ", "MISCONF ", "NOREPLICAS "]) =>
            {
                Self::ScriptFailed(text)
            }
            // The slot of the request's keys is being moved, and the keys are on two nodes.
            ErrorKind::Server(ServerErrorKind::TryAgain) => Self::Transient(text),
            _ if error.code() == Some("WRONGTYPE") => Self::ScriptFailed(text),
            _ => Self::Unavailable(text),
        }
    }
}
