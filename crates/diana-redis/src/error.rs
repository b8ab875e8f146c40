//! What is wrong with the way to Redis, at the start.

/// Why there is no store. That Redis does not answer is no reason: the store is there all the same, and finds it later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL makes no sense.
    #[error(
        "Redis URL `{url}`: {reason}; expected redis://HOST:PORT, rediss://HOST:PORT, \
         redis+cluster://HOST:PORT,HOST:PORT or redis+sentinel://HOST:PORT,HOST:PORT/MASTER"
    )]
    Url {
        /// The URL, without its password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The prefix can't be part of the names of keys.
    #[error("prefix `{prefix}`: {reason}")]
    Prefix {
        /// The prefix.
        prefix: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Redis does not let us in: no password, a wrong one, or a user without the rights.
    #[error(
        "Redis at `{url}` refuses us: {reason}; put user and password into the URL, as in redis://USER:PASSWORD@HOST"
    )]
    Refused {
        /// The URL, without its password.
        url: String,
        /// What Redis said.
        reason: String,
    },
    /// Redis is older than 6.2.
    #[error("Redis at `{url}`: {reason}")]
    TooOld {
        /// The URL, without its password.
        url: String,
        /// Which version it is.
        reason: String,
    },
}
