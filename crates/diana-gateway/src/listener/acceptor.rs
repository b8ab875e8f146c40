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

use crate::connection;
use crate::section::GatewayLimits;
use crate::worker::WorkerState;
use diana_metrics::OncePerSecond;
use diana_net::{ClientSocket, listen};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

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

impl Acceptor {
    /// Accepts until shutdown, and then the connections that are already in the backlog.
    pub(crate) async fn run(self, listener: tokio::net::TcpListener, stop: watch::Receiver<bool>) {
        let accepted = |accepted: Option<(TcpStream, SocketAddr)>| match accepted {
            Some((socket, peer)) => self.connection(socket, peer),
            None => self.worker.metrics.connection_rejected(),
        };
        listen::accept(listener, stop, &self.conn_limit.warnings, accepted).await;
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
