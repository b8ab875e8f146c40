//! One upstream in one worker: its idle connections, its counts, and its [health](super::health).

use super::http1::UpstreamConnection;
use super::registry::SharedUpstream;
use super::{Connector, UpstreamError, http2};
use diana_metrics::{Shard, UpstreamShard};
use diana_net::Protocol;
use diana_net::coarse_timer::Deadlines;
use diana_rules::upstream_url::{Scheme, Upstream};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// The maximum number of idle connections of a worker, and their maximum idle time, in milliseconds.
const MAX_IDLE: usize = 4_096;
const MAX_IDLE_TIME: u64 = 30_000;

/// One upstream in one worker.
pub(crate) struct Endpoint {
    pub(crate) upstream: Upstream,
    shared: Arc<SharedUpstream>,
    metrics: Arc<Shard>,
    /// The upstream's counts in this worker.
    pub(crate) counts: Arc<UpstreamShard>,
    /// The upstream's own name, for a request without a host.
    pub(super) authority: String,
    #[allow(clippy::vec_box, reason = "they are large, and are moved often")]
    idle: Mutex<Vec<Box<UpstreamConnection>>>,
    http2: Arc<http2::Pool>,
}

/// A request in flight at an upstream, until it is dropped.
pub(crate) struct InFlight {
    pub(crate) endpoint: Arc<Endpoint>,
    /// Whether it is counted for all workers.
    is_load: bool,
}

/// A connection that is ready for a request.
pub(super) enum PooledConn {
    /// `ConnAge` states whether it was used before: then the upstream may just be closing it.
    Http1(Box<UpstreamConnection>, ConnAge),
    Http2(http2::Slot, ConnAge),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnAge {
    Reused,
    New,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.endpoint.counts.in_flight.decrement();
        if self.is_load {
            self.endpoint.shared.load.remove();
        }
    }
}

impl Endpoint {
    pub(super) fn new(upstream: Upstream, shared: Arc<SharedUpstream>, metrics: Arc<Shard>) -> Self {
        let authority = upstream.authority();
        let http2 = Arc::new(http2::Pool::default());
        if upstream.scheme == Scheme::H2c {
            http2.set_known();
        }
        let counts = shared.add_worker();
        Self { upstream, shared, metrics, counts, authority, idle: Mutex::default(), http2 }
    }

    /// Counts a request, until the returned value is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.counts.in_flight.increment();
        let is_load = self.shared.load.add();
        InFlight { endpoint: Arc::clone(self), is_load }
    }

    /// Counts requests for all workers from now on.
    pub(super) fn count_load(&self) {
        self.shared.load.enable();
    }

    /// Returns the number of requests in flight of all workers, if it is counted.
    pub(super) fn load(&self) -> u64 {
        self.shared.load.get()
    }

    pub(super) fn is_healthy(&self, now: u64) -> bool {
        self.shared.health.is_healthy(now)
    }

    pub(super) fn succeeded(&self) {
        if self.shared.health.succeeded() {
            tracing::info!("upstream {} responds again", self.upstream);
        }
    }

    pub(super) fn failed(&self, error: &UpstreamError, now: u64) {
        if matches!(error, UpstreamError::ByClient) {
            return;
        }
        if matches!(error, UpstreamError::Busy) {
            tracing::debug!("upstream {}: {error}", self.upstream);
            return;
        }
        self.metrics.upstream_failures.increment();
        self.counts.unanswered.increment();
        if self.shared.health.failed(now) {
            tracing::warn!("upstream {} ejected: {error}", self.upstream);
        } else {
            tracing::debug!("upstream {} failed: {error}", self.upstream);
        }
    }

    /// Returns an idle connection, or opens a new one.
    pub(super) async fn ready(
        &self,
        connector: &Connector,
        deadlines: &Arc<Deadlines>,
    ) -> Result<PooledConn, UpstreamError> {
        let now = deadlines.now();
        if let Some(connection) = poll_fn(|context| Poll::Ready(self.idle(context, now))).await {
            return Ok(connection);
        }
        self.connect(connector, deadlines).await
    }

    /// Opens a new connection.
    pub(super) async fn connect(
        &self,
        connector: &Connector,
        deadlines: &Arc<Deadlines>,
    ) -> Result<PooledConn, UpstreamError> {
        // Many requests share an HTTP/2 connection, so they wait for one that is being opened.
        let _connecting = if self.http2.is_known() {
            match self.http2.wait(|| deadlines.now(), connector.timeout()).await? {
                http2::Checkout::Ready(slot) => return Ok(PooledConn::Http2(slot, ConnAge::Reused)),
                http2::Checkout::Connect(connecting) => Some(connecting),
                http2::Checkout::Wait => None,
            }
        } else {
            None
        };
        let (io, protocol) = connector.connect(&self.upstream, &self.counts).await?;
        Ok(match protocol {
            Protocol::Http1 => PooledConn::Http1(Box::new(UpstreamConnection::new(io, deadlines.add())), ConnAge::New),
            Protocol::Http2 => {
                let slot = self.http2.add(io, connector.timeout(), deadlines.now()).await?;
                PooledConn::Http2(slot, ConnAge::New)
            }
        })
    }

    /// Returns an idle connection, if there is one.
    pub(super) fn idle(&self, context: &mut std::task::Context<'_>, now: u64) -> Option<PooledConn> {
        // The most recently used connection is the least likely to be closed.
        while let Some(mut connection) = { self.idle.lock().pop() } {
            if connection.is_idle(context) {
                return Some(PooledConn::Http1(connection, ConnAge::Reused));
            }
        }
        if !self.http2.is_known() {
            return None;
        }
        self.http2.idle(now).map(|slot| PooledConn::Http2(slot, ConnAge::Reused))
    }

    /// Returns a connection to the pool after the end of its response.
    pub(super) fn release(self: &Arc<Self>, mut connection: Box<UpstreamConnection>) {
        if !connection.is_reusable() {
            return;
        }
        // The upstream responded before it had the whole request, and the client is still sending.
        if connection.is_sending() {
            let endpoint = Arc::clone(self);
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    if let Some(connection) = connection.sent().await {
                        endpoint.release(connection);
                    }
                });
            }
            return;
        }
        connection.last_used = connection.deadline().deadlines().now();
        connection.deadline().clear();
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn close_idle(&self, now: u64) {
        self.http2.close_idle(now, MAX_IDLE_TIME);
        let mut idle = self.idle.lock();
        let old = idle.iter().take_while(|connection| now.saturating_sub(connection.last_used) > MAX_IDLE_TIME).count();
        let closed: Vec<_> = idle.drain(..old).collect();
        drop(idle);
        drop(closed);
    }
}
