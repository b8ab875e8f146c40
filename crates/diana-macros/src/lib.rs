//! Diana's attributes for functions, and `quota!`. Use them through the crate `diana`, feature `macros`, which documents them.
//!
//! ```text
//!  #[rate_limit(rate = 5.0, by = ip)]  ──options──▶ Options ──expand──▶ the function with a check before its body
//! ```
//!
//! # What always holds
//! - Everything that follows from the attribute alone is checked at compile time, and an error points at the value and
//!   suggests a fix (`crates/diana-macros/tests/limited_errors/`).
//! - The generated code is short: a static, a key, one call. Everything else is in `diana::limited`, which is compiled
//!   once.
//! - A function that returns a future checks its limit in that future, when it is first polled: `async fn`, and the
//!   functions that `async_trait` generates.
//! - A function that can't be limited is returned unchanged, next to the error, so that one mistake is one error.

mod argument_names;
mod body_kind;
mod expand;
mod generated_check;
mod options;
mod quota;
mod template;
mod value;

use options::Kind;
use proc_macro::TokenStream;

/// Creates a quota whose text the compiler checks: see the crate `diana`.
#[proc_macro]
pub fn quota(text: TokenStream) -> TokenStream {
    quota::expand(text.into()).into()
}

/// Limits how often a function runs, at an even rate: see the crate `diana`.
#[proc_macro_attribute]
pub fn rate_limit(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(Kind::Rate, options.into(), function.into()).into()
}

/// Limits how often a function runs in a period: see the crate `diana`.
#[proc_macro_attribute]
pub fn count_limit(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(Kind::Count, options.into(), function.into()).into()
}

/// Applies a rule of the rule file to a function: see the crate `diana`.
#[proc_macro_attribute]
pub fn limited(options: TokenStream, function: TokenStream) -> TokenStream {
    if cfg!(feature = "rules") {
        return expand::expand(Kind::Rule, options.into(), function.into()).into();
    }
    expand::without_rules(function.into()).into()
}
