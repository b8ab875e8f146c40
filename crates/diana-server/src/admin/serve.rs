//! Connections: how many, and for how long.
//!
//! Health checks must be answered whatever else comes. So a new connection is always taken: when there are too many, or no file
//! descriptor is free, the oldest one that has no request under way is closed for it, else the oldest.

use crate::program_log::OncePerSecond;
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The most connections at a time, over all listeners.
const CONNECTIONS: usize = 128;
/// How long the head of a request may take, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection may last.
const LIFE: Duration = Duration::from_secs(600);
/// The largest head.
const LARGEST_HEAD: usize = 32 << 10;
/// How long is waited when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn serve(router: Router, listeners: Vec<TcpListener>) {
    let connections = Arc::new(Connections::default());
    let _ends_all = EndsAll(Arc::clone(&connections));
    let mut all = JoinSet::new();
    for listener in listeners {
        all.spawn(accept(router.clone(), listener, Arc::clone(&connections)));
    }
    while all.join_next().await.is_some() {}
}

/// The connections that are open, the oldest first.
#[derive(Default)]
struct Connections {
    open: Mutex<(u64, BTreeMap<u64, Connection>)>,
}

struct Connection {
    task: JoinHandle<()>,
    is_serving: Arc<AtomicBool>,
}

async fn accept(router: Router, listener: TcpListener, connections: Arc<Connections>) {
    let warnings = OncePerSecond::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                while connections.len() >= CONNECTIONS {
                    connections.close_one().await;
                }
                connections.add(router.clone(), stream);
            }
            Err(error) => {
                if warnings.check() {
                    tracing::warn!(%error, "admin: a connection could not be accepted");
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

    fn add(self: &Arc<Self>, router: Router, stream: TcpStream) {
        let mut open = self.open.lock();
        open.0 += 1;
        let number = open.0;
        let is_serving = Arc::new(AtomicBool::new(false));
        let (all, serving) = (Arc::clone(self), Arc::clone(&is_serving));
        let task = tokio::spawn(async move {
            talk(router, stream, serving).await;
            // The lock is free by then: whoever adds it does not wait for it.
            all.open.lock().1.remove(&number);
        });
        open.1.insert(number, Connection { task, is_serving });
    }

    /// Closes the connection that is missed least; returns whether there was one. Its descriptor is free afterwards.
    async fn close_one(&self) -> bool {
        let closed = {
            let mut open = self.open.lock();
            let idle = open.1.iter().find(|(_, connection)| !connection.is_serving.load(Ordering::Relaxed));
            let number = idle.or_else(|| open.1.iter().next()).map(|(number, _)| *number);
            number.and_then(|number| open.1.remove(&number))
        };
        let Some(Connection { task, .. }) = closed else { return false };
        task.abort();
        // An error says that it was aborted.
        let _ = task.await;
        true
    }
}

/// Ends all connections when the server ends.
struct EndsAll(Arc<Connections>);

impl Drop for EndsAll {
    fn drop(&mut self) {
        self.0.open.lock().1.values().for_each(|connection| connection.task.abort());
    }
}

async fn talk(router: Router, stream: TcpStream, is_serving: Arc<AtomicBool>) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LARGEST_HEAD);
    let router = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        is_serving.store(true, Ordering::Relaxed);
        let (answer, is_serving) = (hyper::service::Service::call(&router, request), Arc::clone(&is_serving));
        async move {
            let answer = answer.await;
            is_serving.store(false, Ordering::Relaxed);
            answer
        }
    });
    let connection = server.serve_connection(TokioIo::new(stream), service);
    // Whoever goes away, or talks no HTTP, is not our fault; and nobody stays for ever.
    let _ = tokio::time::timeout(LIFE, connection).await;
}
