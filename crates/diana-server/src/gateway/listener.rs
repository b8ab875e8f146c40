//! Sockets that several workers listen on at once: the kernel hands each connection to one of them.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// How many connections wait to be taken before the kernel turns more away.
const BACKLOG: i32 = 4096;

/// A socket for one worker. Others may be bound to the same address.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        // `[::]` beside `0.0.0.0` must not fight over the same port.
        socket.set_only_v6(true)?;
    }
    // Connections inherit it, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Whether somebody else listens there already: workers share an address with each other, not with strangers.
pub(super) fn is_taken(address: SocketAddr) -> io::Result<()> {
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
