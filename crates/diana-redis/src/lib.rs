//! Rate limits that many processes share: the counts live on Redis, with the answers of the in-process store.

mod algorithm;
mod args;
mod carry;
mod fraction;
mod kept;
mod key;
mod kind;
mod link;
mod module;
mod options;
mod parameters;
mod plans;
mod remote;
mod request;
mod scripted;
mod store;

pub use options::{Options, Times};
pub use store::RedisStore;
