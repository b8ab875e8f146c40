//! The call site of one attribute: its options and the counts that it has looked up. Used by macro output; not public
//! API.
//!
//! | attribute | static | queries |
//! |---|---|---|
//! | `#[rate_limit]`, `#[count_limit]` | [`LocalSite`] | a limiter of this process |
//! | the same with `store = shared` | [`SharedSite`] | a limiter of the shared store |
//! | `#[limited]` | [`RuleSite`] | a rule of an engine, by its name |
//!
//! A call must cost little more than a check of a limiter in code. So the lookup is done once and [cached](cache);
//! after that a call compares one number, which changes with every install.

#[cfg(feature = "rules")]
mod args;
#[cfg(any(feature = "redis", feature = "rules"))]
mod block_on;
mod cache;
mod key_part;
mod limit;
mod local;
#[cfg(feature = "rules")]
mod rule;
mod shared;
mod spec;

pub use super::key::{By, Key};
#[cfg(feature = "rules")]
pub use args::Args;
pub use key_part::{OfAnything, OfPlain, OfShown, part};
pub(super) use limit::Limit;
pub use local::LocalSite;
#[cfg(feature = "rules")]
pub use rule::RuleSite;
pub use shared::SharedSite;
pub use spec::{Allows, Keys, Spec};
