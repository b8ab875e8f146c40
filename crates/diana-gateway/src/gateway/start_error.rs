//! The errors of starting a gateway.

use diana_http::UnknownFilter;
use std::io;
use std::net::SocketAddr;

/// Why a gateway can't start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The gateway can't listen on an address.
    #[error("cannot listen on {address}: {error}{}", listen_hint(error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        error: io::Error,
    },
    /// A certificate or its key is invalid.
    #[error("invalid TLS certificate: {0}")]
    Certificate(String),
    /// The CA certificates for upstreams are invalid.
    #[error("invalid `upstream_ca`: {0}")]
    UpstreamCa(String),
    /// The order of the filters names one that there is not.
    #[error("`filters` of `gateway`: {0}")]
    Filters(#[from] UnknownFilter),
    /// A thread can't be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// Returns the likely cause, to be appended to the message.
fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; it is in use by another program, or by another `listen`",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges",
        io::ErrorKind::AddrNotAvailable => "; this machine does not have the address",
        _ => "",
    }
}
