//! Limits on functions: the runtime part of `#[rate_limit]`, `#[count_limit]` and `#[limited]`.
//!
//! # The life of a call
//! ```text
//!  #[rate_limit(..)]           ┌───────────┐  once, and after each install  ┌────────┐
//!  async fn search(..) ──────▶ │ call site │ ─────────────────────────────▶ │ Limits │ counts and clock
//!        │                     └───────────┘                                └────────┘
//!        │  the key of the call      │ every call
//!        └──────────▶ CallKey ──────▶│──▶ granted: the body runs, after its wait
//!            Caller's ip, user,      └──▶ `Limited`: an error of the function's own type, or the result of `on_limit`
//!            the arguments
//! ```
//!
//! 1. Each attribute has one static, its call site. All instances of a generic function share it.
//! 2. The call site looks up its counts in the installed [`Limits`] and caches them until the next install. With
//!    `store = shared` it looks up the shared store, and with `#[limited]` an engine, whose rule it queries by name.
//! 3. The key is written to the stack: the [`Caller`]'s address or user, or the expressions in braces.
//! 4. A denial becomes a [`Limited`], which is converted to the function's return type. The body does not run.
//!
//! # What always holds (tests/it/limited*.rs, tests/limited_install.rs)
//! - A denied call has charged nothing, and its body has not started.
//! - Missing information never disables a limit: calls without a known address or user are counted together under one
//!   key, and without installed [`Limits`] every call is denied with an error that explains the fix.
//! - No panics: mistakes are reported as errors, like denials. (Tokio panics if a call must wait in a runtime without a
//!   timer, and if a function that is not async needs the network in a `LocalSet`.)

mod caller;
#[doc(hidden)]
pub mod callsite;
mod error;
mod from_limited;
mod function_limits;
mod installed;
mod key;

pub use caller::{Caller, Scoped};
pub use error::{Cause, Limited};
pub use from_limited::FromLimited;
pub use function_limits::Limits;
