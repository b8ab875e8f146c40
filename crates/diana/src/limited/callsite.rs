//! One attribute in the code: what it says, and the counts that it has found. What the attributes write; no part of the API.
//!
//! | attribute | static | asks |
//! |---|---|---|
//! | `#[rate_limit]`, `#[count_limit]` | [`LocalSite`] | a limiter of this process |
//! | the same with `store = shared` | [`SharedSite`] | a limiter that many processes share |
//! | `#[limited]` | [`RuleSite`] | a rule of an engine, by its name |
//!
//! A call must cost little more than a check of a limiter that was made by hand. So what is asked is looked up once and
//! [held](found); after that a call compares one number, which tells whether something was installed since.

mod args;
mod block_on;
mod cache;
mod key_part;
mod limit;
mod local;
mod rule;
mod shared;
mod spec;

pub use super::key::{By, Key};
pub use args::Args;
pub use key_part::{OfAnything, OfPlain, OfShown, part};
pub(super) use limit::Limit;
pub use local::LocalSite;
pub(super) use rule::Rules;
pub use rule::{Pass, RuleSite};
pub use shared::SharedSite;
pub use spec::{Allows, Keys, Spec};
