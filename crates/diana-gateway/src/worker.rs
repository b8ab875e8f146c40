//! One worker: a thread with its own runtime, which accepts connections.

mod state;

pub(crate) use state::{RouteTarget, WorkerState};

use crate::connection;
use crate::connection::descriptors::{self, User};
use crate::listener::Certificates;
use diana_metrics::OncePerSecond;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

/// How often idle connections to upstreams are cleaned up.
const CLOSE_IDLE_INTERVAL: Duration = Duration::from_secs(5);
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

/// A worker that has not been started.
pub(crate) struct Worker {
    pub(crate) worker: Arc<WorkerState>,
    pub(crate) listeners: Vec<(TcpListener, Option<Arc<Certificates>>)>,
    pub(crate) conn_limit: Arc<ConnLimit>,
    /// Becomes `true` at shutdown.
    pub(crate) stop: watch::Receiver<bool>,
}

/// Counts a connection as open until dropped. The worker ends when all are dropped.
pub(crate) struct ConnGuard {
    worker: Arc<WorkerState>,
    conn_limit: Arc<ConnLimit>,
    _alive: mpsc::Sender<Infallible>,
}

impl Worker {
    /// Serves until shutdown, and then until all connections have ended or `timeouts.stop` has passed.
    pub(crate) async fn run(self) -> std::io::Result<()> {
        let Self { worker, listeners, conn_limit, stop } = self;
        tokio::spawn(Arc::clone(&worker.deadlines).watch());
        let state = Arc::clone(&worker);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(CLOSE_IDLE_INTERVAL).await;
                state.upstreams.close_idle();
            }
        });
        let (alive, mut all_closed) = mpsc::channel(1);
        let mut acceptors = Vec::new();
        for (listener, certificates) in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let tls = certificates.map(|certificates| certificates.acceptor());
            let acceptor = Acceptor {
                worker: Arc::clone(&worker),
                conn_limit: Arc::clone(&conn_limit),
                tls,
                alive: alive.clone(),
            };
            acceptors.push(tokio::spawn(acceptor.run(listener, stop.clone())));
        }
        drop(alive);
        for acceptor in acceptors {
            let _ = acceptor.await;
        }
        worker.deadlines.stop();
        if tokio::time::timeout(worker.gateway.timeouts.stop, all_closed.recv()).await.is_err() {
            tracing::warn!("closing connections that did not end within `timeouts.stop`");
        }
        Ok(())
    }
}

/// Accepts connections from one socket.
#[derive(Clone)]
struct Acceptor {
    worker: Arc<WorkerState>,
    conn_limit: Arc<ConnLimit>,
    tls: Option<TlsAcceptor>,
    alive: mpsc::Sender<Infallible>,
}

impl Acceptor {
    async fn run(self, listener: tokio::net::TcpListener, mut stop: watch::Receiver<bool>) {
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
            let accepted = poll_fn(|context| match listener.poll_accept(context) {
                Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
                // Clients that are already connected are served before the worker stops.
                Poll::Pending => stopped.as_mut().poll(context).map(|()| None),
            })
            .await;
            match accepted {
                None => return,
                Some(Ok((socket, _))) if descriptors::is_reserved(&socket, User::Clients) => {
                    drop(socket);
                    self.worker.metrics.connection_rejected();
                    if self.conn_limit.warnings.check() {
                        tracing::warn!("closing new connections: too few file descriptors left");
                    }
                }
                Some(Ok((socket, peer))) => self.connection(socket, peer),
                Some(Err(error)) if is_local_error(&error) => {
                    if self.conn_limit.warnings.check() {
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
        tokio::spawn(connection::serve(guard, socket, peer, tls));
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
