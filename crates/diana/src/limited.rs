//! Limits on functions: what `#[rate_limit]`, `#[count_limit]` and `#[limited]` do at run time.
//!
//! # The life of a call
//! ```text
//!  #[rate_limit(..)]            ┌──────┐  once, and after each install  ┌────────┐
//!  async fn search(..) ───────▶ │ Site │ ─────────────────────────────▶ │ Limits │ whose counts, which clock
//!        │                      └──────┘                                └────────┘
//!        │  whose call it is        │ every call
//!        └──────────▶ Key ─────────▶│──▶ granted: the body runs, after its wait
//!            Caller's ip, user,     └──▶ `Limited`: an error of the function's own type, or what `on_limit` makes of it
//!            the arguments
//! ```
//!
//! 1. Each attribute is a place in the code with a static of its own, the site. A generic function has one for all its instances.
//! 2. The site finds its counts in the [`Limits`] that are installed. It remembers them until others are installed.
//!    One with `store = shared` finds the store that many processes share, and `#[limited]` an engine, whose rule it asks by name.
//! 3. The key is written to the stack: the [`Caller`]'s address or user, or what stands in braces.
//! 4. A refusal becomes a [`Limited`], and that the function's own answer. The body does not run.
//!
//! # What always holds (tests/it/limited.rs and its kin: `_async`, `_install`, `_rules`, `_scope`, `_shared`)
//! - A call that is refused has charged nothing, and its body has not begun.
//! - Nothing here is without a limit for want of knowledge: whose address or user isn't known counts under one key, with all
//!   others of whom it isn't, and without installed [`Limits`] every call is refused with an error that says what to write.
//! - No panic: what is wrong is an error, as a refusal is. (Tokio panics in a runtime without a timer, when a call must wait, and in
//!   a `LocalSet`, when a function that is not async has to ask over the network.)

mod caller;
#[doc(hidden)]
pub mod callsite;
mod cause;
mod from_limited;
mod installed;
mod key;
mod registry;

pub use caller::{Caller, Scoped};
pub use cause::{Cause, Limited};
pub use from_limited::FromLimited;
pub use registry::Limits;
