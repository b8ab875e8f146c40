//! The Redis protocol: clients of Redis ask Diana, by redis-cell's `CL.THROTTLE` or by the rules.
//!
//! # The life of a command
//! 1. [`serve`] reads what a client has sent, and executes all complete commands of it: a batch.
//! 2. The [parser](command_parser) finds a command in the bytes that were read, without copying it.
//! 3. The [session] checks whether the client may use it, and calls its function in [`commands`]. `CL.THROTTLE`
//!    goes to [`Engine::cl_throttle`], `DIANA.CHECK` to [`Engine::acquire`]: the same counts as those of the gateway.
//! 4. The replies of a batch are sent in one write.
//!
//! # What always holds (tests/it/resp*.rs)
//! - Replies are in the order of the commands.
//! - The memory of a connection is bounded: less than 1 MiB for what was read, 64 KiB and one reply for what is sent, and
//!   8 MiB for the commands of a transaction, whatever their arguments are. All connections together have a bound, too.
//! - Any bytes get an error, never a panic; before the password was given, only short commands are read.

mod command_parser;
mod commands;
mod connection;
mod reply;
mod session;
mod transaction;

pub use connection::serve;
use diana::{Engine, KeyChange};
use diana_metrics::{OncePerSecond, ServiceMetrics, ServiceShard};
use diana_net::{ServerSettings, TotalMemory};
use diana_rules::Secret;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Receives each change of a key by a client, with the client's address.
pub type ReportKeyChange = Arc<dyn Fn(Option<SocketAddr>, &KeyChange) + Send + Sync>;

/// The state that the connections of one thread share: the password, the timeout and the counts.
pub struct RespState {
    password: Option<Secret>,
    idle_timeout: Duration,
    metrics: ServiceMetrics,
    thread: usize,
    /// Throttles the warning about clients that send HTTP.
    warnings: OncePerSecond,
    key_changes: Option<ReportKeyChange>,
    settings: Arc<ServerSettings>,
    memory: Arc<TotalMemory>,
}

impl fmt::Debug for RespState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { password, idle_timeout, thread, .. } = self;
        let mut state = f.debug_struct("RespState");
        state.field("password", password).field("idle_timeout", idle_timeout).field("thread", thread);
        state.finish_non_exhaustive()
    }
}

impl Default for RespState {
    /// Has no password; idle connections are closed after five minutes. All connections use at most 1 GiB.
    fn default() -> Self {
        let (metrics, settings) = (ServiceMetrics::new("resp", 1), Arc::<ServerSettings>::default());
        Self {
            password: None,
            idle_timeout: Duration::from_secs(300),
            metrics,
            thread: 0,
            warnings: OncePerSecond::default(),
            key_changes: None,
            memory: Arc::new(TotalMemory::new(settings.bounds.memory)),
            settings,
        }
    }
}

impl RespState {
    /// Requires a password, which clients send with `AUTH` or `HELLO`.
    #[must_use]
    pub fn password(self, password: Secret) -> Self {
        Self { password: Some(password), ..self }
    }

    /// Sets the time after which idle connections are closed, and clients that do not read their replies. It may take up
    /// to twice as long.
    #[must_use]
    pub fn idle_timeout(self, timeout: Duration) -> Self {
        Self { idle_timeout: timeout, ..self }
    }

    /// Counts requests in `metrics`, as those of this thread: `CL.THROTTLE` and `DIANA.CHECK` are allowed or denied, and
    /// every error is a failed one. The caller counts connections.
    #[must_use]
    pub fn metrics(self, metrics: ServiceMetrics, thread: usize) -> Self {
        Self { metrics, thread, ..self }
    }

    /// Reports each `DIANA.RESET` and `DIANA.REFUND`, for an audit log. It must not block.
    #[must_use]
    pub fn key_changes(self, report: ReportKeyChange) -> Self {
        Self { key_changes: Some(report), ..self }
    }

    /// Rejects described requests as a gateway with these settings does.
    #[must_use]
    pub fn settings(self, settings: Arc<ServerSettings>) -> Self {
        Self { settings, ..self }
    }

    /// Bounds the memory of all connections together: commands that are incomplete, transactions, and replies.
    #[must_use]
    pub fn memory(self, memory: Arc<TotalMemory>) -> Self {
        Self { memory, ..self }
    }

    fn shard(&self) -> &ServiceShard {
        self.metrics.shard(self.thread)
    }
}
