//! Errors of requests to the admin server. None of them has the token.

use std::time::Duration;
use thiserror::Error;

/// The reason why a request to the admin server failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum AdminError {
    #[error("invalid token: expected visible ASCII characters")]
    InvalidToken,
    #[error(
        "can't reach Diana's admin server at {admin}: {reason}; is `diana serve` running? (`--admin URL` or DIANA_ADMIN sets another address)"
    )]
    Unreachable { admin: String, reason: String },
    #[error("Diana's admin server at {admin} has not answered within {} seconds", after.as_secs())]
    TimedOut { admin: String, after: Duration },
    #[error("Diana's admin server at {admin} needs a token: set DIANA_TOKEN, or use `--token-file`")]
    MissingToken { admin: String },
    #[error(
        "Diana's admin server at {admin} rejects the token: compare it with `admin.token` and `admin.tokens` of the rule file"
    )]
    WrongToken { admin: String },
    #[error("Diana at {admin} has no `{path}`: it is an older version than this program, or not Diana")]
    UnknownPath { admin: String, path: &'static str },
    /// The server's own words about an invalid request, such as an unknown rule.
    #[error("{detail}")]
    Rejected { status: u16, detail: String },
    #[error("{admin} answered with status {status}; is it Diana's admin server?")]
    UnexpectedStatus { admin: String, status: u16 },
    #[error("unexpected response of {admin} to `{path}`: {reason}; is it Diana's admin server?")]
    UnexpectedResponse { admin: String, path: &'static str, reason: String },
}

impl AdminError {
    /// Returns whether another attempt may succeed without any change by the user.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::Rejected { status, .. } | Self::UnexpectedStatus { status, .. } => *status >= 500,
            _ => false,
        }
    }
}
