//! All integration tests of this crate in one binary, to link only once.
//!
//! `cargo test -p diana-rules --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod common;
mod documents;
mod foreign_words;
mod item_text;
mod permissions;
mod rule_error_combinations;
mod rule_error_fields;
mod rule_errors;

/// The registry that [`common`] reads files with.
fn registry() -> diana_rules::Registry {
    diana_rules::Registry::default()
}
