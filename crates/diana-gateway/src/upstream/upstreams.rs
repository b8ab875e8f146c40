//! All upstreams of one worker, and the routing of requests to them.
//!
//! The routing is replaced when the upstreams or routes of the section `gateway` change. Upstreams that stay keep their
//! connections and their health; requests in flight keep the routing that they started with.

use super::balancer::{Balancer, Member};
use super::retry_budget::{GroupRetries, RetryBudget};
use super::{Connector, Endpoint, UpstreamRegistry};
use crate::section::{Balance, GatewaySection, UpstreamGroup};
use diana_http::HttpAttributes;
use diana_metrics::Shard;
use diana_net::coarse_timer::Deadlines;
use diana_rules::upstream_url::Upstream;
use http::request::Parts;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// All upstreams of one worker.
pub(crate) struct Upstreams {
    pub(super) connector: Connector,
    pub(super) deadlines: Arc<Deadlines>,
    /// The timeout for a response's head, and between two frames of its body.
    pub(super) timeout: Duration,
    /// Shared by all workers.
    registry: Arc<UpstreamRegistry>,
    pub(super) metrics: Arc<Shard>,
    endpoints: Mutex<HashMap<Upstream, Arc<Endpoint>>>,
}

/// The upstreams for each request, in one worker.
pub(crate) struct Routing {
    section: Arc<GatewaySection>,
    /// The upstreams for requests that match no route.
    default: Option<Arc<Balancer>>,
    /// The upstreams of each route, in the order of the file.
    routes: Vec<Arc<Balancer>>,
}

/// The retry budgets of all groups, in the order of [`GatewaySection::upstream_groups`]. All workers share them.
pub(crate) type RetryBudgets = Vec<Option<Arc<RetryBudget>>>;

impl Routing {
    /// Returns the upstreams for a request; `None` if no route matches and there is no default.
    pub(crate) fn balancer(&self, head: &Parts, client: IpAddr) -> Option<&Arc<Balancer>> {
        if self.has_routes()
            && let Some(route) = self.section.route(&HttpAttributes::of_head(head, Some(client)))
        {
            return self.routes.get(route);
        }
        self.default.as_ref()
    }

    pub(crate) fn has_routes(&self) -> bool {
        !self.routes.is_empty()
    }
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

    /// Creates the routing of these settings.
    pub(crate) fn routing(&self, section: &Arc<GatewaySection>, budgets: &RetryBudgets) -> Routing {
        let groups = section.upstream_groups().zip(budgets);
        let mut balancers = groups.map(|(group, budget)| Arc::new(self.balancer(group, budget.as_ref())));
        let default = balancers.next().filter(|_| !section.upstream.endpoints.is_empty());
        Routing { section: Arc::clone(section), default, routes: balancers.collect() }
    }

    fn balancer(&self, group: &UpstreamGroup, budget: Option<&Arc<RetryBudget>>) -> Balancer {
        let members = group.endpoints.iter().map(|weighted| {
            let endpoint = self.endpoint(&weighted.upstream);
            if group.balance == Balance::LeastRequests {
                endpoint.count_load();
            }
            let check = group.health.as_ref().map(|check| self.registry.active_health(&weighted.upstream, check));
            Member { endpoint, weight: weighted.weight, check }
        });
        Balancer::new(members.collect(), group.balance, budget.map(GroupRetries::new))
    }

    /// Returns an upstream of this worker.
    pub(super) fn endpoint(&self, upstream: &Upstream) -> Arc<Endpoint> {
        let mut endpoints = self.endpoints.lock();
        if let Some(endpoint) = endpoints.get(upstream) {
            return Arc::clone(endpoint);
        }
        let shared = self.registry.upstream(upstream);
        let endpoint = Arc::new(Endpoint::new(upstream.clone(), shared, Arc::clone(&self.metrics)));
        endpoints.insert(upstream.clone(), Arc::clone(&endpoint));
        endpoint
    }

    /// Removes upstreams. Their idle connections are closed, and the others after their requests.
    pub(crate) fn remove(&self, upstreams: &HashSet<Upstream>) {
        let removed: Vec<_> = {
            let mut endpoints = self.endpoints.lock();
            upstreams.iter().filter_map(|upstream| endpoints.remove(upstream)).collect()
        };
        drop(removed);
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn close_idle(&self) {
        let endpoints: Vec<_> = self.endpoints.lock().values().cloned().collect();
        endpoints.iter().for_each(|endpoint| endpoint.close_idle(self.deadlines.now()));
    }
}
