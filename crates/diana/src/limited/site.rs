//! One attribute in the code: what it says, and the counts that it has found. What the attributes write; no part of the API.
//!
//! | attribute | static | asks |
//! |---|---|---|
//! | `#[rate_limit]`, `#[count_limit]` | [`Site`] | a limiter of this process |
//! | the same with `store = shared` | [`SharedSite`] | a limiter that many processes share |
//! | `#[limited]` | [`RuleSite`] | a rule of an engine, by its name |
//!
//! A call must cost little more than a check of a limiter that was made by hand. So what is asked is looked up once and
//! [held](found); after that a call compares one number, which tells whether something was installed since.

mod block;
mod found;
mod limit;
mod own;
mod part;
mod rule;
mod says;
mod shared;
mod told;

pub use super::key::{By, Key};
pub(super) use limit::Limit;
pub use own::Site;
pub use part::{OfAnything, OfPlain, OfShown, part};
pub(super) use rule::Rules;
pub use rule::{Pass, RuleSite};
pub use says::{Allows, Keys, Says};
pub use shared::SharedSite;
pub use told::Told;
