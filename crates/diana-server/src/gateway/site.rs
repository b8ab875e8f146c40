//! What a worker needs to serve requests. Each worker has its own, so that workers share as little as can be.

use super::deadlines::Deadlines;
use super::http2::Total;
use super::upstream::{Group, Upstreams};
use crate::access_log::AccessLog;
use crate::metrics::Shard;
use diana::redis::RedisStore;
use diana_http::{Chain, Filter};
use diana_rules::Gateway;
use std::sync::Arc;

/// The store that many gateways share.
pub(super) type Store = RedisStore;

/// What a worker needs to serve requests.
pub(super) struct Site {
    pub(super) gateway: Arc<Gateway>,
    /// Who stands first.
    pub(super) filter: Filter<Store>,
    /// Who stands behind it.
    pub(super) chain: Arc<Chain>,
    pub(super) upstreams: Upstreams,
    /// Where requests go that no route is for.
    pub(super) default: Destination,
    /// Where those go that a route is for, in the order of the file.
    pub(super) routes: Vec<Group>,
    pub(super) deadlines: Arc<Deadlines>,
    /// What HTTP/2 clients hold in memory. All workers share it.
    pub(super) http2_memory: Arc<Total>,
    pub(super) metrics: Arc<Shard>,
    pub(super) log: Option<AccessLog>,
}

/// Where requests go.
pub(super) enum Destination {
    Upstreams(Group),
    /// The built-in upstream, which tells what it was asked.
    Echo,
    /// Nowhere: whoever asks wants to know whether a request may pass.
    Answer,
}
