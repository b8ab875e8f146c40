//! One worker: a thread with its own runtime, which accepts connections and serves them until they end.

mod state;

pub(crate) use state::{RouteTarget, Store, WorkerState};

use crate::connection::ConnTimeouts;
use crate::connection::descriptors::{self, User};
use crate::http2::Http2;
use crate::listener::handshake::{self, Accepted, Protocol};
use crate::listener::{Certificates, ClientIo, ClientSocket};
use crate::service::{Connection, Requests};
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
const TIDY: Duration = Duration::from_secs(5);
/// How long accepting pauses when the system can't provide connections, usually because it is out of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// How long an idle client connection stays open at shutdown: a request may already be in transit.
const LAST_CALL: Duration = Duration::from_secs(1);

/// How many connections are still accepted at shutdown: those that were in the kernel's backlog.
const LAST_TAKEN: usize = 4096;

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
        let tidy = Arc::clone(&worker);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TIDY).await;
                tidy.upstreams.tidy();
            }
        });
        let (alive, mut all_gone) = mpsc::channel(1);
        let mut taking = Vec::new();
        for (listener, certificates) in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let tls = certificates.map(|certificates| certificates.acceptor());
            let take = Acceptor {
                worker: Arc::clone(&worker),
                conn_limit: Arc::clone(&conn_limit),
                tls,
                alive: alive.clone(),
            };
            taking.push(tokio::spawn(take.connections(listener, stop.clone())));
        }
        drop(alive);
        for taking in taking {
            let _ = taking.await;
        }
        worker.deadlines.stop();
        if tokio::time::timeout(worker.gateway.timeouts.stop, all_gone.recv()).await.is_err() {
            tracing::warn!("some connections did not end in time, and are cut");
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
    async fn connections(self, listener: tokio::net::TcpListener, mut stop: watch::Receiver<bool>) {
        let is_stopping = stop.clone();
        let mut stopped = pin!(async move {
            let _ = stop.wait_for(|stop| *stop).await;
        });
        let mut left = LAST_TAKEN;
        loop {
            // Under a flood, `accept` never returns `Pending`; the count bounds the loop.
            if *is_stopping.borrow() {
                left -= 1;
                if left == 0 {
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
                    self.worker.metrics.connection_refused();
                    if self.conn_limit.warnings.check() {
                        tracing::warn!("connections are closed: too few file descriptors are left");
                    }
                }
                Some(Ok((socket, peer))) => self.connection(socket, peer),
                Some(Err(error)) if is_about_us(&error) => {
                    if self.conn_limit.warnings.check() {
                        tracing::warn!("no connection can be taken: {error}");
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
        let most = self.worker.gateway.bounds.connections;
        if self.conn_limit.connections.fetch_add(1, Ordering::Relaxed) >= most {
            self.conn_limit.connections.fetch_sub(1, Ordering::Relaxed);
            self.worker.metrics.connection_refused();
            return;
        }
        self.worker.metrics.connection_opened();
        let counted = ConnGuard {
            worker: Arc::clone(&self.worker),
            conn_limit: Arc::clone(&self.conn_limit),
            _alive: self.alive.clone(),
        };
        let tls = self.tls.clone();
        tokio::spawn(serve(counted, socket, peer, tls));
    }
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        self.conn_limit.connections.fetch_sub(1, Ordering::Relaxed);
        self.worker.metrics.connection_closed();
    }
}

/// Returns `true` if this process can't accept connections, rather than one connection being broken already.
fn is_about_us(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Serves one connection until it ends.
async fn serve(counted: ConnGuard, socket: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>) {
    let worker = Arc::clone(&counted.worker);
    let gateway = &worker.gateway;
    let phase = Arc::new(ConnTimeouts::new(worker.deadlines.add(), gateway.timeouts.clone()));
    let socket = ClientSocket::new(socket);
    let client_left = socket.clone().closed();
    let opened = {
        let mut is_told = false;
        let mut opening = pin!(handshake::open(socket, peer, gateway, tls.as_ref()));
        poll_fn(|context| {
            if let Poll::Ready(opened) = opening.as_mut().poll(context) {
                return Poll::Ready(opened);
            }
            if worker.deadlines.is_stopping() && !is_told {
                is_told = true;
                phase.last_call(LAST_CALL);
            }
            phase.deadline().poll(context).map(|()| Ok(None))
        })
        .await
    };
    let Accepted { stream, conn_info, speaks } = match opened {
        Ok(Some(opened)) => opened,
        Ok(None) => return,
        Err(error) => {
            tracing::debug!("a connection of {peer} came to nothing: {error}");
            worker.metrics.connection_refused();
            return;
        }
    };
    let io = ClientIo::new(stream, Arc::clone(&phase), Arc::clone(&worker.metrics));
    let connection =
        Arc::new(Connection { worker: Arc::clone(&worker), conn_info, phase: Arc::clone(&phase), _counted: counted });
    let bounds = &gateway.bounds;
    let ended = match speaks {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            // One flat buffer for head and body. No `pipeline_flush`: it buffers responses without a bound.
            builder.max_headers(bounds.headers).max_buf_size(bounds.header.max(8 << 10)).writev(false);
            let connection = builder.serve_connection(TokioIo::new(io), Requests(connection)).with_upgrades();
            let stop = http1::UpgradeableConnection::graceful_shutdown;
            drive(pin!(connection), &phase, stop, client_left).await.map_err(|error| error.to_string())
        }
        Protocol::Http2 => {
            phase.speaks_http2();
            let mut connection = Box::pin(Http2::new(io, connection));
            // HTTP/2 reads all the time, so it sees the end of the stream itself.
            let client_left = std::future::pending();
            let ended = drive(connection.as_mut(), &phase, Http2::graceful_shutdown, client_left).await;
            ended.map_err(|error| error.to_string())
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection of {peer} broke: {error}");
    }
}

/// Drives a connection until it ends, its client disconnects during a request, a timeout expires, or the worker shuts
/// down. At shutdown it ends after the requests in flight. If there are none, it waits up to [`LAST_CALL`] for a
/// request that the client sent before it could know.
async fn drive<C: Future<Output = Result<(), E>>, E>(
    mut connection: Pin<&mut C>,
    phase: &ConnTimeouts,
    stop: impl Fn(Pin<&mut C>),
    client_left: impl Future<Output = ()>,
) -> Result<(), E> {
    let mut stopping = Stopping::No;
    let mut client_left = pin!(client_left);
    poll_fn(|context| {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            if phase.is_serving() && client_left.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let is_late = phase.deadline().poll(context).is_ready();
            // The connection has been polled once, so all buffered bytes have been seen.
            if stopping == Stopping::No && phase.deadline().all().is_stopping() {
                if phase.is_serving() || phase.is_http2() {
                    stopping = Stopping::Told;
                    stop(connection.as_mut());
                } else {
                    stopping = Stopping::LastCall { begun: phase.begun() };
                    phase.last_call(LAST_CALL);
                }
                continue;
            }
            if stopping == Stopping::Told && phase.is_http2() && !phase.is_serving() {
                // Graceful shutdown waits for a PING ack, which not every client sends.
                stopping = Stopping::Done;
                phase.last_call(LAST_CALL);
            }
            match stopping {
                // No request came, or the last one did.
                Stopping::LastCall { begun } if is_late || begun != phase.begun() => {
                    stopping = Stopping::Told;
                    stop(connection.as_mut());
                    if is_late {
                        // A client that has sent part of a head may never send the rest.
                        phase.last_call(LAST_CALL);
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
enum Stopping {
    No,
    /// The connection is idle and waits for a last request; `begun` is the number of requests so far.
    LastCall {
        begun: u32,
    },
    /// The connection ends as soon as possible.
    Told,
    /// All requests are answered; only the connection's end is awaited.
    Done,
}
