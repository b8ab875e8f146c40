//! From an accepted connection to the first bytes, which determine the HTTP version.

mod acceptor;
mod client_io;
pub(crate) mod first_bytes;

pub(crate) use acceptor::{Acceptor, Admission, ConnGuard, ConnLimit};
pub(crate) use client_io::{ClientIo, Stream};
