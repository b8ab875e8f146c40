//! Accepts connections from a socket, up to the number that all workers may have open together.

use super::disconnect::ClientSocket;
use crate::connection;
use crate::connection::descriptors::{self, User};
use crate::worker::WorkerState;
use diana_metrics::OncePerSecond;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

/// How long accepting pauses when the system can't provide connections, usually because it is out of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// How many connections are still accepted at shutdown: those that were in the kernel's backlog.
const MAX_LAST_ACCEPTED: usize = 4096;

/// The state that all workers share.
#[derive(Debug, Default)]
pub(crate) struct ConnLimit {
    /// The number of open connections.
    connections: AtomicUsize,
    /// Throttles the warning that no connection can be accepted.
    warnings: OncePerSecond,
}

/// Counts a connection as open until dropped. The worker ends when all are dropped.
pub(crate) struct ConnGuard {
    worker: Arc<WorkerState>,
    conn_limit: Arc<ConnLimit>,
    _alive: mpsc::Sender<Infallible>,
}

/// Accepts connections from one socket.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub(crate) worker: Arc<WorkerState>,
    pub(crate) conn_limit: Arc<ConnLimit>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) alive: mpsc::Sender<Infallible>,
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

impl Acceptor {
    /// Accepts until shutdown, and then the connections that are already in the backlog.
    pub(crate) async fn run(self, listener: tokio::net::TcpListener, stop: watch::Receiver<bool>) {
        let accepted = |accepted: Option<(TcpStream, SocketAddr)>| match accepted {
            Some((socket, peer)) => self.connection(socket, peer),
            None => self.worker.metrics.connection_rejected(),
        };
        accept(listener, stop, &self.conn_limit.warnings, accepted).await;
    }

    fn connection(&self, socket: TcpStream, peer: SocketAddr) {
        let max = self.worker.gateway.bounds.connections;
        if self.conn_limit.connections.fetch_add(1, Ordering::Relaxed) >= max {
            self.conn_limit.connections.fetch_sub(1, Ordering::Relaxed);
            self.worker.metrics.connection_rejected();
            return;
        }
        self.worker.metrics.connection_opened();
        let guard = ConnGuard {
            worker: Arc::clone(&self.worker),
            conn_limit: Arc::clone(&self.conn_limit),
            _alive: self.alive.clone(),
        };
        let tls = self.tls.clone();
        tokio::spawn(connection::serve(guard, ClientSocket::new(socket), peer, tls));
    }
}

impl ConnGuard {
    /// Returns the worker that serves the connection.
    pub(crate) fn worker(&self) -> &Arc<WorkerState> {
        &self.worker
    }
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        self.conn_limit.connections.fetch_sub(1, Ordering::Relaxed);
        self.worker.metrics.connection_closed();
    }
}

/// Returns `true` if this process can't accept connections, rather than one connection being broken already.
fn is_local_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
