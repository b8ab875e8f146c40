//! What a worker needs to serve requests. Each worker has its own, so that workers share as little as can be.

use super::deadlines::Deadlines;
use super::http2::Total;
use super::upstream::{Balancer, Upstreams};
use crate::access_log::AccessLog;
use crate::metrics::Shard;
use diana::redis::RedisStore;
use diana_http::{Filter, FilterChain};
use diana_rules::Gateway;
use std::sync::Arc;

/// The store that many gateways share.
pub(super) type Store = RedisStore;

/// What a worker needs to serve requests.
pub(super) struct WorkerState {
    pub(super) gateway: Arc<Gateway>,
    /// Who stands first.
    pub(super) filter: Filter<Store>,
    /// Who stands behind it.
    pub(super) chain: Arc<FilterChain>,
    pub(super) upstreams: Upstreams,
    /// Where requests go that no route is for.
    pub(super) default: RouteTarget,
    /// Where those go that a route is for, in the order of the file.
    pub(super) routes: Vec<Balancer>,
    pub(super) deadlines: Arc<Deadlines>,
    /// What HTTP/2 clients hold in memory. All workers share it.
    pub(super) http2_memory: Arc<Total>,
    pub(super) metrics: Arc<Shard>,
    pub(super) log: Option<AccessLog>,
}

/// Where requests go.
pub(super) enum RouteTarget {
    Upstreams(Balancer),
    /// The built-in upstream, which tells what it was asked.
    Echo,
    /// Nowhere: whoever asks wants to know whether a request may pass.
    Answer,
}
