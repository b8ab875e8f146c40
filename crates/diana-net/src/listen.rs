//! Sockets that several workers listen on, and accepting from them: the kernel assigns each connection to one worker.

use crate::descriptors::{self, User};
use diana_metrics::OncePerSecond;
use socket2::{Domain, Protocol, Socket, Type};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The pause in accepting when the system can't provide connections, usually because it is out of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The maximum number of connections that are still accepted at shutdown: those that were in the kernel's backlog.
const MAX_LAST_ACCEPTED: usize = 4096;

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

/// Accepts connections until shutdown, and then those that are already in the backlog. Passes each to `accepted`; `None` for
/// one that was closed, since too few file descriptors are left. At most one warning per second is logged.
pub async fn accept(
    listener: tokio::net::TcpListener,
    mut stop: watch::Receiver<bool>,
    warnings: &OncePerSecond,
    accepted: impl Fn(Option<(TcpStream, SocketAddr)>),
) {
    let is_stopping = stop.clone();
    let mut stopped = pin!(async move {
        let _ = stop.wait_for(|stop| *stop).await;
    });
    let mut remaining = MAX_LAST_ACCEPTED;
    loop {
        // Under a flood, `accept` never returns `Pending`; the count bounds the loop.
        if *is_stopping.borrow() {
            remaining -= 1;
            if remaining == 0 {
                return;
            }
        }
        let next = poll_fn(|context| match listener.poll_accept(context) {
            Poll::Ready(next) => Poll::Ready(Some(next)),
            // Clients that are already connected are served before the worker stops.
            Poll::Pending => stopped.as_mut().poll(context).map(|()| None),
        })
        .await;
        match next {
            None => return,
            Some(Ok((socket, _))) if descriptors::is_reserved(&socket, User::Clients) => {
                drop(socket);
                accepted(None);
                if warnings.check() {
                    tracing::warn!("closing new connections: too few file descriptors left");
                }
            }
            Some(Ok(connection)) => accepted(Some(connection)),
            Some(Err(error)) if is_local_error(&error) => {
                if warnings.check() {
                    tracing::warn!("cannot accept connections: {error}");
                }
                // While this error lasts, `accept` never returns `Pending`, so shutdown is checked here.
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = stopped.as_mut() => return,
                }
            }
            Some(Err(_)) => {}
        }
    }
}

/// Returns `true` if this process can't accept connections, rather than one connection being broken already.
fn is_local_error(error: &io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
