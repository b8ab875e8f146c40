//! Connections: how many, and for how long.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// The most connections at a time, over all listeners.
const CONNECTIONS: usize = 128;
/// How long the head of a request may take, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may last.
const LIFE: Duration = Duration::from_secs(600);
/// The largest head.
const LARGEST_HEAD: usize = 32 << 10;
/// What is waited when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn serve(router: Router, listeners: Vec<TcpListener>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut all = JoinSet::new();
    for listener in listeners {
        all.spawn(accept(router.clone(), listener, Arc::clone(&room)));
    }
    while all.join_next().await.is_some() {}
}

async fn accept(router: Router, listener: TcpListener, room: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    loop {
        // Those that have no room wait in the listener's own line.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => drop(connections.spawn(talk(router.clone(), stream, place))),
            Err(error) => {
                tracing::warn!(%error, "admin: a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn talk(router: Router, stream: TcpStream, place: OwnedSemaphorePermit) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LARGEST_HEAD);
    let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // Whoever goes away, or talks no HTTP, is not our fault; and nobody stays for ever.
    let _ = tokio::time::timeout(LIFE, connection).await;
    drop(place);
}
