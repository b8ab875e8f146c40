//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-http --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod ambiguous_values;
mod attributes;
mod client_ip;
mod cost_header;
mod count_by_status;
mod credentials;
mod denial;
mod docs_page;
#[cfg(feature = "axum")]
mod examples;
mod layer;
#[cfg(all(feature = "axum", feature = "macros"))]
mod limited_handlers;
mod overload;
mod path;
mod path_forms;
mod ratelimit_headers;
mod refund;
mod scheme;
#[cfg(feature = "signature")]
mod signature;
mod support;
mod throttle;
mod transcript;
