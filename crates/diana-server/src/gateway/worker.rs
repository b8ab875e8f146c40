//! One worker: a thread with a runtime of its own, which takes connections and serves them to their end.

use super::client_io::ClientIo;
use super::conn_timeouts::ConnTimeouts;
use super::handshake::{self, Accepted, Protocol};
use super::http2::Http2;
use super::service::{Connection, Requests};
use super::socket::Socket;
use super::tls::Certificates;
use super::worker_state::WorkerState;
use crate::descriptors::{self, User};
use crate::program_log::OncePerSecond;
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

/// How often connections to upstreams are looked through.
const TIDY: Duration = Duration::from_secs(5);
/// How long taking connections pauses when the system can't give any: out of file descriptors, mostly.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a client that is connected, and asks for nothing, is waited for when it is time to stop: a request may be on its way.
const LAST_CALL: Duration = Duration::from_secs(1);

/// How many connections are still taken once it is time to stop: those that were there before.
const LAST_TAKEN: usize = 4096;

/// What all workers know of each other.
#[derive(Debug)]
pub(super) struct ConnLimit {
    /// How many connections are open.
    connections: AtomicUsize,
    /// That no connection can be taken.
    warnings: OncePerSecond,
}

impl ConnLimit {
    pub(super) fn new() -> Self {
        Self { connections: AtomicUsize::new(0), warnings: OncePerSecond::new() }
    }
}

/// One worker, before it runs.
pub(super) struct Worker {
    pub(super) worker: Arc<WorkerState>,
    pub(super) listeners: Vec<(TcpListener, Option<Arc<Certificates>>)>,
    pub(super) conn_limit: Arc<ConnLimit>,
    /// Turns true when it is time to stop.
    pub(super) stop: watch::Receiver<bool>,
}

/// A connection that counts as open as long as this lives. When all are gone, so is the worker.
pub(super) struct ConnGuard {
    worker: Arc<WorkerState>,
    conn_limit: Arc<ConnLimit>,
    _alive: mpsc::Sender<Infallible>,
}

impl Worker {
    /// Serves until it is time to stop, and what was begun is done, or `timeouts.stop` is over.
    pub(super) async fn run(self) -> std::io::Result<()> {
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

/// Takes connections from one socket.
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
            // Under a flood there is always one more.
            if *is_stopping.borrow() {
                left -= 1;
                if left == 0 {
                    return;
                }
            }
            let accepted = poll_fn(|context| match listener.poll_accept(context) {
                Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
                // Those who are connected already are served before it stops.
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
                    // As long as this fails there is always a connection to be taken, so this is where it ends.
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

/// Whether the system can't give connections, rather than one of them being broken already.
fn is_about_us(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Serves one connection to its end.
async fn serve(counted: ConnGuard, socket: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>) {
    let worker = Arc::clone(&counted.worker);
    let gateway = &worker.gateway;
    let phase = Arc::new(ConnTimeouts::new(worker.deadlines.add(), gateway.timeouts.clone()));
    let socket = Socket::new(socket);
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
            // One flat buffer for head and body. Not `pipeline_flush`: with it an answer is buffered without any bound.
            builder.max_headers(bounds.headers).max_buf_size(bounds.header.max(8 << 10)).writev(false);
            let connection = builder.serve_connection(TokioIo::new(io), Requests(connection)).with_upgrades();
            let stop = http1::UpgradeableConnection::graceful_shutdown;
            drive(pin!(connection), &phase, stop, client_left).await.map_err(|error| error.to_string())
        }
        Protocol::Http2 => {
            phase.speaks_http2();
            let mut connection = Box::pin(Http2::new(io, connection));
            // It reads all the time, and so sees the end by itself.
            let client_left = std::future::pending();
            let ended = drive(connection.as_mut(), &phase, Http2::graceful_shutdown, client_left).await;
            ended.map_err(|error| error.to_string())
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection of {peer} broke: {error}");
    }
}

/// Drives a connection until it ends, its client leaves during a request, it is late, or it is told to stop. Then it ends after the requests under way, and if there are
/// none, after a moment in which one may still come: it was sent before its client could know.
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
            // It has been polled once, so what lies in its buffers has been seen.
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
                // It says goodbye by a ping, which not everybody answers.
                stopping = Stopping::OverLimit;
                phase.last_call(LAST_CALL);
            }
            match stopping {
                // Nobody came, or somebody did, whose request was the last.
                Stopping::LastCall { begun } if is_late || begun != phase.begun() => {
                    stopping = Stopping::Told;
                    stop(connection.as_mut());
                    if is_late {
                        // Who has sent half a head may not send the rest, and is waited for no longer.
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

/// How far a connection is with stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    No,
    /// It is idle, and waits a moment for a last request; so many it had before.
    LastCall {
        begun: u32,
    },
    /// It ends as soon as it can.
    Told,
    /// All is answered, and only its end has not come.
    OverLimit,
}
