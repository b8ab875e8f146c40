//! Diana's attributes on functions. Use them through the crate `diana`, feature `macros`, which tells how.
//!
//! ```text
//!  #[rate_limit(rate = 5.0, by = ip)]  ──options──▶ what it says ──expand──▶ the same function, which first asks
//! ```
//!
//! # What always holds
//! - Whatever can be known from the attribute is checked here, and an error points at the very value and says what would do
//!   (`crates/diana/tests/limited_errors/`).
//! - What is written is short: a static, a key, one call. All else is code in `diana::limited`, which is compiled once.
//! - A function that can't be limited is handed back as it is, next to the error, so that one mistake is one error.

mod expand;
mod number;
mod options;
mod period;
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
