//! The state that a worker needs to serve requests. Each worker has its own, so that workers share as little as
//! possible.

use crate::access_log::AccessLog;
use crate::connection::Deadlines;
use crate::section::GatewaySection;
use crate::upstream::{Routing, Upstreams};
use diana_http::{Filter, FilterChain};
use diana_metrics::Shard;
use diana_net::TotalMemory;
use parking_lot::Mutex;
use std::sync::Arc;

/// The state that a worker needs to serve requests.
pub(crate) struct WorkerState {
    pub(crate) gateway: Arc<GatewaySection>,
    /// Diana's filter: the limits.
    pub(crate) filter: Filter,
    /// The filters that run before it; most often none.
    pub(crate) before: Arc<FilterChain>,
    /// The filters that run after it.
    pub(crate) chain: Arc<FilterChain>,
    pub(crate) upstreams: Upstreams,
    /// The upstreams for each request; replaced when they change, which is the only time that the lock is contended.
    pub(crate) routing: Mutex<Routing>,
    pub(crate) no_upstream: NoUpstream,
    pub(crate) deadlines: Arc<Deadlines>,
    /// The memory that HTTP/2 clients occupy. All workers share it.
    pub(crate) memory: Arc<TotalMemory>,
    pub(crate) metrics: Arc<Shard>,
    pub(crate) log: Option<AccessLog>,
}

/// How requests are answered if no upstream is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoUpstream {
    /// The response only states that the request is allowed.
    Allow,
    /// The built-in upstream returns the request that it received.
    Echo,
    /// Requests are checks of other gateways, which describe the request that they ask about.
    Check,
}
