//! One worker: a thread with its own runtime, which accepts connections and serves them until they end.

use crate::acceptor::Acceptor;
use crate::connection::ConnLimit;
use crate::handler::Handler;
use crate::tls::Certificates;
use crate::worker_state::WorkerState;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// The interval of a [`Handler`]'s upkeep, in milliseconds.
const UPKEEP_INTERVAL: u64 = 5_000;

/// A worker that has not been started.
pub(crate) struct Worker<H> {
    pub(crate) handler: Arc<H>,
    pub(crate) worker: Arc<WorkerState>,
    pub(crate) listeners: Vec<(TcpListener, Option<Arc<Certificates>>)>,
    pub(crate) conn_limit: Arc<ConnLimit>,
    /// Changes with each tick of the [`Ticker`](crate::coarse_timer::Ticker).
    pub(crate) ticks: watch::Receiver<()>,
    /// Becomes `true` at shutdown.
    pub(crate) stop: watch::Receiver<bool>,
}

impl<H: Handler> Worker<H> {
    /// Serves until shutdown, and then until all connections have ended or `timeouts.stop` has passed.
    pub(crate) async fn run(self) -> std::io::Result<()> {
        let Self { handler, worker, listeners, conn_limit, ticks, stop } = self;
        tokio::spawn(watch_time(Arc::clone(&worker), Arc::clone(&handler), ticks));
        let (alive, mut all_closed) = mpsc::channel(1);
        let mut acceptors = Vec::new();
        for (listener, certificates) in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let tls = certificates.map(|certificates| certificates.acceptor());
            let acceptor = Acceptor {
                handler: Arc::clone(&handler),
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
        if tokio::time::timeout(worker.settings.timeouts.stop, all_closed.recv()).await.is_err() {
            tracing::warn!("closing connections that did not end within `timeouts.stop`");
        }
        Ok(())
    }
}

/// Does what is due at each tick: wakes the owners of overdue deadlines, and lets the handler do its upkeep.
async fn watch_time(worker: Arc<WorkerState>, handler: Arc<impl Handler>, mut ticks: watch::Receiver<()>) {
    let mut last_upkeep = worker.deadlines.now();
    while ticks.changed().await.is_ok() {
        worker.deadlines.scan();
        let now = worker.deadlines.now();
        if now.saturating_sub(last_upkeep) >= UPKEEP_INTERVAL {
            last_upkeep = now;
            handler.upkeep();
        }
    }
}
