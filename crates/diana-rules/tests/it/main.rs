//! All integration tests of this crate in one binary, to link only once.
//!
//! `cargo test -p diana-rules --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod calls;
mod common;
mod diagnostics;
mod documents;
mod gateway_sections;
mod index_laws;
mod mutations;
mod pages;
mod rule_error_fields;
mod rule_errors;
mod rule_file;
mod sample_rules;
mod schema;
mod section_errors;
mod the_coming_from_page;
mod the_gateway_page;
mod the_rule_file_page;
