//! One worker: a thread with its own runtime, which accepts connections and serves them until they end.

mod state;

pub(crate) use state::{RouteTarget, WorkerState};

use crate::connection::descriptors::{self, User};
use crate::connection::{ConnTimeouts, Connection, Protocol};
use crate::http2::Http2;
use crate::listener::first_bytes::{self, Accepted};
use crate::listener::{Certificates, ClientIo, ClientSocket};
use crate::service::Requests;
use diana_metrics::OncePerSecond;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::{SocketAddr, TcpListener};
use std::pin::{Pin, pin};
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

/// How long an idle client connection stays open at shutdown: a request may already be in transit.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

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
        tokio::spawn(serve(guard, socket, peer, tls));
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

/// Serves one connection until it ends.
async fn serve(guard: ConnGuard, socket: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>) {
    let worker = Arc::clone(&guard.worker);
    let gateway = &worker.gateway;
    let timeouts = Arc::new(ConnTimeouts::new(worker.deadlines.add(), gateway.timeouts.clone()));
    let socket = ClientSocket::new(socket);
    let client_disconnected = socket.clone().closed();
    let accepted = {
        let mut is_deadline_set = false;
        let mut handshake = pin!(first_bytes::open(socket, peer, gateway, tls.as_ref()));
        poll_fn(|context| {
            if let Poll::Ready(accepted) = handshake.as_mut().poll(context) {
                return Poll::Ready(accepted);
            }
            if worker.deadlines.is_stopping() && !is_deadline_set {
                is_deadline_set = true;
                timeouts.set_shutdown_deadline(SHUTDOWN_GRACE);
            }
            timeouts.deadline().poll(context).map(|()| Ok(None))
        })
        .await
    };
    let Accepted { stream, conn_info, protocol } = match accepted {
        Ok(Some(accepted)) => accepted,
        Ok(None) => return,
        Err(error) => {
            tracing::debug!("the handshake with {peer} failed: {error}");
            worker.metrics.connection_rejected();
            return;
        }
    };
    let io = ClientIo::new(stream, Arc::clone(&timeouts), Arc::clone(&worker.metrics));
    let connection =
        Arc::new(Connection { worker: Arc::clone(&worker), conn_info, timeouts: Arc::clone(&timeouts), _guard: guard });
    let bounds = &gateway.bounds;
    let ended = match protocol {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            // One flat buffer for head and body. No `pipeline_flush`: it buffers responses without a bound.
            builder.max_headers(bounds.headers).max_buf_size(bounds.header.max(8 << 10)).writev(false);
            let connection = builder.serve_connection(TokioIo::new(io), Requests(connection)).with_upgrades();
            let stop = http1::UpgradeableConnection::graceful_shutdown;
            drive(pin!(connection), &timeouts, stop, client_disconnected).await.map_err(|error| error.to_string())
        }
        Protocol::Http2 => {
            timeouts.set_http2();
            let mut connection = Box::pin(Http2::new(io, connection));
            // HTTP/2 reads all the time, so it sees the end of the stream itself.
            let client_disconnected = std::future::pending();
            let ended = drive(connection.as_mut(), &timeouts, Http2::graceful_shutdown, client_disconnected).await;
            ended.map_err(|error| error.to_string())
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection of {peer} failed: {error}");
    }
}

/// Drives a connection until it ends, its client disconnects during a request, a timeout expires, or the worker shuts
/// down. At shutdown it ends after the requests in flight. If there are none, it waits up to [`SHUTDOWN_GRACE`] for a
/// request that the client sent before it could know.
async fn drive<C: Future<Output = Result<(), E>>, E>(
    mut connection: Pin<&mut C>,
    timeouts: &ConnTimeouts,
    stop: impl Fn(Pin<&mut C>),
    client_disconnected: impl Future<Output = ()>,
) -> Result<(), E> {
    let mut shutdown = Shutdown::No;
    let mut client_disconnected = pin!(client_disconnected);
    poll_fn(|context| {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            if timeouts.is_serving() && client_disconnected.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let is_late = timeouts.deadline().poll(context).is_ready();
            // The connection has been polled once, so all buffered bytes have been seen.
            if shutdown == Shutdown::No && timeouts.deadline().all().is_stopping() {
                if timeouts.is_serving() || timeouts.is_http2() {
                    shutdown = Shutdown::Closing;
                    stop(connection.as_mut());
                } else {
                    shutdown = Shutdown::Grace { started: timeouts.started() };
                    timeouts.set_shutdown_deadline(SHUTDOWN_GRACE);
                }
                continue;
            }
            if shutdown == Shutdown::Closing && timeouts.is_http2() && !timeouts.is_serving() {
                // Graceful shutdown waits for a PING ack, which not every client sends.
                shutdown = Shutdown::Done;
                timeouts.set_shutdown_deadline(SHUTDOWN_GRACE);
            }
            match shutdown {
                // No request arrived, or the last one did.
                Shutdown::Grace { started } if is_late || started != timeouts.started() => {
                    shutdown = Shutdown::Closing;
                    stop(connection.as_mut());
                    if is_late {
                        // A client that has sent part of a head may never send the rest.
                        timeouts.set_shutdown_deadline(SHUTDOWN_GRACE);
                    }
                }
                _ if is_late => return Poll::Ready(Ok(())),
                _ => return Poll::Pending,
            }
        }
    })
    .await
}

/// How far the shutdown of a connection has progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// The connection is idle and waits for a last request; `started` is the number of requests so far.
    Grace {
        started: u32,
    },
    /// The connection ends as soon as possible.
    Closing,
    /// All requests are answered; only the connection's end is awaited.
    Done,
}
