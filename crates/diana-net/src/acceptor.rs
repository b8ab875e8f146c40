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

use crate::connection::{Admission, ConnGuard, ConnLimit};
use crate::handler::Handler;
use crate::worker_state::WorkerState;
use crate::{ClientSocket, listen, serve_connection};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

/// Accepts connections from one socket.
pub(crate) struct Acceptor<H> {
    pub(crate) handler: Arc<H>,
    pub(crate) worker: Arc<WorkerState>,
    pub(crate) conn_limit: Arc<ConnLimit>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) alive: mpsc::Sender<Infallible>,
}

impl<H: Handler> Acceptor<H> {
    /// Accepts until shutdown, and then the connections that are already in the backlog.
    pub(crate) async fn run(self, listener: tokio::net::TcpListener, stop: watch::Receiver<bool>) {
        let accepted = |accepted: Option<(TcpStream, SocketAddr)>| match accepted {
            Some((socket, peer)) => self.connection(socket, peer),
            None => self.worker.metrics.connections_rejected.increment(),
        };
        listen::accept(listener, stop, &self.conn_limit.warnings, accepted).await;
    }

    fn connection(&self, socket: TcpStream, peer: SocketAddr) {
        let (socket, tls) = (ClientSocket::new(socket), self.tls.clone());
        if let Ok(place) = self.conn_limit.free.try_acquire() {
            place.forget();
            self.worker.metrics.connection_opened();
            let handler = Arc::clone(&self.handler);
            tokio::spawn(serve_connection::serve(handler, self.guard(Admission::Admitted), socket, peer, tls));
        } else if let Ok(place) = self.conn_limit.queue.try_acquire() {
            place.forget();
            self.worker.metrics.connections_queued.increment();
            let handler = Arc::clone(&self.handler);
            tokio::spawn(serve_queued(handler, self.guard(Admission::Queued), socket, peer, tls));
        } else {
            self.worker.metrics.connections_rejected.increment();
        }
    }

    fn guard(&self, admission: Admission) -> ConnGuard {
        ConnGuard::new(&self.worker, &self.conn_limit, admission, &self.alive)
    }
}

/// Serves a connection when another one is closed, or refuses it.
async fn serve_queued<H: Handler>(
    handler: Arc<H>,
    mut guard: ConnGuard,
    socket: ClientSocket,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
) {
    let timeout = guard.worker().settings.timeouts.accept;
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
    serve_connection::serve(handler, guard, socket, peer, tls).await;
}
