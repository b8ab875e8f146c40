//! Rate limits that many processes share: the counts live on Redis, with the answers of the in-process store.

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
