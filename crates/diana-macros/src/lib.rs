//! Diana's attributes on functions. Use them through the crate `diana`, feature `macros`, which tells how.
//!
//! ```text
//!  #[rate_limit(rate = 5.0, by = ip)]  ──options──▶ what it says ──expand──▶ the same function, which first asks
//! ```
//!
//! # What always holds
//! - Whatever can be known from the attribute is checked here, and an error points at the very value and says what would do
//!   (`crates/diana-macros/tests/limited_errors/`).
//! - What is written is short: a static, a key, one call. All else is code in `diana::limited`, which is compiled once.
//! - A function that hands out a future asks in that future, when it is first polled: `async fn`, and what `async_trait` makes of
//!   one.
//! - A function that can't be limited is handed back as it is, next to the error, so that one mistake is one error.

mod arguments;
mod body;
mod expand;
mod number;
mod options;
mod question;
mod text;

use options::Kind;
use proc_macro::TokenStream;

/// Limits how often a function runs, with an even flow: see the crate `diana`.
#[proc_macro_attribute]
pub fn rate_limit(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(Kind::Rate, options.into(), function.into()).into()
}

/// Limits how often a function runs in a period: see the crate `diana`.
#[proc_macro_attribute]
pub fn count_limit(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(Kind::Count, options.into(), function.into()).into()
}

/// Puts a rule of the rule file on a function: see the crate `diana`.
#[proc_macro_attribute]
pub fn limited(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(Kind::Rule, options.into(), function.into()).into()
}
