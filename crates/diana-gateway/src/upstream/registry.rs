//! All upstreams of a gateway, by address: what its workers share of them, and their status for metrics and the admin
//! API.

use super::checker::CheckTarget;
use super::health::{ActiveHealth, Health, Load};
use super::retry_budget::RetryBudget;
use super::upstreams::RetryBudgets;
use crate::section::{GatewaySection, HealthCheck};
use diana::{Clock, SystemClock};
use diana_metrics::{CheckStatus, UpstreamShard, UpstreamStatus, UpstreamTotals};
use diana_net::coarse_timer::StartTime;
use diana_rules::upstream_url::Upstream;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// The route of an upstream that is used for requests without a route.
const DEFAULT_ROUTE: &str = "/";
/// The route of an upstream that only rules name.
const REROUTE: &str = "reroute";

/// The state of one upstream that all workers share.
#[derive(Debug, Default)]
pub(crate) struct SharedUpstream {
    pub(super) health: Health,
    pub(super) load: Load,
    /// The state of each check of it: one, unless routes check it in different ways.
    checks: Mutex<Vec<(HealthCheck, Arc<ActiveHealth>)>>,
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

    /// Returns the state of a check.
    fn active_health(&self, check: &HealthCheck) -> Arc<ActiveHealth> {
        let mut checks = self.checks.lock();
        if let Some((_, health)) = checks.iter().find(|(known, _)| known == check) {
            return Arc::clone(health);
        }
        // If only the settings of a check change, the upstream keeps its state.
        let health = Arc::new(ActiveHealth::like(checks.iter().map(|(_, health)| health.is_passing())));
        checks.push((check.clone(), Arc::clone(&health)));
        health
    }
}

/// The upstreams of a gateway.
#[derive(Debug)]
pub(crate) struct UpstreamRegistry {
    start: StartTime,
    /// The active settings.
    section: Mutex<Arc<GatewaySection>>,
    upstreams: Mutex<HashMap<Upstream, Arc<SharedUpstream>>>,
}

/// Reads the status of the upstreams of a running gateway.
#[derive(Clone, Debug)]
pub struct UpstreamWatch(pub(crate) Arc<UpstreamRegistry>);

impl UpstreamRegistry {
    pub(crate) fn new(start: StartTime, section: Arc<GatewaySection>) -> Self {
        Self { start, section: Mutex::new(section), upstreams: Mutex::default() }
    }

    /// Returns the active settings.
    pub(crate) fn section(&self) -> Arc<GatewaySection> {
        Arc::clone(&self.section.lock())
    }

    /// Returns what all workers share of an upstream.
    pub(super) fn upstream(&self, upstream: &Upstream) -> Arc<SharedUpstream> {
        Arc::clone(self.upstreams.lock().entry(upstream.clone()).or_default())
    }

    /// Returns the state of a check of an upstream.
    pub(super) fn active_health(&self, upstream: &Upstream, check: &HealthCheck) -> Arc<ActiveHealth> {
        self.upstream(upstream).active_health(check)
    }

    /// Replaces the settings. Upstreams that they still name keep their state; returns the others, which are removed.
    pub(crate) fn replace(&self, section: Arc<GatewaySection>) -> HashSet<Upstream> {
        let names = |section: &GatewaySection| -> HashSet<Upstream> {
            section.upstream_groups().flat_map(|group| group.upstreams().cloned()).collect()
        };
        let old = std::mem::replace(&mut *self.section.lock(), Arc::clone(&section));
        let kept = names(&section);
        let removed: HashSet<_> = names(&old).difference(&kept).cloned().collect();
        self.upstreams.lock().retain(|upstream, _| !removed.contains(upstream));
        removed
    }

    /// Returns the checks of all upstreams, and removes those of earlier settings.
    pub(crate) fn checks(&self) -> Vec<CheckTarget> {
        let section = self.section();
        let groups = section.upstream_groups().filter_map(|group| Some((group, group.health.as_ref()?)));
        let checked = groups.flat_map(|(group, check)| group.upstreams().map(move |upstream| (upstream, check)));
        let mut checked: Vec<_> = checked.collect();
        let mut active = HashSet::new();
        checked.retain(|target| active.insert(*target));
        for (upstream, shared) in &*self.upstreams.lock() {
            shared.checks.lock().retain(|(check, _)| active.contains(&(upstream, check)));
        }
        let target = |(upstream, check): (&Upstream, &HealthCheck)| CheckTarget {
            upstream: upstream.clone(),
            check: check.clone(),
            health: self.active_health(upstream, check),
        };
        checked.into_iter().map(target).collect()
    }

    /// Creates the retry budgets of the groups.
    pub(crate) fn retry_budgets(&self) -> RetryBudgets {
        self.section().upstream_groups().map(|group| group.retries.clone().map(RetryBudget::new)).collect()
    }
}

/// Returns the routes of an upstream.
fn routes(section: &GatewaySection, upstream: &Upstream) -> Vec<String> {
    let is_default = section.upstream.weight_of(upstream).map(|_| DEFAULT_ROUTE.to_owned());
    let named = section.routes.iter().filter(|route| route.upstream.weight_of(upstream).is_some());
    let mut routes = is_default.into_iter().chain(named.map(|route| route.matches.to_string())).collect::<Vec<_>>();
    if routes.is_empty() {
        routes.push(REROUTE.to_owned());
    }
    routes
}

impl UpstreamWatch {
    /// Returns the status of each upstream that was used so far or that the section `gateway` names, by address.
    pub fn status(&self) -> Vec<UpstreamStatus> {
        let Self(registry) = self;
        let upstreams: Vec<_> =
            registry.upstreams.lock().iter().map(|(upstream, shared)| (upstream.clone(), Arc::clone(shared))).collect();
        let section = registry.section();
        let (now, elapsed) = (SystemClock.now(), registry.start.elapsed_millis());
        let mut all: Vec<_> = upstreams
            .into_iter()
            .map(|(upstream, shared)| {
                let mut totals = UpstreamTotals::default();
                shared.workers.lock().iter().for_each(|worker| totals.add(worker));
                let checks = shared.checks.lock().iter().map(|(_, health)| health.status()).reduce(CheckStatus::and);
                let weight = section.upstream_groups().find_map(|group| group.weight_of(&upstream));
                UpstreamStatus {
                    address: upstream.to_string(),
                    routes: routes(&section, &upstream),
                    check: checks,
                    weight: weight.unwrap_or(1),
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
