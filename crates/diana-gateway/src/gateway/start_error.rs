//! The errors of starting a gateway.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Why a gateway can't start. Nothing is left running.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The gateway can't listen on an address.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A certificate or its key is invalid.
    Certificate(String),
    /// The CA certificates for upstreams are invalid.
    UpstreamCa(String),
    /// A thread can't be started.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        f.write_str("; it is in use by another program, or by another `listen`")
                    }
                    io::ErrorKind::PermissionDenied => f.write_str("; ports below 1024 need privileges"),
                    io::ErrorKind::AddrNotAvailable => f.write_str("; this machine does not have the address"),
                    _ => Ok(()),
                }
            }
            Self::Certificate(reason) => write!(f, "invalid TLS certificate: {reason}"),
            Self::UpstreamCa(reason) => write!(f, "invalid `upstream_ca`: {reason}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { error, .. } | Self::Thread(error) => Some(error),
            Self::Certificate(_) | Self::UpstreamCa(_) => None,
        }
    }
}
