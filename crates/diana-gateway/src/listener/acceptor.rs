//! Accepts connections from a socket, up to the number that all workers may have open together.
//!
//! ```text
//!             a place is free
//! accepted ───────────────────────────────────────────────▶ served
//!    │                                                         ▲
//!    └─▶ queued for `timeouts.accept` ── a place becomes free ─┘
//!           │              └─ none does ─▶ its next request gets 503, and it is closed
//!           └─ the queue is full ─▶ closed
//! ```

use super::disconnect::ClientSocket;
use crate::connection;
use crate::connection::descriptors::{self, User};
use crate::section::GatewayLimits;
use crate::worker::WorkerState;
use diana_metrics::OncePerSecond;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

/// How long accepting pauses when the system can't provide connections, usually because it is out of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// How many connections are still accepted at shutdown: those that were in the kernel's backlog.
const MAX_LAST_ACCEPTED: usize = 4096;

/// The state that all workers share.
#[derive(Debug)]
pub(crate) struct ConnLimit {
    /// The connections that may still be opened. Those in the queue are served in their order.
    free: Semaphore,
    /// The connections that may still be queued.
    queue: Semaphore,
    /// Throttles the warning that no connection can be accepted.
    warnings: OncePerSecond,
}

impl ConnLimit {
    pub(crate) fn new(bounds: &GatewayLimits) -> Self {
        Self {
            free: Semaphore::new(bounds.connections),
            queue: Semaphore::new(bounds.accept_queue),
            warnings: OncePerSecond::default(),
        }
    }
}

/// Counts a connection until dropped. The worker ends when all are dropped.
pub(crate) struct ConnGuard {
    worker: Arc<WorkerState>,
    conn_limit: Arc<ConnLimit>,
    admission: Admission,
    _alive: mpsc::Sender<Infallible>,
}

/// Whether a connection is one of those that may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// It waits for another one to be closed.
    Queued,
    /// It waited in vain: its next request gets 503, and it stays in the queue until then.
    Refused,
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
        let (socket, tls) = (ClientSocket::new(socket), self.tls.clone());
        if let Ok(place) = self.conn_limit.free.try_acquire() {
            place.forget();
            self.worker.metrics.connection_opened();
            tokio::spawn(connection::serve(self.guard(Admission::Admitted), socket, peer, tls));
        } else if let Ok(place) = self.conn_limit.queue.try_acquire() {
            place.forget();
            self.worker.metrics.connection_queued();
            tokio::spawn(serve_queued(self.guard(Admission::Queued), socket, peer, tls));
        } else {
            self.worker.metrics.connection_rejected();
        }
    }

    fn guard(&self, admission: Admission) -> ConnGuard {
        ConnGuard {
            worker: Arc::clone(&self.worker),
            conn_limit: Arc::clone(&self.conn_limit),
            admission,
            _alive: self.alive.clone(),
        }
    }
}

/// Serves a connection when another one is closed, or refuses it.
async fn serve_queued(mut guard: ConnGuard, socket: ClientSocket, peer: SocketAddr, tls: Option<TlsAcceptor>) {
    let timeout = guard.worker.gateway.timeouts.accept;
    let has_place = tokio::select! {
        place = tokio::time::timeout(timeout, guard.conn_limit.free.acquire()) => match place {
            Ok(Ok(place)) => {
                place.forget();
                true
            }
            _ => false,
        },
        () = socket.clone().closed() => return,
    };
    if has_place {
        guard.admit();
    } else {
        guard.refuse();
    }
    connection::serve(guard, socket, peer, tls).await;
}

impl ConnGuard {
    /// Takes a place that has become free.
    fn admit(&mut self) {
        self.leave_queue();
        self.admission = Admission::Admitted;
        self.worker.metrics.connection_opened();
    }

    fn refuse(&mut self) {
        self.admission = Admission::Refused;
        self.worker.metrics.connection_rejected();
        if self.conn_limit.warnings.check() {
            tracing::warn!(
                "refusing new connections: {} are open (`bounds.connections`)",
                self.worker.gateway.bounds.connections
            );
        }
    }

    fn leave_queue(&self) {
        self.conn_limit.queue.add_permits(1);
        self.worker.metrics.connection_dequeued();
    }

    /// Whether the connection may be served.
    pub(crate) fn admission(&self) -> Admission {
        self.admission
    }

    /// Returns the worker that serves the connection.
    pub(crate) fn worker(&self) -> &Arc<WorkerState> {
        &self.worker
    }
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        match self.admission {
            Admission::Admitted => {
                self.conn_limit.free.add_permits(1);
                self.worker.metrics.connection_closed();
            }
            Admission::Queued | Admission::Refused => self.leave_queue(),
        }
    }
}

/// Returns `true` if this process can't accept connections, rather than one connection being broken already.
fn is_local_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
