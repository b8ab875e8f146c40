//! The state that a worker needs to serve requests. Each worker has its own, so that workers share as little as
//! possible.

use crate::access_log::AccessLog;
use crate::connection::Deadlines;
use crate::http2::TotalMemory;
use crate::section::GatewaySection;
use crate::upstream::{Balancer, Upstreams};
use diana_http::{Filter, FilterChain};
use diana_metrics::Shard;
use std::sync::Arc;

/// The state that a worker needs to serve requests.
pub(crate) struct WorkerState {
    pub(crate) gateway: Arc<GatewaySection>,
    /// Diana's filter, which runs first.
    pub(crate) filter: Filter,
    /// The filters that run after it.
    pub(crate) chain: Arc<FilterChain>,
    pub(crate) upstreams: Upstreams,
    /// The target of requests that match no route.
    pub(crate) default: RouteTarget,
    /// The targets of the routes, in the order of the file.
    pub(crate) routes: Vec<Balancer>,
    pub(crate) deadlines: Arc<Deadlines>,
    /// The memory that HTTP/2 clients occupy. All workers share it.
    pub(crate) http2_memory: Arc<TotalMemory>,
    pub(crate) metrics: Arc<Shard>,
    pub(crate) log: Option<AccessLog>,
}

/// The target of a request.
pub(crate) enum RouteTarget {
    Upstreams(Balancer),
    /// The built-in upstream, which returns the request that it received.
    Echo,
    /// No upstream: the response only states that the request is allowed.
    Allow,
    /// Requests are checks of other gateways, which describe the request that they ask about.
    Check,
}
