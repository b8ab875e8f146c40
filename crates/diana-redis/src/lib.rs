//! Rate limits that many processes share: the counts are on Redis, and the answers equal those of the in-process store.
//!
//! # Where to begin
//! - A store for several limits in one decision: [`RedisStore`], with its [`Options`].
//! - One limit to wait for, over all processes: [`SharedLimiter`]; many by name: [`SharedLimiters`].
//! - How it works, what it guarantees, and what happens in each failure: the page "Sharing limits",
//!   `docs/tasks/share-limits.md`.
//!
//! # How it is built
//! ```text
//!  RedisStore (store.rs)        a request
//!    │ deny_cache.rs             known to be denied? answered in this process
//!    │ leases.rs                 permits on lease? spent in this process
//!    ▼
//!  Client (direct_store.rs)     the contract of a store: one script call per request
//!    │ limit_config_versions.rs, migrate.rs   which parameters apply, and how a state is migrated to others
//!    │ batch.rs                  together with concurrent requests
//!    ▼
//!  Link (link.rs)               one time budget per request, a breaker, the connection; reconnects in the background
//!    ▼
//!  scripts/                     decide and store states: a file for each algorithm, its counterpart in algorithms/
//!
//!  fallback.rs                  answers while the link is down
//! ```

mod algorithms;
mod args;
mod batch;
mod deny_cache;
mod direct_store;
mod erased_algorithm;
mod fallback;
mod invalidation;
mod invalidation_listener;
mod key;
mod leases;
mod limit_config_versions;
mod limiter;
mod limiters;
mod link;
mod migrate;
mod options;
mod quota_text;
mod rational_time;
mod releases;
mod script_call;
mod script_runner;
mod scripted_algorithm;
mod scripts;
mod setup_error;
mod status;
mod store;

pub use limiter::{SharedGrant, SharedKeyLimiter, SharedLimiter, SharedPermit};
pub use limiters::SharedLimiters;
pub use options::{Batching, DenyCache, Leases, Options, TimeSource, WhenDown};
pub use setup_error::{ConnectError, UnsupportedLimitError};
pub use status::{Health, LinkStatus};
pub use store::RedisStore;
