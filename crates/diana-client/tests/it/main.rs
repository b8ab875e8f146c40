//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-client --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod client_limit;
mod docs_page;
mod outgoing_client;
#[cfg(feature = "reqwest")]
mod reqwest;
mod retry_after;
