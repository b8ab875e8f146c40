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
                write!(f, "can't listen on {address}: {error}")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        f.write_str("; another program does, or another `listen` has the same port")
                    }
                    io::ErrorKind::PermissionDenied => f.write_str("; ports below 1024 need a privilege"),
                    io::ErrorKind::AddrNotAvailable => f.write_str("; this machine has no such address"),
                    _ => Ok(()),
                }
            }
            Self::Certificate(why) => write!(f, "TLS can't be served: {why}"),
            Self::UpstreamCa(why) => write!(f, "`upstream_ca` can't be used: {why}"),
            Self::Thread(error) => write!(f, "a thread can't be started: {error}"),
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
