//! Errors of setting up the store.

/// Why the store could not be created. An unreachable Redis is not an error: the store is created and connects later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is invalid.
    #[error(
        "invalid Redis URL `{url}`: {reason}; expected redis://HOST:PORT, rediss://HOST:PORT, \
         redis+cluster://HOST:PORT,HOST:PORT or redis+sentinel://HOST:PORT,HOST:PORT/MASTER"
    )]
    Url {
        /// The URL, without its password.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The prefix is not allowed in key names.
    #[error("invalid prefix `{prefix}`: {reason}")]
    Prefix {
        /// The prefix.
        prefix: String,
        /// The reason.
        reason: String,
    },
    /// Redis denied access: the password is missing or wrong, or the user lacks permissions.
    #[error(
        "Redis at `{url}` denied access: {reason}; set user and password in the URL, as in redis://USER:PASSWORD@HOST"
    )]
    AccessDenied {
        /// The URL, without its password.
        url: String,
        /// Redis's error message.
        reason: String,
    },
    /// Redis is older than 6.2.
    #[error("Redis at `{url}`: {reason}")]
    UnsupportedVersion {
        /// The URL, without its password.
        url: String,
        /// The version of Redis.
        reason: String,
    },
}

/// Why Redis can't store a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
#[non_exhaustive]
pub struct UnsupportedLimitError {
    /// The reason.
    pub reason: String,
}
