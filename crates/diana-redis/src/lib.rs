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
//!    │ refusals.rs            known to be refused? answered here
//!    │ leases.rs              permits on lease? spent here
//!    ▼
//!  Remote (remote.rs)        the store's contract, one script call a request
//!    │ plans.rs, carry.rs     under which parameters, and how a state comes over to others
//!    │ batch.rs               with others of the same moment
//!    ▼
//!  Link (link.rs)            one time budget a request, a breaker, the connection; repaired from behind
//!    ▼
//!  scripts/                  where states are kept, a file for each algorithm; its counterpart is in algorithm/
//!
//!  fallback.rs               what is answered when the link is down
//! ```

mod algorithm;
mod args;
mod batch;
mod caller;
mod carry;
mod error;
mod fallback;
mod fraction;
mod kept;
mod key;
mod kind;
mod leases;
mod limiter;
mod limiters;
mod link;
mod module;
mod news;
mod options;
mod parameters;
mod plans;
mod refusals;
mod releases;
mod remote;
mod request;
mod scripted;
mod status;
mod store;

pub use error::ConnectError;
pub use limiter::{AcquireError, Held, NotHeld, SharedLimiter};
pub use limiters::SharedLimiters;
pub use options::{Batching, Leases, Options, Refusals, Times, WhenDown};
pub use status::{Health, LinkStatus};
pub use store::RedisStore;

/// The page's code, so that it is tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sharing-limits.md")]
struct SharingLimits;
