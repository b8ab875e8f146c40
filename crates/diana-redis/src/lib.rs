//! Rate limits that many processes share: the counts live on Redis, with the answers of the in-process store.
//!
//! # Where to begin
//! - A store for several limits in one decision: [`RedisStore`], with its [`Options`].
//! - One limit to wait for, over all processes: [`SharedLimiter`]; many by name: [`SharedLimiters`].
//! - How it works, what is promised, and what happens in each failure: the page "Sharing limits", `docs/sharing-limits.md`.
//!
//! # How it is built
//! ```text
//!  RedisStore (store.rs)     a request
//!    │ deny_cache.rs            known to be refused? answered here
//!    │ leases.rs              permits on lease? spent here
//!    ▼
//!  Client (client.rs)        the store's contract, one script call a request
//!    │ configs.rs, carry.rs     under which parameters, and how a state comes over to others
//!    │ batch.rs               with others of the same moment
//!    ▼
//!  Link (link.rs)            one time budget a request, a breaker, the connection; repaired from behind
//!    ▼
//!  scripts/                  where states are erased, a file for each algorithm; its counterpart is in algorithm/
//!
//!  fallback.rs               what is answered when the link is down
//! ```

mod algorithm;
mod args;
mod batch;
mod client;
mod deny_cache;
mod erased;
mod error;
mod fallback;
mod invalidation;
mod key;
mod kind;
mod leases;
mod limit_config;
mod limiter;
mod limiters;
mod link;
mod migrate;
mod options;
mod parameters;
mod rational_time;
mod releases;
mod request;
mod script_runner;
mod scripted;
mod scripts;
mod status;
mod store;

pub use error::ConnectError;
pub use limiter::{AcquireError, PermitError, SharedLimiter, SharedPermit};
pub use limiters::SharedLimiters;
pub use options::{Batching, DenyCache, Leases, Options, Times, WhenDown};
pub use status::{Health, LinkStatus};
pub use store::RedisStore;

/// The page's code, so that it is tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sharing-limits.md")]
struct SharingLimits;
