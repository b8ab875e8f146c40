//! The state that a worker needs to serve requests. Each worker has its own, so that workers share as little as
//! possible.

use super::deadlines::Deadlines;
use super::http2::Total;
use super::upstream::{Balancer, Upstreams};
use crate::access_log::AccessLog;
use crate::metrics::Shard;
use diana_http::{Filter, FilterChain};
use diana_rules::Gateway;
use std::sync::Arc;

/// The state that a worker needs to serve requests.
pub(super) struct WorkerState {
    pub(super) gateway: Arc<Gateway>,
    /// Diana's filter, which runs first.
    pub(super) filter: Filter,
    /// The filters that run after it.
    pub(super) chain: Arc<FilterChain>,
    pub(super) upstreams: Upstreams,
    /// The target of requests that match no route.
    pub(super) default: RouteTarget,
    /// The targets of the routes, in the order of the file.
    pub(super) routes: Vec<Balancer>,
    pub(super) deadlines: Arc<Deadlines>,
    /// The memory that HTTP/2 clients occupy. All workers share it.
    pub(super) http2_memory: Arc<Total>,
    pub(super) metrics: Arc<Shard>,
    pub(super) log: Option<AccessLog>,
}

/// The target of a request.
pub(super) enum RouteTarget {
    Upstreams(Balancer),
    /// The built-in upstream, which returns the request that it received.
    Echo,
    /// No upstream: the response only states that the request is allowed.
    Answer,
}
