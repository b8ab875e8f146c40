//! All upstreams of a gateway, by address: what its workers share of them, and their status for metrics and the admin
//! API.

use super::health::Health;
use crate::connection::StartTime;
use crate::section::GatewaySection;
use diana::{Clock, SystemClock, Timestamp};
use diana_metrics::{UpstreamShard, UpstreamTotals};
use diana_rules::upstream_url::Upstream;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The route of an upstream that is used for requests without a route.
const DEFAULT_ROUTE: &str = "/";
/// The route of an upstream that only rules name.
const REROUTE: &str = "reroute";

/// What all workers share of one upstream.
#[derive(Debug, Default)]
pub(crate) struct SharedUpstream {
    pub(super) health: Health,
    /// The counts of each worker that uses it.
    workers: Mutex<Vec<Arc<UpstreamShard>>>,
}

impl SharedUpstream {
    /// Creates the counts of a worker.
    pub(super) fn add_worker(&self) -> Arc<UpstreamShard> {
        let counts = Arc::<UpstreamShard>::default();
        self.workers.lock().push(Arc::clone(&counts));
        counts
    }
}

/// The upstreams of a gateway.
#[derive(Debug)]
pub(crate) struct UpstreamRegistry {
    start: StartTime,
    section: Arc<GatewaySection>,
    upstreams: Mutex<HashMap<Upstream, Arc<SharedUpstream>>>,
}

/// The status of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamStatus {
    /// Its address, as in the rule file.
    pub address: String,
    /// The matches of the routes that use it; `/` for requests without a route, `reroute` if only rules name it.
    pub routes: Vec<String>,
    /// Until when it gets no requests, after failures in a row; `None` if it is healthy.
    pub ejected_until: Option<Timestamp>,
    /// How often it was ejected.
    pub ejections: u64,
    /// Its requests, failures and connections.
    pub totals: UpstreamTotals,
}

/// Reads the status of the upstreams of a running gateway.
#[derive(Clone, Debug)]
pub struct UpstreamWatch(pub(crate) Arc<UpstreamRegistry>);

impl UpstreamRegistry {
    pub(crate) fn new(start: StartTime, section: Arc<GatewaySection>) -> Self {
        Self { start, section, upstreams: Mutex::default() }
    }

    /// Returns what all workers share of an upstream.
    pub(super) fn upstream(&self, upstream: &Upstream) -> Arc<SharedUpstream> {
        Arc::clone(self.upstreams.lock().entry(upstream.clone()).or_default())
    }

    /// Returns the routes of an upstream.
    fn routes(&self, upstream: &Upstream) -> Vec<String> {
        let is_default = self.section.upstream.contains(upstream).then(|| DEFAULT_ROUTE.to_owned());
        let named = self.section.routes.iter().filter(|route| route.upstream.contains(upstream));
        let mut routes = is_default.into_iter().chain(named.map(|route| route.matches.to_string())).collect::<Vec<_>>();
        if routes.is_empty() {
            routes.push(REROUTE.to_owned());
        }
        routes
    }
}

impl UpstreamWatch {
    /// Returns the status of each upstream that was used so far or that the section `gateway` names, by address.
    pub fn status(&self) -> Vec<UpstreamStatus> {
        let Self(registry) = self;
        let upstreams: Vec<_> =
            registry.upstreams.lock().iter().map(|(upstream, shared)| (upstream.clone(), Arc::clone(shared))).collect();
        let (now, elapsed) = (SystemClock.now(), registry.start.elapsed_millis());
        let mut all: Vec<_> = upstreams
            .into_iter()
            .map(|(upstream, shared)| {
                let mut totals = UpstreamTotals::default();
                shared.workers.lock().iter().for_each(|worker| totals.add(worker));
                UpstreamStatus {
                    address: upstream.to_string(),
                    routes: registry.routes(&upstream),
                    ejected_until: shared.health.ejected_for(elapsed).map(|time| now + Duration::from_millis(time)),
                    ejections: shared.health.ejections(),
                    totals,
                }
            })
            .collect();
        all.sort_by(|one, other| one.address.cmp(&other.address));
        all
    }
}
