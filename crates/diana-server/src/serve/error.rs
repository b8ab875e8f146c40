//! Errors of `diana serve`.

use diana::SnapshotError;
use diana_gateway::StartError;
use diana_rules::Problems;
use diana_rules::section::SectionNotRegistered;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The reason why the program can't serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The rule file can't be read.
    #[error("{file} can't be read: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The rule file is invalid.
    #[error(transparent)]
    Problems(Problems),
    /// A section of the file was not parsed.
    #[error(transparent)]
    Section(#[from] SectionNotRegistered),
    /// The shared store can't be used.
    #[error("`store.redis` can't be used: {0}")]
    Store(String),
    /// The file of the snapshot can't be read or written.
    #[error("`store.snapshot` can't be used: {0}")]
    Snapshot(#[source] SnapshotError),
    /// The sources of the rules can't be watched.
    #[error("the rules can't be loaded: {0}")]
    Sources(String),
    /// The gateway can't start.
    #[error(transparent)]
    Gateway(StartError),
    /// A service for other gateways can't start.
    #[error(transparent)]
    Services(diana_services::StartError),
    /// The admin server can't listen.
    #[error("can't listen on the admin address {address}: {error}; set another one with `admin: {{listen: ...}}`")]
    Admin {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The admin server would be reachable from other machines without a token.
    #[error("the admin address {0} is reachable from other machines; it needs `admin: {{token: ...}}`")]
    OpenAdmin(SocketAddr),
    /// The file of the access log can't be opened.
    #[error("can't open the access log {}: {error}; set another file with `gateway: {{access_log: {{file: ...}}}}`", path.display())]
    AccessLog {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The file of the audit log can't be opened.
    #[error("can't open the audit log {}: {error}; set another file with `admin: {{audit_log: ...}}`", path.display())]
    AuditLog {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The system denies threads or signal handlers.
    #[error("can't start threads or signal handlers: {0}")]
    Runtime(#[source] io::Error),
}
