//! All integration tests of this crate in one binary, to link only once.
//!
//! `cargo test -p diana-rules --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod calls;
mod common;
mod diagnostics;
mod documents;
#[cfg(feature = "sources")]
mod etcd_source;
#[cfg(feature = "sources")]
mod file_source;
mod gateway_sections;
#[cfg(feature = "sources")]
mod http_source;
mod index_laws;
mod mutations;
mod pages;
#[cfg(feature = "sources")]
mod redis_source;
#[cfg(feature = "sources")]
mod remote_over_local;
mod rule_error_fields;
mod rule_errors;
mod rule_file;
mod sample_rules;
mod schema;
mod section_errors;
#[cfg(feature = "sources")]
mod source_support;
mod the_coming_from_page;
mod the_gateway_page;
mod the_rule_file_page;
#[cfg(feature = "sources")]
mod tls_source;
