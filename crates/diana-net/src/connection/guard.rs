//! The number of open connections: of all workers together, and those that wait for one of them to be closed.

use crate::ClientBounds;
use crate::worker_state::WorkerState;
use diana_metrics::OncePerSecond;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// The state that all workers share.
#[derive(Debug)]
pub(crate) struct ConnLimit {
    /// The connections that may still be opened. Those in the queue are served in their order.
    pub(crate) free: Semaphore,
    /// The connections that may still be queued.
    pub(crate) queue: Semaphore,
    /// Throttles the warning that no connection can be accepted.
    pub(crate) warnings: OncePerSecond,
}

impl ConnLimit {
    pub(crate) fn new(bounds: &ClientBounds) -> Self {
        Self {
            free: Semaphore::new(bounds.connections),
            queue: Semaphore::new(bounds.accept_queue),
            warnings: OncePerSecond::default(),
        }
    }
}

/// Counts a connection until dropped. The worker ends when all are dropped.
#[derive(Debug)]
pub(crate) struct ConnGuard {
    worker: Arc<WorkerState>,
    pub(crate) conn_limit: Arc<ConnLimit>,
    admission: Admission,
    _alive: mpsc::Sender<Infallible>,
}

/// Whether a connection is one of those that may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// The connection waits for another one to be closed.
    Queued,
    /// The wait timed out: the next request gets 503, and the connection stays in the queue until then.
    Refused,
}

impl ConnGuard {
    /// Counts a connection.
    pub(crate) fn new(
        worker: &Arc<WorkerState>,
        conn_limit: &Arc<ConnLimit>,
        admission: Admission,
        alive: &mpsc::Sender<Infallible>,
    ) -> Self {
        Self { worker: Arc::clone(worker), conn_limit: Arc::clone(conn_limit), admission, _alive: alive.clone() }
    }

    /// Takes a place that has become free.
    pub(crate) fn admit(&mut self) {
        self.leave_queue();
        self.admission = Admission::Admitted;
        self.worker.metrics.connection_opened();
    }

    pub(crate) fn refuse(&mut self) {
        self.admission = Admission::Refused;
        self.worker.metrics.connections_rejected.increment();
        if self.conn_limit.warnings.check() {
            tracing::warn!(
                "refusing new connections: {} are open (`bounds.connections`)",
                self.worker.settings.bounds.connections
            );
        }
    }

    fn leave_queue(&self) {
        self.conn_limit.queue.add_permits(1);
        self.worker.metrics.connections_queued.decrement();
    }

    /// Returns whether the connection may be served.
    pub(crate) fn admission(&self) -> Admission {
        self.admission
    }

    /// Returns the worker that serves the connection.
    pub(crate) fn worker(&self) -> &Arc<WorkerState> {
        &self.worker
    }
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        match self.admission {
            Admission::Admitted => {
                self.conn_limit.free.add_permits(1);
                self.worker.metrics.connection_closed();
            }
            Admission::Queued | Admission::Refused => self.leave_queue(),
        }
    }
}
