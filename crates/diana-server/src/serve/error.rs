//! Errors of `diana serve`.

use diana_gateway::StartError;
use diana_rules::Problems;
use diana_rules::section::SectionNotRegistered;
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Why the program can't serve.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The rule file can't be read.
    Unreadable {
        /// The file.
        file: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The rule file is invalid.
    Problems(Problems),
    /// A section of the file was not parsed.
    Section(SectionNotRegistered),
    /// The shared store can't be used.
    Store(String),
    /// The sources of the rules can't be watched.
    Sources(String),
    /// The gateway can't start.
    Gateway(StartError),
    /// The admin server can't listen.
    Admin {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        error: io::Error,
    },
    /// The admin server would be reachable from other machines without a token.
    OpenAdmin(SocketAddr),
    /// The system denies threads or signal handlers.
    Runtime(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, error } => write!(f, "{file} can't be read: {error}"),
            Self::Problems(problems) => write!(f, "{problems}"),
            Self::Section(reason) => reason.fmt(f),
            Self::Store(reason) => write!(f, "`store.redis` can't be used: {reason}"),
            Self::Sources(reason) => write!(f, "the rules can't be loaded: {reason}"),
            Self::Gateway(reason) => reason.fmt(f),
            Self::Admin { address, error } => {
                write!(
                    f,
                    "can't listen on the admin address {address}: {error}; set another one with `admin: {{listen: ...}}`"
                )
            }
            Self::OpenAdmin(address) => {
                write!(
                    f,
                    "the admin address {address} is reachable from other machines; it needs `admin: {{token: ...}}`"
                )
            }
            Self::Runtime(error) => write!(f, "can't start threads or signal handlers: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<SectionNotRegistered> for ServeError {
    fn from(error: SectionNotRegistered) -> Self {
        Self::Section(error)
    }
}
