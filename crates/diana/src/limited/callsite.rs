//! The call site of one attribute: its options and the counts that it has looked up. Used by macro output; not public API.
//!
//! | attribute | static | queries |
//! |---|---|---|
//! | `#[rate_limit]`, `#[count_limit]` | [`LocalCallSite`] | a limiter of this process |
//! | the same with `store = shared` | [`SharedCallSite`] | a limiter of the shared store |
//! | `#[limited]` | [`RuleCallSite`] | a rule of an engine, by its name |
//!
//! A call must cost little more than a check of a limiter in code. So the lookup is done once and [cached](cache);
//! after that a call compares one number, which changes with every install.

#[cfg(feature = "rules")]
mod args;
mod attribute_options;
#[cfg(any(feature = "redis", feature = "rules"))]
mod block_on;
mod cache;
mod key_part;
mod local;
mod local_counts;
#[cfg(feature = "rules")]
mod rule;
mod shared;

pub use super::key::{By, CallKey};
#[cfg(feature = "rules")]
pub use args::Args;
pub use attribute_options::{AttributeOptions, Keys, LimitSpec};
pub use key_part::{WriteDisplay, WriteNothing, WritePlain, part};
pub use local::LocalCallSite;
pub(super) use local_counts::Limit;
#[cfg(feature = "rules")]
pub use rule::RuleCallSite;
pub use shared::SharedCallSite;
