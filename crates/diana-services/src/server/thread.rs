//! One thread: accepts connections of all services, and serves them until they end.

use super::StartError;
use crate::envoy::EnvoyService;
use crate::resp::{self, RespState};
use diana::Engine;
use diana_metrics::{OncePerSecond, ServiceMetrics};
use diana_net::listen;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

/// A service on one thread.
#[derive(Clone)]
pub(super) enum Service {
    Envoy(EnvoyService),
    Resp(Engine, Arc<RespState>),
}

/// A service with connections of its own. (`http` is served by a gateway.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceKind {
    Envoy,
    Resp,
}

impl ServiceKind {
    /// Returns its name in the rule file, metrics and logs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::Resp => "resp",
        }
    }
}

/// A bound socket of one thread.
pub(super) struct Socket {
    pub(super) service: ServiceKind,
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
}

/// The state that all connections of one service share, over all threads.
pub(super) struct ServiceConnections {
    pub(super) kind: ServiceKind,
    pub(super) metrics: ServiceMetrics,
    /// The connections that may still be opened.
    pub(super) free: Semaphore,
    pub(super) warnings: Arc<OncePerSecond>,
    /// The timeout of a TLS handshake.
    pub(super) handshake_timeout: Duration,
}

/// A thread that has not been started.
pub(super) struct ServiceThread {
    pub(super) number: usize,
    pub(super) services: Vec<(Arc<ServiceConnections>, Service)>,
    pub(super) sockets: Vec<Socket>,
    pub(super) stop: watch::Receiver<bool>,
    /// The time that connections have to end after a stop signal.
    pub(super) stop_timeout: Duration,
}

impl ServiceThread {
    pub(super) fn spawn(self) -> Result<JoinHandle<()>, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let number = self.number;
        let run = move || {
            if let Err(error) = runtime.block_on(self.run()) {
                tracing::error!("service thread {number} failed: {error}");
            }
            // Aborts connections that did not end in time.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name(format!("service-{number}")).spawn(run).map_err(StartError::Thread)
    }

    async fn run(self) -> io::Result<()> {
        let (alive, mut all_closed) = mpsc::channel::<Infallible>(1);
        let mut acceptors = Vec::new();
        for Socket { service, listener, tls } in self.sockets {
            let Some((connections, service)) =
                self.services.iter().find(|(connections, _)| connections.kind == service).cloned()
            else {
                continue;
            };
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let (alive, stop, number) = (alive.clone(), self.stop.clone(), self.number);
            acceptors.push(tokio::spawn(async move {
                let (counted, stopping) = (Arc::clone(&connections), stop.clone());
                let accepted = move |accepted: Option<(TcpStream, SocketAddr)>| {
                    let guard = || ConnGuard::new(&counted, number, alive.clone());
                    let Some(((socket, peer), guard)) = accepted.and_then(|accepted| Some((accepted, guard()?))) else {
                        counted.metrics.shard(number).rejected.increment();
                        return;
                    };
                    tokio::spawn(connection(guard, service.clone(), socket, peer, tls.clone(), stopping.clone()));
                };
                listen::accept(listener, stop, &connections.warnings, accepted).await;
            }));
        }
        drop(alive);
        for acceptor in acceptors {
            let _ = acceptor.await;
        }
        if tokio::time::timeout(self.stop_timeout, all_closed.recv()).await.is_err() {
            tracing::warn!("closing connections of services that did not end in time");
        }
        Ok(())
    }
}

/// Counts a connection as open until dropped. The thread ends when all are dropped.
struct ConnGuard {
    connections: Arc<ServiceConnections>,
    thread: usize,
    _alive: mpsc::Sender<Infallible>,
}

impl ConnGuard {
    /// Returns `None` if the service has too many connections.
    fn new(connections: &Arc<ServiceConnections>, thread: usize, alive: mpsc::Sender<Infallible>) -> Option<Self> {
        connections.free.try_acquire().ok()?.forget();
        connections.metrics.shard(thread).connection_opened();
        Some(Self { connections: Arc::clone(connections), thread, _alive: alive })
    }
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        self.connections.free.add_permits(1);
        self.connections.metrics.shard(self.thread).connection_closed();
    }
}

async fn connection(
    guard: ConnGuard,
    service: Service,
    socket: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    mut stop: watch::Receiver<bool>,
) {
    let Some(tls) = tls else { return serve(service, socket, peer, stop).await };
    let accepted = tokio::select! {
        biased;
        accepted = tokio::time::timeout(guard.connections.handshake_timeout, tls.accept(socket)) => accepted,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    match accepted {
        Ok(Ok(stream)) => serve(service, stream, peer, stop).await,
        _ => guard.connections.metrics.shard(guard.thread).rejected.increment(),
    }
}

async fn serve(
    service: Service,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    mut stop: watch::Receiver<bool>,
) {
    match service {
        Service::Envoy(envoy) => envoy.serve(stream, peer, stop).await,
        Service::Resp(engine, state) => {
            let stop = async move {
                let _ = stop.wait_for(|stop| *stop).await;
            };
            // Errors of a client are not logged.
            let _ = resp::serve(stream, Some(peer), engine, state, stop).await;
        }
    }
}
