//! Round-robin balancing over upstreams, and all upstreams of a worker.

use super::{Connector, Endpoint, UpstreamRegistry};
use crate::connection::Deadlines;
use diana_metrics::Shard;
use diana_rules::upstream_url::Upstream;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// All upstreams of one worker.
pub(crate) struct Upstreams {
    pub(super) connector: Connector,
    pub(super) deadlines: Arc<Deadlines>,
    /// The timeout for a response's head, and between two frames of its body.
    pub(super) timeout: Duration,
    /// Shared by all workers.
    registry: Arc<UpstreamRegistry>,
    metrics: Arc<Shard>,
    endpoints: Mutex<HashMap<Upstream, Arc<Endpoint>>>,
}

/// Upstreams that serve the same requests, selected round-robin.
pub(crate) struct Balancer {
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    next: AtomicUsize,
}

impl Upstreams {
    pub(crate) fn new(
        connector: Connector,
        deadlines: Arc<Deadlines>,
        timeout: Duration,
        registry: Arc<UpstreamRegistry>,
        metrics: Arc<Shard>,
    ) -> Self {
        Self { connector, deadlines, timeout, registry, metrics, endpoints: Mutex::default() }
    }

    /// Creates the balancer of a route.
    pub(crate) fn balancer(&self, upstreams: &[Upstream]) -> Balancer {
        let endpoints = upstreams.iter().map(|upstream| self.endpoint(upstream)).collect::<Vec<_>>();
        Balancer { endpoints, next: AtomicUsize::new(0) }
    }

    fn endpoint(&self, upstream: &Upstream) -> Arc<Endpoint> {
        let mut endpoints = self.endpoints.lock();
        if let Some(endpoint) = endpoints.get(upstream) {
            return Arc::clone(endpoint);
        }
        let shared = self.registry.upstream(upstream);
        let endpoint = Arc::new(Endpoint::new(upstream.clone(), shared, Arc::clone(&self.metrics)));
        endpoints.insert(upstream.clone(), Arc::clone(&endpoint));
        endpoint
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn close_idle(&self) {
        let endpoints: Vec<_> = self.endpoints.lock().values().cloned().collect();
        endpoints.iter().for_each(|endpoint| endpoint.close_idle(self.deadlines.now()));
    }
}

impl Balancer {
    /// Returns the next healthy upstream, or the next one if none is healthy.
    pub(super) fn next(&self, now: u64) -> &Arc<Endpoint> {
        let length = self.endpoints.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let order = (0..length).map(|offset| &self.endpoints[(first.wrapping_add(offset)) % length]);
        order.clone().find(|endpoint| endpoint.is_healthy(now)).unwrap_or(&self.endpoints[first % length])
    }
}
