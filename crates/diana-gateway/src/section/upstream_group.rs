//! The upstreams of a route, or of requests without one, and how requests are distributed over them:
//! `upstream: [{url: http://10.0.0.1, weight: 3}, http://10.0.0.2]`, with `balance`, `health` and `retries` beside it.

use super::{HealthCheck, RetryPolicy};
use diana_rules::document::{Node, Value};
use diana_rules::map_reader::MapReader;
use diana_rules::upstream_url::Upstream;
use diana_rules::{Problem, scalar};

/// Upstreams that serve the same requests.
///
/// ```
/// use diana_gateway::section::{Balance, UpstreamGroup};
///
/// let group = UpstreamGroup::from(vec!["http://10.0.0.1".parse()?, "http://10.0.0.2".parse()?]);
/// assert_eq!((group.endpoints[1].weight, group.balance), (1, Balance::RoundRobin));
/// # Ok::<(), diana_rules::upstream_url::InvalidUpstream>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamGroup {
    /// The upstreams with their weights. Empty if nothing is forwarded.
    pub endpoints: Vec<WeightedUpstream>,
    /// The algorithm that chooses an upstream for a request.
    pub balance: Balance,
    /// The checks of the upstreams; `None` if only failing requests eject them.
    pub health: Option<HealthCheck>,
    /// The failed requests to send to another upstream; `None` for those of which nothing was sent.
    pub retries: Option<RetryPolicy>,
}

/// An upstream and its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WeightedUpstream {
    /// The upstream.
    pub upstream: Upstream,
    /// The upstream's share, relative to the weights of the others.
    pub weight: u32,
}

/// The algorithm that chooses an upstream for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// Chooses the upstreams in turn, in proportion to the weights.
    #[default]
    RoundRobin,
    /// Chooses the one with the fewest requests in flight, relative to its weight.
    LeastRequests,
}

/// The fields beside `upstream` that belong to it.
pub(super) const FIELDS: [&str; 3] = ["balance", "health", "retries"];
/// The fields of an upstream that is a map.
pub(super) const ENDPOINT: [&str; 2] = ["url", "weight"];
/// The maximum weight.
pub(super) const MAX_WEIGHT: u64 = 1_000;

impl Balance {
    pub(super) const WORDS: [&str; 2] = ["round_robin", "least_requests"];
    const ALL: [Self; 2] = [Self::RoundRobin, Self::LeastRequests];
}

impl From<Vec<Upstream>> for UpstreamGroup {
    /// Creates a group of upstreams that are used in turn.
    fn from(upstreams: Vec<Upstream>) -> Self {
        let endpoints = upstreams.into_iter().map(|upstream| WeightedUpstream { upstream, weight: 1 }).collect();
        Self { endpoints, ..Self::default() }
    }
}

impl UpstreamGroup {
    /// Returns the upstreams.
    pub fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.endpoints.iter().map(|endpoint| &endpoint.upstream)
    }

    /// Returns the weight of an upstream; `None` if it is not in the group. One that is named twice has the sum.
    pub fn weight_of(&self, upstream: &Upstream) -> Option<u32> {
        let weights = self.endpoints.iter().filter(|endpoint| endpoint.upstream == *upstream);
        weights.map(|endpoint| endpoint.weight).reduce(u32::saturating_add)
    }

    /// Reads the fields of a group, of which `upstream` was taken already.
    pub(super) fn parse(upstream: Option<&Node>, fields: &mut MapReader<'_>, problems: &mut Vec<Problem>) -> Self {
        let [balance, health, retries] = FIELDS.map(|name| fields.take_entry(name));
        for entry in [balance, health, retries].into_iter().flatten().filter(|_| upstream.is_none()) {
            let problem = Problem::new(entry.span, format!("`{}` needs `upstream` beside it", entry.key));
            problems.push(problem.expected("it applies to that `upstream`: routes have their own"));
        }
        let nodes = upstream.map(|node| scalar::at_least_one(node, "`upstream`", problems)).unwrap_or_default();
        let endpoints = nodes.into_iter().filter_map(|node| WeightedUpstream::parse(node, problems)).collect();
        let word = balance.and_then(|entry| scalar::word(&entry.node, "`balance`", &Balance::WORDS, problems));
        Self {
            endpoints,
            balance: word.map(|index| Balance::ALL[index]).unwrap_or_default(),
            health: health.and_then(|entry| HealthCheck::parse(&entry.node, problems)),
            retries: retries.and_then(|entry| RetryPolicy::parse(&entry.node, problems)),
        }
    }
}

impl WeightedUpstream {
    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        if !matches!(node.value, Value::Map(_)) {
            return Some(Self { upstream: Upstream::parse_node(node, "`upstream`", problems)?, weight: 1 });
        }
        let mut fields = MapReader::of(node, "`upstream`", ENDPOINT, problems)?;
        let url = fields.require("url", problems).and_then(|node| Upstream::parse_node(node, "`url`", problems));
        let weight = fields.take("weight").map(|node| scalar::within(node, "`weight`", 1..=MAX_WEIGHT, problems));
        fields.finish(problems);
        let weight = u32::try_from(weight.unwrap_or(Some(1))?).ok()?;
        Some(Self { upstream: url?, weight })
    }
}
