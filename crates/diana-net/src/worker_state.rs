//! The state that a worker needs to serve connections. Each worker has its own, so that workers share as little as possible.

use crate::access_log::AccessLog;
use crate::coarse_timer::Deadlines;
use crate::{ServerSettings, TotalMemory};
use diana_metrics::Shard;
use std::fmt;
use std::sync::Arc;

/// The state that a worker needs to serve connections.
#[non_exhaustive]
pub struct WorkerState {
    /// The settings for clients.
    pub settings: Arc<ServerSettings>,
    /// The timeouts of all that the worker waits for, and its clock.
    pub deadlines: Arc<Deadlines>,
    /// The memory that HTTP/2 clients occupy. All workers share it.
    pub(crate) memory: Arc<TotalMemory>,
    /// The metrics that it counts.
    pub metrics: Arc<Shard>,
    /// The access log, if there is one.
    pub log: Option<AccessLog>,
}

impl fmt::Debug for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerState").finish_non_exhaustive()
    }
}
