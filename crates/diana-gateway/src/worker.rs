//! The state with which one worker serves requests.

use crate::section::GatewaySection;
use crate::upstream::{Routing, Upstreams};
use diana_http::{Filter, FilterChain};
use diana_net::WorkerState;
use parking_lot::Mutex;
use std::sync::Arc;

/// The state with which one worker serves requests.
pub(crate) struct GatewayWorker {
    /// The worker's settings, metrics and clock.
    pub(crate) state: Arc<WorkerState>,
    pub(crate) section: Arc<GatewaySection>,
    /// Diana's filter: the limits.
    pub(crate) filter: Filter,
    /// The filters that run before it; most often none.
    pub(crate) filters_before: Arc<FilterChain>,
    /// The filters that run after it.
    pub(crate) filters_after: Arc<FilterChain>,
    pub(crate) upstreams: Upstreams,
    /// The upstreams for each request; replaced when they change, which is the only time that the lock is contended.
    pub(crate) routing: Mutex<Routing>,
    pub(crate) no_upstream: NoUpstream,
}

/// The response to requests if no upstream is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoUpstream {
    /// The response only states that the request is allowed.
    Allow,
    /// The built-in upstream returns the request that it received.
    Echo,
}
