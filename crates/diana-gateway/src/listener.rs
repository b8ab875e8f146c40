//! From a bound address to a client's connection: sockets, the PROXY protocol, TLS, and the first bytes, which
//! determine the HTTP version.
//!
//! Several workers listen on the same address: the kernel assigns each connection to one of them.

mod acceptor;
mod certificate_status;
mod client_io;
mod disconnect;
pub(crate) mod first_bytes;
mod proxy_protocol;
mod tls;
mod tls_file;

pub use acceptor::accept;
pub(crate) use acceptor::{Acceptor, Admission, ConnGuard, ConnLimit};
pub use certificate_status::CertificateStatus;
pub use client_io::Rewind;
pub(crate) use client_io::{ClientIo, SHARED_READ, Stream, read_shared};
pub(crate) use disconnect::ClientSocket;
pub use tls::{CertificateError, Certificates};
pub use tls_file::{TlsFileError, check_authorities, check_pair};

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// The default of `bounds.backlog`: how many connections the kernel keeps until they are accepted.
pub const BACKLOG: u16 = 4_096;

/// Binds a socket for one worker. Other workers may bind the same address. The kernel keeps `backlog` connections until they are
/// accepted; further ones have to be tried again by their clients.
pub fn bind(address: SocketAddr, backlog: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` must not conflict on the same port.
        socket.set_only_v6(true)?;
    }
    // Accepted connections inherit the option, which saves a system call for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::from(backlog))?;
    Ok(socket.into())
}

/// Returns an error if another process listens on the address: workers share it with each other only.
pub fn check_free(address: SocketAddr) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())
}
