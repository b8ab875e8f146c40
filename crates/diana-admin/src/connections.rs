//! Connections: how many, and for how long.
//!
//! Health checks must always be answered, so a new connection is always accepted: if there are too many, or no file
//! descriptor is free, the oldest connection without an active request is closed for it, else the oldest.

use axum::Router;
use axum::extract::Request;
use diana_metrics::OncePerSecond;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The maximum number of connections, over all listeners.
const MAX_CONNECTIONS: usize = 128;
/// The timeout for the head of a request, and for an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum lifetime of a connection.
const MAX_LIFETIME: Duration = Duration::from_secs(600);
/// The largest head in bytes.
const MAX_HEAD: usize = 32 << 10;
/// The pause after a failed accept if no connection could be closed.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn serve(router: Router, listeners: Vec<TcpListener>) {
    let connections = Arc::new(Connections::default());
    let _guard = AbortGuard(Arc::clone(&connections));
    let mut acceptors = JoinSet::new();
    for listener in listeners {
        acceptors.spawn(accept(router.clone(), listener, Arc::clone(&connections)));
    }
    while acceptors.join_next().await.is_some() {}
}

/// The open connections, the oldest first.
#[derive(Default)]
struct Connections {
    open: Mutex<(u64, BTreeMap<u64, Connection>)>,
}

struct Connection {
    task: JoinHandle<()>,
    is_serving: Arc<AtomicBool>,
}

/// The address of a request's client, in the request's extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientAddress(pub(super) SocketAddr);

async fn accept(router: Router, listener: TcpListener, connections: Arc<Connections>) {
    let warnings = OncePerSecond::default();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                while connections.len() >= MAX_CONNECTIONS {
                    connections.close_one().await;
                }
                connections.add(router.clone(), stream, client);
            }
            Err(error) => {
                if warnings.check() {
                    tracing::warn!(%error, "admin: cannot accept a connection");
                }
                if !connections.close_one().await {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

impl Connections {
    fn len(&self) -> usize {
        self.open.lock().1.len()
    }

    fn add(self: &Arc<Self>, router: Router, stream: TcpStream, client: SocketAddr) {
        let mut open = self.open.lock();
        open.0 += 1;
        let number = open.0;
        let is_serving = Arc::new(AtomicBool::new(false));
        let (connections, serving) = (Arc::clone(self), Arc::clone(&is_serving));
        let task = tokio::spawn(async move {
            serve_connection(router, stream, client, serving).await;
            // This can't deadlock: `add` releases the lock without waiting for this task.
            connections.open.lock().1.remove(&number);
        });
        open.1.insert(number, Connection { task, is_serving });
    }

    /// Closes the connection that matters least; returns whether there was one. Its descriptor is free afterwards.
    async fn close_one(&self) -> bool {
        let closed = {
            let mut open = self.open.lock();
            let idle = open.1.iter().find(|(_, connection)| !connection.is_serving.load(Ordering::Relaxed));
            let number = idle.or_else(|| open.1.iter().next()).map(|(number, _)| *number);
            number.and_then(|number| open.1.remove(&number))
        };
        let Some(Connection { task, .. }) = closed else { return false };
        task.abort();
        // An error means that it was aborted.
        let _ = task.await;
        true
    }
}

/// Closes all connections when the server is dropped.
struct AbortGuard(Arc<Connections>);

impl Drop for AbortGuard {
    fn drop(&mut self) {
        self.0.open.lock().1.values().for_each(|connection| connection.task.abort());
    }
}

async fn serve_connection(router: Router, stream: TcpStream, client: SocketAddr, is_serving: Arc<AtomicBool>) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD);
    let router = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ClientAddress(client));
        is_serving.store(true, Ordering::Relaxed);
        let (response, is_serving) = (hyper::service::Service::call(&router, request), Arc::clone(&is_serving));
        async move {
            let response = response.await;
            is_serving.store(false, Ordering::Relaxed);
            response
        }
    });
    let connection = server.serve_connection(TokioIo::new(stream), service);
    // Errors of the client are not logged, and `MAX_LIFETIME` bounds every connection.
    let _ = tokio::time::timeout(MAX_LIFETIME, connection).await;
}
